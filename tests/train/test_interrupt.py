"""Signals that are counted, so that a run can close its books."""

from __future__ import annotations

import os
import signal
import threading
from types import SimpleNamespace

import pytest

from nonuniform.train import interrupt as interrupt_module
from nonuniform.train.interrupt import SIGNALS, TOGETHER_S, Interrupt


def test_without_a_signal_there_is_nothing() -> None:
    with Interrupt() as interrupt:
        assert (interrupt.count, interrupt.name) == (0, "")


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_is_counted_and_ends_nothing(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with Interrupt() as interrupt:
        os.kill(os.getpid(), number)
        assert (interrupt.count, interrupt.name) == (1, number.name)
    assert signal.getsignal(number) is before


def test_the_first_signal_has_the_name_and_each_one_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(interrupt_module, "TOGETHER_S", -1.0)  # none come together
    with Interrupt() as interrupt:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGINT):
            os.kill(os.getpid(), number)
        assert (interrupt.count, interrupt.name) == (3, "SIGTERM")


def test_signals_that_come_together_are_one_wish() -> None:
    """A terminal that closes sends several, a batch system one to every process and then again."""
    with Interrupt() as interrupt:
        for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
            os.kill(os.getpid(), number)
        assert (interrupt.count, interrupt.name) == (1, "SIGHUP")


@pytest.mark.parametrize(
    ("after_s", "count"), [(0.0, 1), (TOGETHER_S - 0.01, 1), (TOGETHER_S + 0.01, 2), (60.0, 2)]
)
def test_a_signal_that_comes_later_is_a_second_wish(
    monkeypatch: pytest.MonkeyPatch, after_s: float, count: int
) -> None:
    moments = iter([100.0, 100.0 + after_s])
    clock = SimpleNamespace(monotonic=lambda: next(moments))
    monkeypatch.setattr(interrupt_module, "time", clock)
    with Interrupt() as interrupt:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)
        assert (interrupt.count, interrupt.name) == (count, "SIGINT")


def test_after_it_a_person_can_end_the_process_as_before() -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may ignore it
    try:
        _ends_as_before()
    finally:
        signal.signal(signal.SIGINT, before)


def _ends_as_before() -> None:
    with Interrupt() as interrupt:
        pass
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    assert interrupt.count == 0


def test_outside_the_main_thread_it_never_fires() -> None:
    """Python delivers signals to the main thread alone, and only it may ask for them."""
    before = [signal.getsignal(number) for number in SIGNALS]
    seen: list[object] = []

    def body() -> None:
        with Interrupt() as interrupt:
            seen.extend([interrupt.count, [signal.getsignal(number) for number in SIGNALS]])

    thread = threading.Thread(target=body)
    thread.start()
    thread.join(5.0)
    assert seen == [0, before]
