"""Ctrl-C, SIGTERM and a lost terminal as a flag, so that a run can close its books.

In: signals of the process. Out: `check`, which raises RunFailed once one has come. Knows nothing
of what there is to close.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

from nonuniform.errors import RunFailed

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupt:
    """A context: inside it the signals only set the flag. Outside the main thread, where Python
    delivers no signals, it never fires."""

    def __init__(self) -> None:
        self._number: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupt:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in SIGNALS}
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def check(self, where: Callable[[], str]) -> None:
        if self._number is not None:
            raise RunFailed(f"interrupted by {signal.Signals(self._number).name} {where()}")

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._number = number
