"""What a process is doing right now, for whoever watches over it, and how long it has been working.

In: marks of the main thread on its way, and its waits for others. Out: a beat for the launcher, and
the seconds of own work in a step, which tell a slow GPU from one that waits for a slow one. DESIGN
"Generations". Knows nothing of who reads it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from nonuniform.protocol.vital import START, Beat


class Progress:
    """Written by the main thread, read by any. Waits of other threads are not the rank's own."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self._count = 0
        self._waits = 0
        self._waited_s = 0.0
        self._now_at = (START, time.monotonic())
        self._step_start_s = time.monotonic()

    def at(self, mark: str) -> None:
        """The main thread begins something."""
        self._now_at = (mark, time.monotonic())

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Inside, the rank does not work but waits for others."""
        if threading.get_ident() != self._thread:
            yield
            return
        start = time.monotonic()
        self._waits += 1
        try:
            yield
        finally:
            end = time.monotonic()
            self._waits -= 1
            if self._waits == 0:
                self._waited_s += end - start
                self._now_at = (self._now_at[0], end)

    def forgive(self, seconds: float) -> None:
        """The whole process was stopped for a while: that was not work."""
        mark, since_s = self._now_at
        self._now_at = (mark, since_s + seconds)

    def begin_step(self) -> None:
        self._waited_s = 0.0
        self._step_start_s = time.monotonic()

    def busy_s(self) -> float:
        """Seconds of own work since `begin_step`."""
        return max(0.0, time.monotonic() - self._step_start_s - self._waited_s)

    def beat(self) -> Beat:
        """What to tell; each call counts."""
        self._count += 1
        mark, since_s = self._now_at
        return Beat(self._count, mark, self._waits > 0, time.monotonic() - since_s)
