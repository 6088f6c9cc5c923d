"""The roster: which life of which GPU runs, who is given up, when a blow was dealt."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nonuniform.config import BatchConfig, JobConfig, ModelConfig, ParallelConfig, RunConfig
from nonuniform.train.data import Corpus
from nonuniform.train.roster import JobSetup, Roster, how_it_ended
from nonuniform.train.spawn import ForkedProcess
from nonuniform.train.worker import WorkerOrders, worker_main

JOB = JobConfig(
    ModelConfig(layers=1, hidden=8, heads=2),
    ParallelConfig(2, 2),
    BatchConfig(4, 4),
    RunConfig(steps=3, address="127.0.0.1"),
)
CORPUS = Corpus("/nowhere", (("text", 100),))


class Handle:
    def __init__(self) -> None:
        self.exitcode: int | None = None
        self.joined = 0

    def kill(self) -> None:
        self.exitcode = -9

    def join(self, patience_s: float) -> None:
        self.joined += 1


class Spawner:
    """Starts nothing and remembers what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[Path, Callable[..., None], WorkerOrders]] = []

    def start(
        self, gpu: str, life: int, log: Path, target: Callable[..., None], args: Any
    ) -> ForkedProcess:
        self.asked.append((log, target, args))
        return ForkedProcess(gpu, life, 100 + len(self.asked), Handle())


@pytest.fixture
def spawner() -> Spawner:
    return Spawner()


@pytest.fixture
def roster(spawner: Spawner, tmp_path: Path) -> Roster:
    nothing: Any = SimpleNamespace()
    setup = JobSetup(
        job=JOB,
        plan=nothing,
        corpus=CORPUS,
        windows=nothing,
        port=4321,
        secret="secret",
        logs=tmp_path / "workers",
        device="cpu",
        checkpoints=tmp_path / "checkpoints",
    )
    return Roster(setup, spawner)  # type: ignore[arg-type]


def test_a_worker_is_told_who_it_is_and_where_the_board_is(
    roster: Roster, spawner: Spawner, tmp_path: Path
) -> None:
    process = roster.start("1/0", after=4)
    assert (process.gpu, process.life) == ("1/0", 1)
    (log, target, orders), *rest = spawner.asked
    assert rest == []
    assert log == tmp_path / "workers" / "gpu-1-0.log"
    assert target is worker_main
    assert orders == WorkerOrders(
        gpu="1/0",
        life=1,
        job=JOB,
        corpus=CORPUS,
        address="127.0.0.1",
        port=4321,
        secret="secret",
        after=4,
        device="cpu",
        folder=tmp_path,
        checkpoints=tmp_path / "checkpoints",
    )


def test_each_start_of_a_gpu_is_another_life(roster: Roster, spawner: Spawner) -> None:
    first = roster.start("0/1", after=0)
    roster.start("0/0", after=0)
    assert set(roster.living) == {"0/0", "0/1"}
    before = time.monotonic()
    roster.remove(first)
    assert set(roster.living) == {"0/0"}
    assert roster.last_pid("0/1") == first.pid
    second = roster.start("0/1", after=3)
    assert second.life == spawner.asked[-1][2].life == roster.lives["0/1"] == 2
    assert roster.lives["0/0"] == 1
    assert roster.is_current(second)
    assert not roster.is_current(first)
    assert before <= roster.started_s["0/1"] <= time.monotonic()
    assert roster.last_pid("0/1") == second.pid
    roster.remove(second)
    assert roster.start("0/1", after=5).life == 3


def test_one_that_is_given_up_is_killed_and_forgotten_and_waited_for_at_the_end(
    roster: Roster,
) -> None:
    hung, other = (roster.start(gpu, after=0) for gpu in ("0/1", "0/0"))
    roster.fence("0/1")
    assert hung.exit_status() == -9
    assert set(roster.living) == {"0/0"}
    assert not roster.is_current(hung)
    assert roster.take_killed_s("0/1") is None, "nobody has ordered it"
    again = roster.start("0/1", after=2)
    assert roster.is_current(again)
    roster.end(1.0)
    assert [process.handle.joined for process in (hung, other, again)] == [1, 1, 1]


def test_a_life_is_told_in_words(roster: Roster) -> None:
    process = roster.start("0/1", after=0)
    for status, words in (
        (3, "exit status 3"),
        (-9, "SIGKILL"),
        (-11, "SIGSEGV"),
        (-40, "signal 40"),
    ):
        process.handle.exitcode = status
        assert how_it_ended(process) == f"process {process.pid} ended ({words})"


def test_the_moment_of_an_ordered_blow_is_told_once(roster: Roster) -> None:
    process = roster.start("0/1", after=0)
    before = time.monotonic()
    roster.kill("0/1")
    assert process.exit_status() == -9
    assert "SIGKILL" in how_it_ended(process)
    moment = roster.take_killed_s("0/1")
    assert moment is not None
    assert before <= moment <= time.monotonic()
    assert roster.take_killed_s("0/1") is None
    assert roster.take_killed_s("0/0") is None


def test_at_the_end_all_are_killed_and_waited_for(roster: Roster) -> None:
    processes = [roster.start(gpu, after=0) for gpu in ("0/0", "0/1", "1/0")]
    processes[1].handle.exitcode = 0
    roster.end(1.0)
    assert [process.exit_status() for process in processes] == [-9, 0, -9]
    assert [process.handle.joined for process in processes] == [1, 1, 1]
