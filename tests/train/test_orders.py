"""Orders from the script and from health.jsonl: each carried out once, at its time."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nonuniform.cluster.health import ClusterState, HealthEvent
from nonuniform.cluster.topology import Gpu
from nonuniform.config import ScheduledEvent
from nonuniform.protocol.events import Drained, Event, Returned
from nonuniform.protocol.record import Position
from nonuniform.protocol.state import Phase
from nonuniform.train import orders as orders_module
from nonuniform.train.orders import HealthFile, Orders

CLUSTER = ClusterState(2, 3, spares=1)


def row(**keys: Any) -> bytes:
    return json.dumps(keys).encode() + b"\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "health.jsonl"


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


# --- the file


def test_a_file_that_is_not_there_says_nothing_and_may_come_later(path: Path) -> None:
    health = HealthFile(path, CLUSTER)
    assert list(health.read()) == []
    append(path, row(kind="drained", gpu="0/2", reason="XID 79"))
    assert list(health.read()) == [HealthEvent("drained", Gpu(0, 2), "XID 79")]
    assert list(health.read()) == []


def test_a_file_that_cannot_be_read_ends_no_run(path: Path) -> None:
    path.mkdir()
    assert list(HealthFile(path, CLUSTER).read()) == []


def test_what_was_there_at_the_start_is_old(path: Path) -> None:
    append(path, row(kind="failed", gpu="0/1"))
    health = HealthFile(path, CLUSTER)
    assert list(health.read()) == []
    append(path, row(kind="returned", gpu="2/0"))
    assert list(health.read()) == [HealthEvent("returned", Gpu(2, 0))]


def test_a_file_that_was_begun_anew_is_read_from_its_beginning(path: Path) -> None:
    append(path, row(kind="failed", gpu="0/1", reason="long ago"))
    health = HealthFile(path, CLUSTER)
    append(path, b'{"half')
    assert list(health.read()) == []
    path.write_bytes(row(kind="returned", gpu="0/1"))
    assert list(health.read()) == [HealthEvent("returned", Gpu(0, 1))]


def test_half_a_line_waits_for_its_other_half(path: Path) -> None:
    health = HealthFile(path, CLUSTER)
    line = row(kind="drained", gpu="1/0", reason="ü")
    for byte in line[:-1]:
        append(path, bytes([byte]))
        assert list(health.read()) == []
    append(path, line[-1:])
    assert list(health.read()) == [HealthEvent("drained", Gpu(1, 0), "ü")]


@pytest.mark.parametrize(
    "line",
    [
        b"drain 0/1",
        b"[]",
        b"null",
        b'"failed"',
        b"{}",
        b'{"kind": "failed"}',
        b'{"gpu": "0/1"}',
        b'{"kind": "broken", "gpu": "0/1"}',
        b'{"kind": "failed", "gpu": "0"}',
        b'{"kind": "failed", "gpu": 1}',
        b'{"kind": "failed", "gpu": "2/1"}',
        b'{"kind": "failed", "gpu": "0/3"}',
        b'{"kind": ["failed"], "gpu": "0/1"}',
        b"\xff\xfe",
        b"[" * 3000,
    ],
)
def test_a_line_that_is_none_is_told_and_the_next_one_is_read(path: Path, line: bytes) -> None:
    health = HealthFile(path, CLUSTER)
    append(path, line + b"\n" + b"\n" + row(kind="failed", gpu="0/1"))
    complaint, event = list(health.read())
    assert isinstance(complaint, str)
    assert complaint.startswith("health.jsonl: ")
    assert line[:5].decode(errors="replace") in complaint
    assert "\n" not in complaint
    assert len(complaint) < 500
    assert event == HealthEvent("failed", Gpu(0, 1))


@given(cuts=st.lists(st.integers(0, 200), max_size=12))
def test_however_it_is_written_each_line_is_read_once(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[int]
) -> None:
    path = tmp_path_factory.mktemp("health") / "health.jsonl"
    health = HealthFile(path, CLUSTER)
    gpus = ["0/0", "0/1", "0/2", "1/0", "2/0"]
    data = b"".join(row(kind="failed", gpu=gpu) for gpu in gpus)
    bounds = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    read: list[HealthEvent | str] = []
    for start, stop in itertools.pairwise(bounds):
        append(path, data[start:stop])
        read += health.read()
    assert [str(event.gpu) for event in read if isinstance(event, HealthEvent)] == gpus
    assert len(read) == len(gpus)


# --- when they are due


class World:
    """What orders see of a run, and what they do to it."""

    def __init__(self, path: Path) -> None:
        self.living = {"0/0", "0/1", "1/0"}
        self.killed: list[str] = []
        self.told: list[tuple[str, str, str | None]] = []
        self.phase = Phase.RUNNING
        self.settled = True
        self.step = 0
        self._path = path

    def orders(self, *schedule: ScheduledEvent) -> Orders:
        roster: Any = SimpleNamespace(living=self.living, kill=self.killed.append)
        chronicle: Any = SimpleNamespace(event=self._tell)
        return Orders(schedule, HealthFile(self._path, CLUSTER), roster, chronicle)

    def _tell(self, kind: str, reason: str, gpu: str | None = None) -> None:
        self.told.append((kind, reason, gpu))

    def due(self, orders: Orders, step: int) -> list[Event]:
        state: Any = SimpleNamespace(
            position=Position(step, 0), phase=self.phase, all_settled=self.settled
        )
        return list(orders.due(state))


@pytest.fixture
def world(path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(orders_module, "LOOK_S", 0.0)
    return World(path)


def test_a_blow_is_dealt_while_its_step_runs_and_once(world: World) -> None:
    orders = world.orders(ScheduledEvent("failed", "0/1", 3))
    for step in (0, 1):
        assert world.due(orders, step) == []
    assert world.killed == []
    assert world.due(orders, 2) == []
    assert world.killed == ["0/1"]
    assert world.due(orders, 2) == world.due(orders, 3) == []
    assert world.killed == ["0/1"]


def hearing(world: World) -> None:
    world.phase = Phase.HEARING


def settling(world: World) -> None:
    world.settled = False


@pytest.mark.parametrize("busy", [hearing, settling])
@pytest.mark.parametrize("kind", ["failed", "drained"])
def test_no_blow_is_dealt_while_a_generation_forms(
    world: World, busy: Callable[[World], None], kind: str
) -> None:
    orders = world.orders(ScheduledEvent(kind, "0/1", 3))  # type: ignore[arg-type]
    busy(world)
    assert world.due(orders, 5) == []
    assert world.killed == []
    world.phase, world.settled = Phase.RUNNING, True
    told = world.due(orders, 5)
    assert told == ([] if kind == "failed" else [Drained("0/1", "drained as ordered")])
    assert world.killed == (["0/1"] if kind == "failed" else [])


def test_a_blow_for_one_that_is_dead_already_is_told(world: World) -> None:
    orders = world.orders(ScheduledEvent("failed", "1/1", 1), ScheduledEvent("drained", "1/2", 1))
    assert world.due(orders, 0) == []
    assert world.told == [
        ("order", "nothing to do: it was failed", "1/1"),
        ("order", "nothing to do: it was drained", "1/2"),
    ]
    assert world.due(orders, 1) == []
    assert len(world.told) == 2


def test_one_that_still_lives_returns_once_it_is_gone(world: World) -> None:
    """The blow of an earlier step may still be on its way."""
    orders = world.orders(ScheduledEvent("returned", "0/1", 3))
    assert world.due(orders, 5) == []
    world.living.remove("0/1")
    assert world.due(orders, 5) == [Returned("0/1")]
    assert world.due(orders, 6) == []


def test_what_the_file_says_becomes_what_it_means(world: World, path: Path) -> None:
    orders = world.orders()
    append(path, row(kind="returned", gpu="1/1", reason="repaired"))
    append(path, row(kind="drained", gpu="0/0", reason="XID 79"))
    append(path, row(kind="drained", gpu="0/1"))
    append(path, row(kind="failed", gpu="1/0") + row(kind="failed", gpu="1/2"))
    append(path, b"what\n")
    assert world.due(orders, 0) == [
        Returned("1/1", "repaired"),
        Drained("0/0", "XID 79"),
        Drained("0/1", "drained as told"),
        Drained("1/2", "failed as told"),
    ]
    assert world.killed == ["1/0"], "1/2 does not live, and shall not come back"
    ((kind, reason, _),) = world.told
    assert kind == "order"
    assert reason.startswith("not understood: health.jsonl: what: ")
    assert world.due(orders, 0) == []


def test_one_that_is_said_to_have_failed_is_killed_or_kept_from_coming_back(
    world: World, path: Path
) -> None:
    orders = world.orders()
    append(path, row(kind="failed", gpu="0/1", reason="XID 48"))
    append(path, row(kind="failed", gpu="2/0", reason="XID 79"))
    assert world.due(orders, 0) == [Drained("2/0", "XID 79")]
    assert world.killed == ["0/1"]
    assert world.told == []


def test_the_file_is_not_looked_at_all_the_time(
    world: World, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(orders_module, "LOOK_S", 60.0)
    orders = world.orders()
    world.due(orders, 0)
    append(path, row(kind="drained", gpu="0/0"))
    assert world.due(orders, 0) == []
