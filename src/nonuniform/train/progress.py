"""What a process is doing right now, for whoever watches over it, and how long it has been working.

In: marks of the main thread on its way, its waits for others, and the same of a helper thread on
which it relies. Out: a beat for the launcher, and the seconds of own work in a step, which tell a
slow GPU from one that waits for a slow one. DESIGN "Generations". Knows nothing of who reads it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from nonuniform.protocol.vital import START, Beat


class Track:
    """Where one thread is: at `now_at` = (mark, since when), inside `waits` waits for others."""

    def __init__(self, mark: str) -> None:
        self.now_at = (mark, time.monotonic())
        self.waits = 0

    def at(self, mark: str) -> None:
        """The thread begins something."""
        self.now_at = (mark, time.monotonic())


class Progress:
    """Written by the main thread, the one that makes it, and by its helpers; read by any.

    Whoever waits for others is not to blame for standing still. The main thread that waits for a
    helper of its own rank is another matter: while it does, the rank is where the helper is.
    """

    def __init__(self) -> None:
        self._main = Track(START)
        self._helper: Track | None = None  # the newest one
        self._relied_on: Track | None = None
        self._here = threading.local()
        self._here.track = self._main
        self._count = 0
        self._waited_s = 0.0
        self._step_start_s = time.monotonic()

    def at(self, mark: str) -> None:
        """The main thread begins something."""
        self._main.at(mark)

    def helper(self, mark: str) -> Track:
        """This thread is a helper from now on; its waits count as its own."""
        self._here.track = self._helper = Track(mark)
        return self._helper

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Inside, the thread does not work but waits for others. What threads do that are neither
        the main one nor a helper does not count."""
        track: Track | None = getattr(self._here, "track", None)
        if track is None:
            yield
            return
        start = time.monotonic()
        track.waits += 1
        try:
            yield
        finally:
            end = time.monotonic()
            track.waits -= 1
            if track.waits == 0:
                track.now_at = (track.now_at[0], end)
                if track is self._main:
                    self._waited_s += end - start

    @contextmanager
    def relying_on(self, helper: Track | None) -> Iterator[None]:
        """Inside, the main thread waits until a helper has done what it was given."""
        self._relied_on = helper
        try:
            with self.waiting():
                yield
        finally:
            self._relied_on = None

    def forgive(self, seconds: float) -> None:
        """The whole process was stopped for a while: that was not work."""
        for track in (self._main, self._helper):
            if track is not None:
                mark, since_s = track.now_at
                track.now_at = (mark, since_s + seconds)

    def begin_step(self) -> None:
        self._waited_s = 0.0
        self._step_start_s = time.monotonic()

    def busy_s(self) -> float:
        """Seconds of own work of the main thread since `begin_step`."""
        return max(0.0, time.monotonic() - self._step_start_s - self._waited_s)

    def beat(self) -> Beat:
        """What to tell; each call counts."""
        self._count += 1
        track = self._relied_on or self._main
        mark, since_s = track.now_at
        return Beat(self._count, mark, track.waits > 0, time.monotonic() - since_s)
