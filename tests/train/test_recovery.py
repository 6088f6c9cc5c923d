"""How long a change of membership took: the parts add up, changes that overlap are one."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

from nonuniform.placement.placement import Placement, ReplicaPlacement
from nonuniform.protocol.record import Record, Settled
from nonuniform.train.chronicle import Chronicle
from nonuniform.train.journal import RunFolder
from nonuniform.train.membership import Board
from nonuniform.train.recovery import Recovery
from nonuniform.view.observer import NullObserver

PLACEMENT = Placement(
    (ReplicaPlacement(0, ("0/0", "0/1", "0/2"), 7), ReplicaPlacement(1, ("1/0", "1/1"), 5))
)
RECORD = Record(4, PLACEMENT, 6, 0, "digest", {}, {})
PARTS = ("detect_s", "regroup_s", "transfer_s", "redo_s", "transfer_bytes")


def recovery_of(noticed_s: float, **more: Any) -> Recovery:
    return Recovery(noticed_s, more.pop("step", 7), **more)


def told(folder: Path, recovery: Recovery, settled: list[Settled]) -> list[dict[str, Any]]:
    """The events of `recovery` when its first step is committed now."""
    board = Board(dist.HashStore())
    for one in settled:
        board.settled(RECORD.generation, one)
    chronicle = Chronicle(RunFolder.create(folder, overwrite=True), NullObserver(), 2)
    recovery.finish(board, RECORD, chronicle)
    return [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]


def test_the_parts_of_a_recovery_add_up(tmp_path: Path) -> None:
    now = time.monotonic()
    recovery = recovery_of(now - 2.0, published_s=now - 1.5)
    recovery.add_loss("1/2", now - 2.25, now - 2.0)
    settled = [
        Settled("0/0", groups_s=0.25, transfer_s=0.125, received_bytes=0),
        Settled("1/0", groups_s=0.125, transfer_s=0.5, received_bytes=640),
        Settled("1/1", groups_s=0.25, transfer_s=0.5, received_bytes=64),
    ]
    (event,) = told(tmp_path, recovery, settled)
    assert (event["kind"], event["gpu"], event["replica"]) == ("recovery", "1/2", 1)
    assert (event["step"], event["generation"]) == (7, 4)
    assert "1/2 failed" in event["reason"]
    assert "replica 0 at degree 3, replica 1 at degree 2" in event["reason"]
    assert event["detect_s"] == pytest.approx(0.25)
    assert event["regroup_s"] == pytest.approx(0.5 + 0.25)
    assert event["transfer_s"] == 0.5
    assert event["transfer_bytes"] == 704
    assert event["redo_s"] == pytest.approx(1.5 - 0.25 - 0.5, abs=0.2)
    parts = sum(event[part] for part in PARTS[:4])
    assert event["total_s"] == pytest.approx(parts, abs=1e-9)


def test_how_long_a_loss_went_unseen_is_only_known_where_it_was_ordered(tmp_path: Path) -> None:
    now = time.monotonic()
    recovery = recovery_of(now - 1.0, published_s=now)
    recovery.add_loss("0/3", None, now - 1.0)
    (event,) = told(tmp_path, recovery, [])
    assert event["detect_s"] is None
    assert event["total_s"] == pytest.approx(1.0, abs=0.2)
    assert all(event[part] is not None for part in PARTS[1:])


def test_every_gpu_that_joins_has_its_event(tmp_path: Path) -> None:
    now = time.monotonic()
    recovery = recovery_of(now - 1.0, joined=("0/1", "1/1"), published_s=now - 0.5)
    events = told(tmp_path, recovery, [])
    assert [(event["kind"], event["gpu"]) for event in events] == [
        ("joined", "0/1"),
        ("joined", "1/1"),
    ]
    assert all(part in event for event in events for part in PARTS)


def test_changes_before_one_commit_are_one_recovery(tmp_path: Path) -> None:
    now = time.monotonic()
    recovery = recovery_of(now - 3.0, joined=("1/3",), published_s=now - 2.5)
    recovery.add_loss("0/1", now - 3.5, now - 3.0)
    recovery.add_loss("1/2", None, now - 2.75)
    recovery.add_loss("0/2", now - 2.25, now - 2.0)
    recovery.joined += ("0/4",)
    recovery.published_s = now - 1.0
    events = told(tmp_path, recovery, [])
    assert [(event["kind"], event["gpu"]) for event in events] == [
        ("recovery", "0/1"),
        ("joined", "1/3"),
        ("joined", "0/4"),
    ]
    assert "0/1, 1/2, 0/2 failed" in events[0]["reason"]
    assert events[0]["detect_s"] == pytest.approx(0.5)
    assert events[0]["regroup_s"] == pytest.approx(2.0)
    assert events[0]["total_s"] == pytest.approx(3.5, abs=0.2)


def test_a_kill_after_another_change_does_not_turn_back_the_clock(tmp_path: Path) -> None:
    """A GPU joins, and before the first commit another is killed on order."""
    now = time.monotonic()
    recovery = recovery_of(now - 3.0, joined=("1/3",))
    recovery.add_loss("0/1", now - 2.0, now - 1.75)
    recovery.published_s = now - 1.0
    for event in told(tmp_path, recovery, []):
        assert event["detect_s"] == pytest.approx(0.25)
        assert event["total_s"] >= 3.0


def test_parts_are_never_negative(tmp_path: Path) -> None:
    """What the ranks measured may be more than the launcher saw pass."""
    now = time.monotonic()
    recovery = recovery_of(now - 0.1, published_s=now)
    recovery.add_loss("0/1", None, now - 0.1)
    (event,) = told(tmp_path, recovery, [Settled("0/0", 5.0, 5.0, 0)])
    assert event["redo_s"] == 0.0
