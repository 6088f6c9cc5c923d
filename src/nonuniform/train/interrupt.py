"""Ctrl-C, SIGTERM and a lost terminal as a flag, so that a run can close its books.

In: signals of the process. Out: how many have come, and the name of the first. Knows nothing of
what there is to close.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from types import FrameType, TracebackType
from typing import Any

TOGETHER_S = 0.5
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupt:
    """A context: inside it the signals are only counted. Outside the main thread, where Python
    delivers no signals, it never fires."""

    def __init__(self) -> None:
        self._numbers: list[int] = []
        self._last_s = -math.inf
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

    @property
    def name(self) -> str:
        """The first signal that came, or nothing."""
        return signal.Signals(self._numbers[0]).name if self._numbers else ""

    @property
    def count(self) -> int:
        return len(self._numbers)

    def _note(self, number: int, frame: FrameType | None) -> None:
        """Signals that come together are one wish: a terminal that closes sends several."""
        now_s = time.monotonic()
        if now_s - self._last_s > TOGETHER_S:
            self._numbers.append(number)
            self._last_s = now_s
