"""Waits that can be given up: everybody wakes at once, nobody waits for ever."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

from nonuniform.train.alarm import Alarm, GenerationDead
from nonuniform.train.progress import Progress

SOON_S = 5.0  # far below every patience here, far above what waking a thread takes


class Work:
    """A collective under way, as torch.distributed gives it."""

    def __init__(self) -> None:
        self._future: Any = torch.futures.Future()
        self._error: str | None = None

    def finish(self, error: str | None = None) -> None:
        self._error = error
        if error is None:
            self._future.set_result(None)
        else:
            self._future.set_exception(RuntimeError(error))

    def is_completed(self) -> bool:
        return bool(self._future.done())

    def get_future(self) -> Any:
        return self._future

    def wait(self) -> None:
        assert self.is_completed(), "nobody may block in a collective"
        if self._error is not None:
            raise RuntimeError(self._error)


def waiting(call: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    """Start a call in a thread; what it returned or raised, and when."""
    told: list[Any] = []

    def body() -> None:
        try:
            told.append(call())
        except Exception as error:
            told.append(error)
        told.append(time.monotonic())

    thread = threading.Thread(target=body, daemon=True)
    thread.start()
    return thread, told


def never(event: threading.Event) -> None:
    """Nothing will ever set the event."""


def test_every_waiter_wakes_at_once_and_later_ones_do_not_start() -> None:
    alarm = Alarm(60.0)
    waiters = [waiting(lambda: alarm.sleep_until(never)) for _ in range(5)]
    waiters += [waiting(lambda: alarm.finish(Work)) for _ in range(5)]
    time.sleep(0.05)
    assert not alarm.ringing
    assert not any(told for _, told in waiters)
    rung = time.monotonic()
    alarm.ring("0/3 failed")
    for thread, told in waiters:
        thread.join(SOON_S)
        error, moment = told
        assert isinstance(error, GenerationDead)
        assert str(error) == "0/3 failed"
        assert moment - rung < SOON_S
    assert alarm.ringing
    with pytest.raises(GenerationDead, match="0/3 failed"):
        alarm.check()
    armed: list[Any] = []
    with pytest.raises(GenerationDead, match="0/3 failed"):
        alarm.sleep_until(armed.append)
    assert not armed


def test_the_first_reason_stays() -> None:
    alarm = Alarm(1.0)
    alarm.check()
    alarm.ring("0/1 failed")
    alarm.ring("1/1 failed")
    with pytest.raises(GenerationDead, match="0/1 failed"):
        alarm.check()


def test_patience_ends() -> None:
    start = time.monotonic()
    with pytest.raises(GenerationDead, match=r"no answer within 0\.05 s"):
        Alarm(0.05).sleep_until(never)
    with pytest.raises(GenerationDead, match=r"no answer within 0\.05 s"):
        Alarm(0.05).finish(Work)
    assert 0.1 <= time.monotonic() - start < SOON_S


def test_waiters_are_forgotten_when_they_have_ended() -> None:
    alarm = Alarm(0.01)
    alarm.sleep_until(lambda event: event.set())
    with pytest.raises(GenerationDead):
        alarm.sleep_until(never)
    with pytest.raises(ZeroDivisionError):
        alarm.sleep_until(lambda event: 1 // 0)
    assert not alarm._waiters


def test_finished_work_passes_also_after_the_alarm() -> None:
    """A rank that has all it needs rolls forward, whoever died since."""
    alarm = Alarm(60.0)
    work = Work()
    work.finish()
    alarm.finish(lambda: work)
    alarm.ring("too late to matter")
    alarm.finish(lambda: work)


def test_work_that_ends_while_waited_for() -> None:
    alarm = Alarm(60.0)
    work = Work()
    thread, told = waiting(lambda: alarm.finish(lambda: work))
    time.sleep(0.02)
    work.finish()
    thread.join(SOON_S)
    assert told[0] is None


@pytest.mark.parametrize("early", [True, False])
def test_failed_work_waits_for_the_reason_that_the_alarm_brings(early: bool) -> None:
    """A broken connection only means that somebody is gone; who it was the launcher knows."""
    alarm = Alarm(60.0)
    work = Work()
    if early:
        work.finish("Connection closed by peer\nmore lines")
    thread, told = waiting(lambda: alarm.finish(lambda: work))
    time.sleep(0.05)
    if not early:
        work.finish("Connection closed by peer\nmore lines")
        time.sleep(0.05)
    assert not told
    alarm.ring("1/0 failed")
    thread.join(SOON_S)
    assert isinstance(told[0], GenerationDead)
    assert str(told[0]) == "1/0 failed"


def test_failed_work_without_an_alarm_was_the_ranks_own_fault() -> None:
    work = Work()
    work.finish("out of memory")
    with pytest.raises(RuntimeError, match="out of memory"):
        Alarm(0.05).finish(lambda: work)


def test_callbacks_run_when_it_rings_or_at_once_if_it_has() -> None:
    alarm = Alarm(60.0)
    called: list[str] = []
    alarm.on_ring(lambda: called.append("before"))
    assert called == []
    alarm.ring("1/0 failed")
    alarm.ring("again")
    alarm.on_ring(lambda: called.append("after"))
    assert called == ["before", "after"]


def test_work_that_cannot_even_start_is_a_broken_connection() -> None:
    alarm = Alarm(60.0)

    def refused() -> Work:
        raise RuntimeError("Connection reset by peer")

    thread, told = waiting(lambda: alarm.finish(refused))
    time.sleep(0.02)
    assert not told
    alarm.ring("1/0 failed")
    thread.join(SOON_S)
    assert isinstance(told[0], GenerationDead)
    assert str(told[0]) == "1/0 failed"


def test_an_error_that_is_no_broken_connection_is_the_ranks_own() -> None:
    def wrong() -> Work:
        raise TypeError("what was wrong")

    with pytest.raises(TypeError, match="what was wrong"):
        Alarm(60.0).finish(wrong)


def test_run_aside_passes_results_and_exceptions() -> None:
    alarm = Alarm(60.0)
    names: list[str] = []

    def aside() -> int:
        names.append(threading.current_thread().name)
        return 7

    assert alarm.run_aside(aside) == 7
    assert names[0] != threading.current_thread().name

    def wrong() -> None:
        raise ValueError("what was wrong")

    with pytest.raises(ValueError, match="what was wrong"):
        alarm.run_aside(wrong)
    assert alarm.run_aside(lambda: None) is None


def test_run_aside_is_abandoned_on_alarm_and_frees_its_result_later() -> None:
    class Result:
        pass

    alarm = Alarm(60.0)
    blocked, made = threading.Event(), threading.Event()
    refs: list[weakref.ref[Result]] = []

    def slow() -> Result:
        blocked.wait(10.0)
        result = Result()
        refs.append(weakref.ref(result))
        made.set()
        return result

    thread, told = waiting(lambda: alarm.run_aside(slow))
    time.sleep(0.02)
    alarm.ring("0/0 failed")
    thread.join(SOON_S)
    assert isinstance(told[0], GenerationDead)
    told.clear()
    blocked.set()
    assert made.wait(SOON_S)
    limit = time.monotonic() + SOON_S
    while refs[0]() is not None and time.monotonic() < limit:
        time.sleep(0.005)
        gc.collect()
    assert refs[0]() is None


def test_a_call_aside_is_not_started_after_the_alarm() -> None:
    alarm = Alarm(60.0)
    alarm.ring("over")
    started: list[int] = []
    with pytest.raises(GenerationDead, match="over"):
        alarm.run_aside(lambda: started.append(1))
    assert not started


def test_ringing_while_waiters_come_and_go_never_loses_one() -> None:
    for _ in range(50):
        alarm = Alarm(60.0)
        waiters = [waiting(lambda a=alarm: a.sleep_until(never)) for _ in range(4)]
        alarm.ring("now")
        for thread, told in waiters:
            thread.join(SOON_S)
            assert isinstance(told[0], GenerationDead)


def test_who_waits_says_so() -> None:
    """Whoever watches must not take it for one that hangs."""
    progress, work, rung = Progress(), Work(), Alarm(60.0)
    alarm = Alarm(60.0, progress)
    seen: list[bool] = []

    def end_soon() -> Work:
        threading.Timer(0.05, lambda: (seen.append(progress.beat().waiting), work.finish())).start()
        return work

    progress.begin_step()
    alarm.finish(end_soon)
    assert seen == [True]
    assert not progress.beat().waiting
    assert progress.busy_s() < 0.04
    rung.progress = progress
    rung.ring("over")
    with pytest.raises(GenerationDead):
        rung.sleep_until(never)
    assert not progress.beat().waiting


def test_a_launcher_that_is_busy_has_its_time_to_say_why_a_peer_is_gone() -> None:
    """Else a rank would take the end of its peer for its own, and be the next one lost."""
    alarm = Alarm(60.0, grace_s=SOON_S)
    thread, told = waiting(lambda: alarm.gone(RuntimeError("connection closed by peer")))
    time.sleep(0.1)
    assert thread.is_alive()
    alarm.ring("0/1 failed")
    thread.join(SOON_S)
    assert isinstance(told[0], GenerationDead)
    start = time.monotonic()
    own = RuntimeError("no file descriptors")
    assert Alarm(60.0, grace_s=0.05).gone(own) is own
    assert time.monotonic() - start < SOON_S
