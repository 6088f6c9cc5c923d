"""The watch: rings each generation's alarm, and ends the process when the launcher is gone."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch.distributed as dist

from nonuniform.train.alarm import Alarm, GenerationDead
from nonuniform.train.membership import Board, connect_store
from nonuniform.train.spawn import ForkedProcess, Spawner, end_all
from nonuniform.train.watch import Watch

SOON_S = 10.0
HOST = """
import time
from nonuniform.train.membership import host_store
store, port = host_store("127.0.0.1", 0)
print(port, flush=True)
time.sleep(60)
"""


def wait_ringing(alarm: Alarm) -> None:
    with pytest.raises(GenerationDead):
        alarm.sleep_until(lambda event: None)


@pytest.fixture
def board() -> Board:
    return Board(dist.HashStore())


@pytest.fixture
def watch(board: Board) -> Watch:
    return Watch(Board(board.store), 1, SOON_S, lambda: None)


def test_the_alarm_of_a_generation_rings_when_it_ends(board: Board, watch: Watch) -> None:
    for generation in range(1, 6):
        alarm = watch.alarm(generation)
        assert not alarm.ringing
        assert watch.alarm(generation) is alarm
        board.end_generation(generation, f"reason {generation}")
        with pytest.raises(GenerationDead, match=f"^reason {generation}$"):
            alarm.sleep_until(lambda event: None)


def test_generations_that_ended_before_one_looked_are_known_to_be_over(
    board: Board, watch: Watch
) -> None:
    for generation in (1, 2, 3):
        board.end_generation(generation, f"reason {generation}")
    wait_ringing(watch.alarm(3))
    assert not watch.alarm(4).ringing


def test_one_that_starts_late_begins_with_the_generation_it_is_told(board: Board) -> None:
    for generation in (1, 2, 3):
        board.end_generation(generation, f"reason {generation}")
    watch = Watch(Board(board.store), 4, SOON_S, lambda: None)
    alarm = watch.alarm(4)
    assert not alarm.ringing
    board.end_generation(4, "reason 4")
    wait_ringing(alarm)


def test_old_alarms_do_not_pile_up(board: Board, watch: Watch) -> None:
    for generation in range(1, 20):
        alarm = watch.alarm(generation)
        board.end_generation(generation, "over")
        wait_ringing(alarm)
    assert len(watch._alarms) <= 3


@pytest.fixture
def host(tmp_path: Path) -> Iterator[tuple[ForkedProcess, int]]:
    """A launcher, as far as a watch can see it: a process with a store."""
    log = tmp_path / "host.log"
    process = Spawner(["nonuniform.train.membership"]).start("0/0", 1, log, exec, HOST)
    limit = time.monotonic() + 30.0
    while not (log.exists() and log.read_text().endswith("\n")) and time.monotonic() < limit:
        time.sleep(0.01)
    yield process, int(log.read_text())
    end_all([process], SOON_S)


def test_when_the_store_goes_away_the_process_is_an_orphan(
    host: tuple[ForkedProcess, int], capfd: pytest.CaptureFixture[str]
) -> None:
    process, port = host
    orphaned = threading.Event()
    watch = Watch(Board(connect_store("127.0.0.1", port, SOON_S)), 1, SOON_S, orphaned.set)
    board = Board(connect_store("127.0.0.1", port, SOON_S))
    board.end_generation(1, "over")
    wait_ringing(watch.alarm(1))
    assert not orphaned.wait(0.05)
    process.kill()
    assert orphaned.wait(SOON_S)
    assert not watch.alarm(2).ringing
