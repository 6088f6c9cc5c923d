"""A thread per worker that listens for the end of generations and rings their alarms.

In: a board client of its own (a client blocks while it waits). Out: one alarm per generation.
When the store itself is gone the launcher is gone: the process ends at once, since nobody could
tell it anything any more. Knows nothing of what the main thread does.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

import torch.distributed as dist

from nonuniform.train.alarm import Alarm
from nonuniform.train.membership import Board
from nonuniform.train.spawn import ORPHANED

LISTEN_S = 3600.0  # a dead store ends the wait at once; asking more often would tell nothing


def leave_orphaned() -> None:
    os._exit(ORPHANED)


class Watch:
    """`alarm(n)` is the alarm of generation n; it rings when the launcher ends n."""

    def __init__(
        self,
        board: Board,
        first: int,
        patience_s: float,
        when_orphaned: Callable[[], None] = leave_orphaned,
    ) -> None:
        self._board = board
        self._generation = first
        self._patience_s = patience_s
        self._when_orphaned = when_orphaned
        self._alarms: dict[int, Alarm] = {}
        self._lock = threading.Lock()
        threading.Thread(target=self._listen, name="watch", daemon=True).start()

    def alarm(self, generation: int) -> Alarm:
        with self._lock:
            for old in [g for g in self._alarms if g < generation - 1]:
                del self._alarms[old]
            return self._alarms.setdefault(generation, Alarm(self._patience_s))

    def _listen(self) -> None:
        while True:
            try:
                reason = self._board.wait_end(self._generation, LISTEN_S)
            except dist.DistStoreError:
                continue  # nothing happened for a while
            except RuntimeError:
                self._when_orphaned()
                return
            self.alarm(self._generation).ring(reason)
            self._generation += 1
