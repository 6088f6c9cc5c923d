"""One rank writes beside the training: nobody waits for the disk, every problem is told once."""

from __future__ import annotations

import threading
import time
import weakref
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist
from standins.shards import SHARED_KV, cut, plan_of, some_whole

from nonuniform.placement.placement import Placement, ReplicaPlacement
from nonuniform.protocol.record import Record
from nonuniform.reshard.save_plan import plan_save
from nonuniform.reshard.transfer import holders
from nonuniform.train.alarm import Alarm, GenerationDead
from nonuniform.train.checkpoint.part import Snapshot
from nonuniform.train.keeper import Keeper, half_of
from nonuniform.train.membership import Board
from nonuniform.train.seal import SealedStore

PLAN = plan_of(SHARED_KV, 2)
WHOLE = some_whole(PLAN, seed=3)
STEP = 4
PATIENCE_S = 10.0
RECORD = Record(
    generation=1,
    step=STEP,
    validated=0,
    placement=Placement((ReplicaPlacement(0, ("0/0", "0/1"), 2),)),
    holdings={"0/0": (2, 0), "0/1": (2, 1)},
    home={},
    digest="",
)


class Slow(Keeper):
    """Its disk answers when it is allowed to."""

    def __init__(self, folder: Path, board: Board) -> None:
        super().__init__("0/0", PLAN, folder, board, self._connected)
        self.board = board
        self.answers = threading.Event()
        self.begun = threading.Event()
        self.refused = 0

    def _connected(self) -> Board:
        if self.refused:
            self.refused -= 1
            raise RuntimeError("too many open files")
        return self.board

    def write(self, snapshot: Snapshot, generation: int) -> dict[str, Any]:
        self.begun.set()
        assert self.answers.wait(PATIENCE_S)
        return super().write(snapshot, generation)


@pytest.fixture
def keeper(tmp_path: Path) -> Slow:
    store: Any = dist.HashStore()
    return Slow(tmp_path, Board(SealedStore(store, "only the job knows")))


def shard(step: int = STEP) -> Any:
    return cut(PLAN, WHOLE, 2, 0, step)


def told(keeper: Slow, step: int = STEP) -> Any:
    end_s = time.monotonic() + PATIENCE_S
    while (said := keeper.board.take_part(1, step, "0/0")) is None:
        assert time.monotonic() < end_s, "nothing was told"
        time.sleep(0.002)
    return said


def test_to_begin_is_not_to_wait(keeper: Slow) -> None:
    state = shard()
    keeper.begin(RECORD, state)
    assert keeper.begun.wait(PATIENCE_S)
    assert keeper.board.take_part(1, STEP, "0/0") is None
    for slots in state.matrices.values():  # the next step is taken meanwhile
        for slot in slots:
            slot.zero_()
    keeper.answers.set()
    assert told(keeper)["part"]["files"]


def test_who_is_still_writing_tells_it_and_writes_the_next_one(keeper: Slow) -> None:
    keeper.begin(RECORD, shard())
    keeper.begin(RECORD, shard(STEP + 1))
    assert told(keeper, STEP + 1) == {"problem": "GPU 0/0 was still writing the one before"}
    keeper.answers.set()
    assert "part" in told(keeper)
    keeper.finish(PATIENCE_S)
    keeper.begin(RECORD, shard(STEP + 2))
    assert "part" in told(keeper, STEP + 2)


def test_one_that_finds_no_connection_writes_the_next_one(keeper: Slow) -> None:
    keeper.answers.set()
    keeper.refused = 1
    keeper.begin(RECORD, shard())
    keeper.finish(PATIENCE_S)
    keeper.begin(RECORD, shard(STEP + 1))
    assert "part" in told(keeper, STEP + 1)


def test_a_save_that_everybody_waits_for_is_given_up_when_the_alarm_rings(keeper: Slow) -> None:
    alarm = Alarm(PATIENCE_S)
    threading.Timer(0.05, alarm.ring, ["0/1 failed"]).start()
    with pytest.raises(GenerationDead, match="0/1 failed"):
        keeper.save(RECORD, shard(), alarm)
    keeper.answers.set()
    keeper.save(RECORD, shard(), Alarm(PATIENCE_S))


@pytest.mark.parametrize("replicas", range(1, 6))
def test_what_is_rescued_is_there_twice_whoever_is_lost_meanwhile(replicas: int) -> None:
    degrees = [2, 1, 2, 2, 1][:replicas]
    entries = tuple(
        ReplicaPlacement(number, tuple(f"{number}/{index}" for index in range(degree)), 1)
        for number, degree in enumerate(degrees)
    )
    placement = Placement(entries)
    gpus = [gpu for entry in entries for gpu in entry.gpus]
    written = {
        gpu: plan_save(PLAN, holders(half_of(placement, gpu))).units.get(gpu, ()) for gpu in gpus
    }
    times = Counter(unit for units in written.values() for unit in units)
    every = set(plan_save(PLAN, holders({"0/0": (1, 0)})).units["0/0"])
    assert set(times) == every
    assert set(times.values()) == {min(2, replicas)}
    for lost in gpus if replicas > 1 else []:
        assert {unit for gpu in gpus if gpu != lost for unit in written[gpu]} == every


def test_what_is_written_is_not_kept_until_the_next_one(keeper: Slow) -> None:
    """It is as large as the shard."""
    seen: list[weakref.ref[Snapshot]] = []
    write = keeper.write

    def watched(snapshot: Snapshot, generation: int) -> dict[str, Any]:
        seen.append(weakref.ref(snapshot))
        return write(snapshot, generation)

    keeper.write = watched  # type: ignore[method-assign]
    keeper.answers.set()
    keeper.begin(RECORD, shard())
    told(keeper)
    end_s = time.monotonic() + PATIENCE_S
    while seen[0]() is not None and time.monotonic() < end_s:
        time.sleep(0.002)
    assert seen[0]() is None
