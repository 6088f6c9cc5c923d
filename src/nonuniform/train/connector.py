"""Connects the groups of one generation on one rank.

In: clients of the store, the alarm of the generation. Out: groups, at once or on their way; all
that has to be dropped when the generation ends goes to `kept`. DESIGN "Generations". A store client
blocks while it waits, so each thread that connects has one to itself. Knows nothing of who needs
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


IDLE_CLIENTS = 2  # as many threads connect in one generation


class Clients:
    """Store clients that nobody uses at the moment, so that a regroup need not connect new ones.

    One that may still be waiting for somebody who will not come is never given back. `again`: a
    group that is connected leaves its client alone, so that another one may use it."""

    def __init__(self, connect: Callable[[], Any], again: bool) -> None:
        self._connect = connect
        self._again = again
        self._idle: list[Any] = []

    def take(self) -> Any:
        try:
            return self._idle.pop()
        except IndexError:
            return self._connect()

    def give_back(self, client: Any) -> None:
        if self._again and len(self._idle) < IDLE_CLIENTS:
            self._idle.append(client)


class Connector:
    """Names are made unique by `prefix`, the generation."""

    def __init__(
        self,
        prefix: str,
        clients: Clients,
        connect: Connect,
        alarm: Alarm,
        kept: list[Any],
    ) -> None:
        self._prefix = prefix
        self._clients = clients
        self._connect = connect
        self._alarm = alarm
        self._kept = kept
        self._later: list[tuple[PendingGroup, str]] = []

    def open(self, name: str, rank: int, size: int) -> Group:
        """Connect now; GenerationDead if the alarm rings meanwhile."""
        store, full = self._clients.take(), f"{self._prefix}/{name}"
        self._kept.append(store)
        group = self._alarm.run_aside(lambda: self._connect(store, full, rank, size, self._alarm))
        self._kept.append(group)
        self._clients.give_back(store)
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
        try:
            store = self._clients.take()
        except Exception as error:
            for group, _ in self._later:
                group.fail(error)
            return
        whole = True
        for group, name in self._later:
            if self._alarm.ringing:
                return  # nobody will come any more
            connected = group.connect(
                lambda g=group, n=name: self._connect(  # type: ignore[misc]
                    store, n, g.rank, g.size, self._alarm
                )
            )
            whole = whole and connected
        if whole:
            self._clients.give_back(store)
