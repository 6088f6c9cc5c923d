"""Connects the groups of one generation on one rank.

In: a way to reach the store, the alarm of the generation. Out: groups, at once or on their way; all
that has to be dropped when the generation ends goes to `kept`. DESIGN "Generations". A store client
blocks while it waits, so each thread that connects has one of its own. Knows nothing of who needs
which group.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from nonuniform.train.alarm import Alarm
from nonuniform.train.groups import Group, PendingGroup, SoloGroup

Connect = Callable[[Any, str, int, int, Alarm], Group]
"""(store, name, rank, size, alarm) -> a connected group; blocks until all are there."""


class Connector:
    """Names are made unique by `prefix`, the generation."""

    def __init__(
        self,
        prefix: str,
        connect_store: Callable[[], Any],
        connect: Connect,
        alarm: Alarm,
        kept: list[Any],
    ) -> None:
        self._prefix = prefix
        self._connect_store = connect_store
        self._connect = connect
        self._alarm = alarm
        self._kept = kept
        self._store: Any = None
        self._later: list[tuple[PendingGroup, str]] = []

    def open(self, name: str, rank: int, size: int) -> Group:
        """Connect now; GenerationDead if the alarm rings meanwhile."""
        if self._store is None:
            self._store = self._connect_store()
            self._kept.append(self._store)
        store, full = self._store, f"{self._prefix}/{name}"
        group = self._alarm.run_aside(lambda: self._connect(store, full, rank, size, self._alarm))
        self._kept.append(group)
        return group

    def open_later(self, name: str, rank: int, size: int) -> Group:
        """A group that `begin_later` starts to connect."""
        if size == 1:
            return SoloGroup()
        group = PendingGroup(rank, size, self._alarm)
        self._later.append((group, f"{self._prefix}/{name}"))
        return group

    def begin_later(self) -> None:
        """Connect the others in a thread, one after the other as all ranks do."""
        if self._later:
            # The groups keep what they have connected: they are dropped with it.
            self._kept.extend(group for group, _ in self._later)
            threading.Thread(target=self._connect_later, name="connect", daemon=True).start()

    def _connect_later(self) -> None:
        store = self._connect_store()
        for group, name in self._later:
            if self._alarm.ringing:
                return  # nobody will come any more
            group.connect(
                lambda g=group, n=name: self._connect(  # type: ignore[misc]
                    store, n, g.rank, g.size, self._alarm
                )
            )
