"""The threads of a worker: one rings each generation's alarm, one gives signs of life; both notice
when the launcher is gone."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

from nonuniform.train.alarm import Alarm, GenerationDead
from nonuniform.train.membership import Abandoned, Board, connect_board
from nonuniform.train.progress import Progress
from nonuniform.train.seal import SealedStore
from nonuniform.train.spawn import ForkedProcess, Spawner, end_all
from nonuniform.train.watch import Pulse, Vital, Watch, beat_interval_s

SOON_S = 10.0
SECRET = "only the job knows"
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
    store: Any = dist.HashStore()
    return Board(SealedStore(store, SECRET))


def vital() -> Vital:
    return Vital("0/1", 2, Progress(), 0.02, SOON_S, SOON_S)


@pytest.fixture
def watch(board: Board) -> Watch:
    return Watch(Board(board.store), 1, vital(), lambda: None)


def test_the_alarm_of_a_generation_rings_when_it_ends(board: Board, watch: Watch) -> None:
    for generation in range(1, 6):
        alarm = watch.alarm(generation)
        assert not alarm.ringing
        assert watch.alarm(generation) is alarm
        board.end_generation(generation, f"reason {generation}")
        with pytest.raises(GenerationDead, match=f"^reason {generation}$"):
            alarm.sleep_until(lambda event: None)


def test_a_launcher_that_has_failed_is_as_good_as_gone(board: Board) -> None:
    """Whether it had ended the generation already, or not."""
    for ended in (False, True):
        gone, ended_waits = threading.Event(), threading.Event()
        watch = Watch(
            Board(board.store), 1, vital(), gone.set, lambda _, told=ended_waits: told.set()
        )
        if ended:
            board.end_generation(1, "reason 1")
            wait_ringing(watch.alarm(1))
        assert not gone.is_set()
        board.abandon(1)
        assert gone.wait(SOON_S)
        assert ended_waits.wait(SOON_S)
        for number in (0, 1, 2):
            board.store.delete_key(f"g{number}/over")


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
    watch = Watch(Board(board.store), 4, vital(), lambda: None)
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
    orphaned, no_pulse = threading.Event(), threading.Event()
    boards = [connect_board("127.0.0.1", port, SOON_S, SECRET) for _ in range(3)]
    watch = Watch(boards[0], 1, vital(), orphaned.set)
    Pulse(boards[1], vital(), no_pulse.set)
    boards[2].end_generation(1, "over")
    wait_ringing(watch.alarm(1))
    assert not orphaned.wait(0.05)
    assert not no_pulse.is_set()
    process.kill()
    assert orphaned.wait(SOON_S)
    assert no_pulse.wait(SOON_S)
    assert not watch.alarm(2).ringing


def test_an_orphan_gives_up_whatever_it_is_in_and_begins_nothing_new(watch: Watch) -> None:
    alarms = [watch.alarm(generation) for generation in (1, 2)]
    watch.ring_all("the launcher is gone")
    for alarm in (*alarms, watch.alarm(3)):
        with pytest.raises(GenerationDead, match="the launcher is gone"):
            alarm.check()


def test_signs_of_life_say_what_the_main_thread_does(board: Board) -> None:
    mine = vital()
    mine.progress.at("backward")
    Pulse(Board(board.store), mine, lambda: None)
    seen: list[int] = []
    limit = time.monotonic() + SOON_S
    while len(seen) < 3 and time.monotonic() < limit:
        beat = board.read_beat("0/1", 2)
        if beat is not None and beat.count not in seen:
            assert (beat.mark, beat.waiting) == ("backward", False)
            seen.append(beat.count)
        time.sleep(0.005)
    assert seen == sorted(seen)
    assert len(seen) == 3
    mine.progress.at("outcome")
    with mine.progress.waiting():
        while time.monotonic() < limit:
            beat = board.read_beat("0/1", 2)
            assert beat is not None
            if beat.waiting:
                break
            time.sleep(0.005)
        assert (beat.mark, beat.waiting) == ("outcome", True)


@pytest.mark.parametrize(("hang_s", "beat_s"), [(0.1, 0.05), (2.0, 0.25), (8.0, 1.0), (600.0, 1.0)])
def test_beats_come_often_enough_for_the_limit_and_no_more_than_that(
    hang_s: float, beat_s: float
) -> None:
    assert beat_interval_s(hang_s) == beat_s
    assert beat_s <= hang_s / 2


def test_who_waits_for_a_record_that_will_never_come_is_told(board: Board) -> None:
    board.publish_nothing(3)
    with pytest.raises(Abandoned):
        board.wait_record(3, SOON_S)
