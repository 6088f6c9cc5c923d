"""The launcher meets what is not a failure of a GPU: with threads for workers."""

from __future__ import annotations

import contextlib
import threading
import time

import pytest
from standins.ghost_runs import Run, die, slowly
from standins.workers import Ghost

from nonuniform.config import ScheduledEvent
from nonuniform.train.launcher import Launcher
from nonuniform.train.membership import ABANDONED, Board
from nonuniform.train.roster import Roster
from nonuniform.train.spawn import ForkedProcess


def fail_after_two_steps(launcher: Launcher) -> None:
    def tick() -> None:
        if launcher.state.position.step == 2:
            raise MemoryError("no memory is left")

    launcher.crew.chronicle.tick = tick  # type: ignore[method-assign]


def test_a_process_that_cannot_be_started_is_one_gpu_that_does_not_come_back(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = Roster.start

    def refuse(roster: Roster, gpu: str, after: int) -> ForkedProcess:
        if roster.lives[gpu]:
            roster.lives[gpu] += 1
            raise OSError("no process is to be had")
        return start(roster, gpu, after)

    monkeypatch.setattr(Roster, "start", refuse)
    failing, returning = ScheduledEvent("failed", "0/1", 2), ScheduledEvent("returned", "0/1", 3)
    run(slowly(0.02), (failing, returning))
    run.check_steps()
    first, second = run.events("failed")
    assert (first["gpu"], second["gpu"]) == ("0/1", "0/1")
    said = "its process could not be started: OSError: no process is to be had"
    assert second["reason"] == said
    assert run.generations()[-1] == 2


def test_a_fault_of_the_launcher_is_told_to_all(run: Run) -> None:
    """They write what they hold and leave; it does not wait for those who do not."""

    run.before = fail_after_two_steps
    told = threading.Event()

    def listen(ghost: Ghost, place: str) -> None:
        if place == "train 3":
            with contextlib.suppress(Exception):
                if ghost.board.wait_end(1, 5.0) == ABANDONED:
                    told.set()
            die(ghost)

    with pytest.raises(MemoryError):
        run(listen)
    assert told.is_set()
    assert run.seconds < 10.0


def test_a_fault_of_the_store_leaves_the_ranks_their_time(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They notice by themselves that nobody answers; whoever is to tell them cannot."""

    def broken(board: Board, generation: int) -> None:
        raise RuntimeError("broken pipe")

    def leave_later(ghost: Ghost, place: str) -> None:
        if place == "train 3":
            time.sleep(0.5)
            die(ghost)

    monkeypatch.setattr(Board, "abandon", broken)
    run.before = fail_after_two_steps
    with pytest.raises(MemoryError):
        run(leave_later)
    assert run.seconds >= 0.5
    assert run.left == []
