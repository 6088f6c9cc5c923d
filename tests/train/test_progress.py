"""What a process says of itself: at work or waiting, since when, and how long it has worked."""

from __future__ import annotations

import threading

import pytest

from nonuniform.train import progress as progress_module
from nonuniform.train.progress import Progress


class Clock:
    """A monotonic clock that a test moves."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(progress_module, "time", clock)
    return clock


@pytest.fixture
def progress(clock: Clock) -> Progress:
    return Progress()


def test_a_beat_says_what_the_thread_is_at_and_since_when(clock: Clock, progress: Progress) -> None:
    clock.now_s += 2.0
    first = progress.beat()
    assert (first.count, first.mark, first.waiting, first.age_s) == (1, "start", False, 2.0)
    progress.at("forward")
    clock.now_s += 0.5
    second = progress.beat()
    assert (second.count, second.mark, second.age_s) == (2, "forward", 0.5)
    assert progress.beat() == progress_module.Beat(3, "forward", False, 0.5)


def test_a_beat_says_whether_the_thread_waits(clock: Clock, progress: Progress) -> None:
    progress.at("outcome")
    clock.now_s += 1.0
    with progress.waiting():
        clock.now_s += 5.0
        beat = progress.beat()
        assert (beat.mark, beat.waiting, beat.age_s) == ("outcome", True, 6.0)
    clock.now_s += 0.25
    beat = progress.beat()
    assert (beat.mark, beat.waiting) == ("outcome", False)
    assert beat.age_s == 0.25, "what it has waited does not count as busy"


def test_only_own_work_counts_as_busy(clock: Clock, progress: Progress) -> None:
    clock.now_s += 50.0
    progress.begin_step()
    clock.now_s += 1.0
    with progress.waiting():
        clock.now_s += 10.0
    clock.now_s += 2.0
    with progress.waiting():
        clock.now_s += 20.0
    assert progress.busy_s() == 3.0
    progress.begin_step()
    assert progress.busy_s() == 0.0
    clock.now_s += 1.5
    assert progress.busy_s() == 1.5


def test_a_wait_inside_a_wait_counts_once(clock: Clock, progress: Progress) -> None:
    progress.begin_step()
    with progress.waiting():
        clock.now_s += 1.0
        with progress.waiting():
            clock.now_s += 2.0
        assert progress.beat().waiting
        clock.now_s += 4.0
    assert not progress.beat().waiting
    clock.now_s += 0.5
    assert progress.busy_s() == 0.5


def test_a_wait_that_fails_is_over(clock: Clock, progress: Progress) -> None:
    progress.begin_step()

    def fail() -> None:
        with progress.waiting():
            clock.now_s += 3.0
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert not progress.beat().waiting
    assert progress.busy_s() == 0.0


def test_waits_of_other_threads_are_not_the_ranks_own(clock: Clock, progress: Progress) -> None:
    """The lane of the gradient sync waits for its peers while the main thread works."""
    progress.begin_step()
    inside, leave = threading.Event(), threading.Event()

    def lane() -> None:
        with progress.waiting():
            inside.set()
            assert leave.wait(5.0)

    thread = threading.Thread(target=lane, daemon=True)
    thread.start()
    assert inside.wait(5.0)
    assert not progress.beat().waiting
    clock.now_s += 2.0
    leave.set()
    thread.join(5.0)
    assert progress.busy_s() == 2.0
    assert progress.beat().age_s == 2.0


def test_a_rank_that_relies_on_a_helper_is_where_the_helper_is(
    clock: Clock, progress: Progress
) -> None:
    """A lane that is stuck in its own work must not look like a rank that waits for others."""
    ready, go_on, waits = threading.Event(), threading.Event(), threading.Event()
    tracks = []

    def lane() -> None:
        tracks.append(progress.helper("gradient sync"))
        ready.set()
        assert go_on.wait(5.0)
        go_on.clear()
        with progress.waiting():
            waits.set()
            assert go_on.wait(5.0)

    thread = threading.Thread(target=lane, daemon=True)
    thread.start()
    assert ready.wait(5.0)
    progress.begin_step()
    progress.at("backward")
    clock.now_s += 1.0
    assert progress.beat() == progress_module.Beat(1, "backward", False, 1.0)
    with progress.relying_on(tracks[0]):
        clock.now_s += 2.0
        assert progress.beat() == progress_module.Beat(2, "gradient sync", False, 3.0)
        progress.forgive(1.0)
        assert progress.beat().age_s == 2.0
        go_on.set()
        assert waits.wait(5.0)
        assert progress.beat().waiting
        go_on.set()
        thread.join(5.0)
        assert not progress.beat().waiting
    clock.now_s += 0.5
    assert progress.beat() == progress_module.Beat(6, "backward", False, 0.5)
    assert progress.busy_s() == 1.5, "what the helper did meanwhile is no work of the main thread"
