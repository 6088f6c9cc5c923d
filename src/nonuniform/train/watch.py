"""Threads of a worker that listen for the end of generations and give signs of life.

In: board clients of their own (a client blocks while it waits). Out: one alarm per generation, and
beats on the board that say what the main thread is doing. When the store itself is gone the
launcher is gone, and nobody could tell the process anything any more: `when_orphaned` is called;
also when the launcher says that it cannot go on.
Knows nothing of what the main thread does.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch.distributed as dist

from nonuniform.train.alarm import Alarm
from nonuniform.train.membership import ABANDONED, Board
from nonuniform.train.progress import Progress
from nonuniform.train.seal import Forged
from nonuniform.train.spawn import leave_orphaned

LISTEN_S = 3600.0  # a dead store ends the wait at once; asking more often would tell nothing
BEATS_PER_TIMEOUT = 8
STOPPED_S = 1.0  # who oversleeps by more was stopped, not busy
SHORTEST_BEAT_S, LONGEST_BEAT_S = 0.05, 1.0


def beat_interval_s(hang_timeout_s: float) -> float:
    """How often a process gives a sign of life: seldom, and often enough to be found in time."""
    return min(LONGEST_BEAT_S, max(SHORTEST_BEAT_S, hang_timeout_s / BEATS_PER_TIMEOUT))


@dataclass(frozen=True)
class Vital:
    """Whose signs of life are given, how often, and what the main thread says of itself; the waits
    of its alarms."""

    gpu: str
    life: int
    progress: Progress
    beat_s: float
    patience_s: float
    grace_s: float


class Watch:
    """`alarm(n)` is the alarm of generation n; it rings when the launcher ends n."""

    def __init__(
        self,
        board: Board,
        first: int,
        vital: Vital,
        when_orphaned: Callable[[], None] = leave_orphaned,
        when_abandoned: Callable[[Board], None] = lambda board: None,
    ) -> None:
        """`when_abandoned`: called after the other where the store is still there."""
        self._when_abandoned = when_abandoned
        self._board = board
        self._generation = first
        self._vital = vital
        self._when_orphaned = when_orphaned
        self._alarms: dict[int, Alarm] = {}
        self._lock = threading.Lock()
        self._closed: str | None = None
        threading.Thread(target=self._listen, name="watch", daemon=True).start()

    def alarm(self, generation: int) -> Alarm:
        with self._lock:
            for old in [g for g in self._alarms if g < generation - 1]:
                del self._alarms[old]
            vital = self._vital
            fresh = Alarm(vital.patience_s, vital.progress, vital.grace_s)
            alarm = self._alarms.setdefault(generation, fresh)
        if self._closed is not None:
            alarm.ring(self._closed)
        return alarm

    def ring_all(self, reason: str) -> None:
        """Nothing goes on any more, whatever the generation."""
        with self._lock:
            alarms = list(self._alarms.values())
            self._closed = reason
        for alarm in alarms:
            alarm.ring(reason)

    def _listen(self) -> None:
        while True:
            try:
                reason = self._board.wait_end(self._generation, LISTEN_S)
            except dist.DistStoreError:
                continue  # nothing happened for a while
            except (RuntimeError, Forged):
                self._when_orphaned()
                return
            if reason == ABANDONED:
                self._when_orphaned()
                self._when_abandoned(self._board)
                return
            self.alarm(self._generation).ring(reason)
            self._generation += 1


class Pulse:
    """Beats at a steady pace for as long as the process can run a thread."""

    def __init__(self, board: Board, vital: Vital, when_orphaned: Callable[[], None]) -> None:
        self._board = board
        self._vital = vital
        self._when_orphaned = when_orphaned
        threading.Thread(target=self._beat, name="pulse", daemon=True).start()

    def _beat(self) -> None:
        vital = self._vital
        while True:
            try:
                self._board.beat(vital.gpu, vital.life, vital.progress.beat())
            except RuntimeError:
                self._when_orphaned()
                return
            before = time.monotonic()
            time.sleep(vital.beat_s)
            overslept = time.monotonic() - before - vital.beat_s
            if overslept > STOPPED_S:
                vital.progress.forgive(overslept)
