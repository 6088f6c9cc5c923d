"""What a run tells: the same rows in the files and to the observer, with the agreed keys."""

from __future__ import annotations

import errno
import json
import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nonuniform.placement.placement import Placement, ReplicaPlacement
from nonuniform.protocol.commit import Vote
from nonuniform.protocol.record import LoggedStep, Position, Record
from nonuniform.train.chronicle import Chronicle
from nonuniform.train.journal import RunFolder

PLACEMENT = Placement(
    (ReplicaPlacement(0, ("0/0", "0/1"), 7), ReplicaPlacement(2, ("2/1",), 5)), ("1/0",)
)
RECORD = Record(3, PLACEMENT, 6, 0, "digest", {}, {})
STEP_KEYS = ["step", "loss", "tokens", "samples", "grad_norm", "generation"]
STEP_KEYS += ["degrees", "batch_shares", "time_s"]
EVENT_KEYS = ["time_s", "kind", "gpu", "replica", "step", "generation", "reason"]


class Watcher:
    """An observer that keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, dict[str, Any]]] = []
        self.ticks = 0

    def on_start(self, info: dict[str, Any]) -> None:
        self.told.append(("start", info))

    def on_step(self, record: dict[str, Any]) -> None:
        self.told.append(("step", record))

    def on_event(self, record: dict[str, Any]) -> None:
        self.told.append(("event", record))

    def on_end(self, summary: dict[str, Any]) -> None:
        self.told.append(("end", summary))

    def tick(self) -> None:
        self.ticks += 1


def votes_of(**changes: Any) -> dict[str, Vote]:
    base = Vote("", 3, "train", 1, "digest", 0.0, 0, 0.5, True)
    return {
        gpu: replace(base, **{"gpu": gpu, "loss_sum": 72.0, "tokens": 12, **changes})
        for gpu in ("0/0", "0/1", "2/1")
    }


@pytest.fixture
def watcher() -> Watcher:
    return Watcher()


@pytest.fixture
def chronicle(tmp_path: Path, watcher: Watcher) -> Chronicle:
    return Chronicle(RunFolder.create(tmp_path), watcher, 3)


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_step_has_the_agreed_keys_in_the_file_and_for_the_observer(
    tmp_path: Path, chronicle: Chronicle, watcher: Watcher
) -> None:
    chronicle.step(1, RECORD, votes_of(), 12, None)
    chronicle.step(2, RECORD, votes_of(step=2), 12, tuple(range(12)))
    first, second = rows(tmp_path / "steps.jsonl")
    assert list(first) == STEP_KEYS
    assert list(second) == [*STEP_KEYS, "sample_ids"]
    assert first["loss"] == 72.0 / 12
    assert (first["tokens"], first["samples"], first["grad_norm"]) == (12, 12, 0.5)
    assert (first["generation"], first["degrees"], first["batch_shares"]) == (
        3,
        [2, 0, 1],
        [7, 0, 5],
    )
    assert 0 <= first["time_s"] <= second["time_s"]
    told = [json.loads(json.dumps(row)) for kind, row in watcher.told if kind == "step"]
    assert told == [first, second]
    assert chronicle.steps == 2


@pytest.mark.parametrize("norm", [math.nan, math.inf])
def test_a_step_that_is_not_finite_is_logged_with_an_event(
    tmp_path: Path, chronicle: Chronicle, norm: float
) -> None:
    chronicle.step(1, RECORD, votes_of(grad_norm=norm, finite=False), 12, None)
    (step,), (event,) = rows(tmp_path / "steps.jsonl"), rows(tmp_path / "events.jsonl")
    assert step["grad_norm"] is None
    assert list(event) == EVENT_KEYS
    assert (event["kind"], event["step"], event["generation"]) == ("skip", 1, 3)
    assert str(norm) in event["reason"]


def test_a_finite_step_is_no_event(tmp_path: Path, chronicle: Chronicle) -> None:
    chronicle.step(1, RECORD, votes_of(), 12, None)
    assert rows(tmp_path / "events.jsonl") == []


def test_an_event_names_the_replica_of_its_gpu(
    tmp_path: Path, chronicle: Chronicle, watcher: Watcher
) -> None:
    chronicle.event("failed", "SIGKILL", gpu="12/3", step=4, generation=2, extra={"pid": 9})
    chronicle.event("finished", "all done")
    failed, finished = rows(tmp_path / "events.jsonl")
    assert list(failed) == [*EVENT_KEYS, "pid"]
    assert (failed["gpu"], failed["replica"], failed["step"], failed["pid"]) == ("12/3", 12, 4, 9)
    assert list(finished) == EVENT_KEYS
    assert finished["gpu"] is finished["replica"] is finished["generation"] is None
    assert [row for kind, row in watcher.told if kind == "event"] == [failed, finished]


def test_validation_is_an_event_with_its_loss(tmp_path: Path, chronicle: Chronicle) -> None:
    chronicle.validation(6, RECORD, votes_of(kind="validate", step=6, grad_norm=0.0))
    (event,) = rows(tmp_path / "events.jsonl")
    assert (event["kind"], event["step"], event["loss"]) == ("validation", 6, 6.0)
    assert event["tokens"] == 12
    assert chronicle.validation_loss == 6.0
    assert not (tmp_path / "steps.jsonl").read_text()


def test_the_summary_closes_the_run(tmp_path: Path, chronicle: Chronicle, watcher: Watcher) -> None:
    chronicle.start({"replicas": 2})
    chronicle.tick()
    chronicle.step(1, RECORD, votes_of(), 12, None)
    chronicle.step(2, RECORD, votes_of(step=2, loss_sum=6.0), 12, None)
    chronicle.event("failed", "SIGKILL", gpu="0/1")
    chronicle.event("failed", "SIGKILL", gpu="2/1")
    chronicle.event("joined", "GPU 0/1 joined", gpu="0/1")
    chronicle.event("generation", "all GPUs healthy", generation=1)
    chronicle.close("done", "all 2 steps committed")
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["time_s"] >= 0
    counted = {key: summary[key] for key in ("steps", "failures", "returns", "generations")}
    assert counted == {"steps": 2, "failures": 2, "returns": 1, "generations": 1}
    assert (summary["status"], summary["reason"]) == ("done", "all 2 steps committed")
    assert (summary["loss_first"], summary["loss_last"]) == (6.0, 0.5)
    assert summary["validation_loss"] is None
    assert watcher.told[0] == ("start", {"replicas": 2})
    assert watcher.told[-1] == ("end", summary)
    assert watcher.ticks == 1


def test_a_run_that_failed_before_its_first_step_has_a_summary_too(
    tmp_path: Path, chronicle: Chronicle
) -> None:
    chronicle.close("failed", "no replica is left")
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert (summary["status"], summary["steps"]) == ("failed", 0)
    assert summary["loss_first"] is summary["loss_last"] is None


def numbers(path: Path) -> list[int]:
    return [row["step"] for row in rows(path / "steps.jsonl")]


def test_after_a_fallback_later_steps_are_told_again_and_once(
    tmp_path: Path, chronicle: Chronicle, watcher: Watcher
) -> None:
    for step in (1, 2, 3, 4):
        chronicle.step(step, RECORD, votes_of(step=step), 12, None)
    chronicle.rewind(Position(2, 0), "going on from checkpoint step-00000002", 2)
    assert numbers(tmp_path) == [1, 2]
    assert chronicle.steps == 2
    (event,) = rows(tmp_path / "events.jsonl")
    assert (event["kind"], event["step"], event["steps_lost"]) == ("fallback", 2, 2)
    for step in (3, 4):
        chronicle.step(step, RECORD, votes_of(step=step, loss_sum=24.0), 12, None)
    assert [row["loss"] for row in rows(tmp_path / "steps.jsonl")] == [6.0, 6.0, 2.0, 2.0]
    chronicle.close("done", "")
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert (summary["steps"], summary["loss_first"], summary["loss_last"]) == (4, 6.0, 2.0)


def test_a_fallback_to_the_beginning_leaves_no_step(tmp_path: Path, chronicle: Chronicle) -> None:
    chronicle.step(1, RECORD, votes_of(), 12, None)
    chronicle.rewind(Position(0, 0), "from the beginning", 1)
    assert numbers(tmp_path) == []
    chronicle.step(1, RECORD, votes_of(), 12, None)
    assert numbers(tmp_path) == [1]


def test_a_step_that_ranks_remember_is_told_like_any_other(
    tmp_path: Path, chronicle: Chronicle, watcher: Watcher
) -> None:
    known = LoggedStep(votes_of()["2/1"], degrees={0: 2, 2: 1}, shares={0: 7, 2: 5})
    chronicle.remembered_step(known, 12, None)
    chronicle.step(2, RECORD, votes_of(step=2), 12, None)
    first, second = rows(tmp_path / "steps.jsonl")
    assert first.pop("time_s") <= second.pop("time_s")
    assert first == {**second, "step": 1}
    assert [kind for kind, _ in watcher.told] == ["step", "step"]


def test_steps_that_nobody_remembers_are_a_gap_that_is_told(
    tmp_path: Path, chronicle: Chronicle
) -> None:
    chronicle.step(1, RECORD, votes_of(), 12, None)
    chronicle.skip_to(4)
    (event,) = rows(tmp_path / "events.jsonl")
    assert (event["kind"], event["reason"]) == ("log_gap", "the log lacks the steps 2 to 4")
    chronicle.step(5, RECORD, votes_of(step=5), 12, None)
    assert numbers(tmp_path) == [1, 5]
    assert chronicle.steps == 5


def test_a_disk_that_is_full_is_told_once_and_again_when_it_is_not(
    tmp_path: Path, chronicle: Chronicle, watcher: Watcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write

    def full(file: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    chronicle.step(1, RECORD, votes_of(), 12, None)
    monkeypatch.setattr(os, "write", full)
    for step in (2, 3, 4):
        chronicle.step(step, RECORD, votes_of(step=step), 12, None)
    monkeypatch.setattr(os, "write", write)
    chronicle.step(5, RECORD, votes_of(step=5), 12, None)
    chronicle.step(6, RECORD, votes_of(step=6), 12, None)
    assert numbers(tmp_path) == [1, 2, 3, 4, 5, 6]
    trouble, over = rows(tmp_path / "events.jsonl")
    reason = "the log is kept in memory: No space left on device"
    assert (trouble["kind"], trouble["step"], trouble["reason"]) == ("disk", 2, reason)
    assert (over["kind"], over["step"]) == ("disk", 5)
    assert over["reason"] == "the log is written again"
    assert [row for kind, row in watcher.told if kind == "event"] == [trouble, over]


def test_a_run_that_goes_on_counts_its_time_on(tmp_path: Path, watcher: Watcher) -> None:
    before = RunFolder.create(tmp_path)
    before.log_event({"time_s": 1000.0, "kind": "ended"})
    chronicle = Chronicle(RunFolder.resume(tmp_path, 0), watcher, 3)
    chronicle.event("resumed", "no checkpoint: from the beginning")
    assert 1000.0 <= rows(tmp_path / "events.jsonl")[-1]["time_s"] < 1100.0
