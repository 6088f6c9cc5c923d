"""Groups of a generation are connected over clients that are used again, unless one may hang."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch

from nonuniform.train.alarm import Alarm, GenerationDead
from nonuniform.train.connector import Clients, Connector
from nonuniform.train.groups import SoloGroup
from nonuniform.train.relay import Relay

PATIENCE_S = 10.0


class Store:
    """A client of the store."""


class Connected(SoloGroup):
    """A group that remembers over which client it was connected."""


class Office:
    """Counts clients; `connect` does with them what a test wants."""

    def __init__(self, again: bool = True) -> None:
        self.clients = Clients(Store, again)
        self.alarm = Alarm(PATIENCE_S)
        self.kept: list[Any] = []
        self.used: list[Any] = []
        self.act: Callable[[str], None] = lambda name: None

    def connector(self, prefix: str = "g1") -> Connector:
        return Connector(prefix, self.clients, self._connect, self.alarm, self.kept)

    def _connect(self, store: Any, name: str, rank: int, size: int, alarm: Alarm) -> Any:
        self.used.append(store)
        self.act(name)
        return Connected(rank, size)


def test_a_client_serves_one_group_after_the_other() -> None:
    office = Office()
    for generation in (1, 2):
        connector = office.connector(f"g{generation}")
        connector.open("compute/0", 0, 2)
        connector.open("transfer", 1, 2)
    assert len(office.used) == 4
    assert len({id(store) for store in office.used}) == 1


def test_each_thread_that_connects_has_a_client_to_itself() -> None:
    office, inside, go_on = Office(), threading.Event(), threading.Event()

    def act(name: str) -> None:
        if name == "g1/reshard/0":
            inside.set()
            go_on.wait(PATIENCE_S)

    office.act = act
    connector = office.connector()
    later = connector.open_later("reshard/0", 0, 2)
    connector.begin_later()
    assert inside.wait(PATIENCE_S)
    connector.open("compute/0", 0, 2)
    go_on.set()
    later.exchange(*[_nothing()] * 2, [0, 0], [0, 0])
    first, second = office.used
    assert first is not second


def test_a_client_that_may_hang_is_never_used_again() -> None:
    office, hold = Office(), threading.Event()
    office.act = lambda name: hold.wait(PATIENCE_S) and None
    threading.Timer(0.05, office.alarm.ring, ["0/1 failed"]).start()
    with pytest.raises(GenerationDead):
        office.connector().open("compute/0", 0, 2)
    (stuck,) = office.used
    assert stuck in office.kept, "the last reference to it must not be dropped here"
    assert office.clients.take() is not stuck
    hold.set()


@pytest.mark.parametrize("later", [False, True])
def test_nor_is_one_over_which_something_went_wrong(later: bool) -> None:
    office = Office()

    def refuse(name: str) -> None:
        if "reshard" in name:
            raise OSError("no more descriptors")

    office.act = refuse
    connector = office.connector()
    if later:
        group = connector.open_later("reshard/0", 0, 2)
        connector.open_later("across/0", 0, 2)
        connector.begin_later()
        with pytest.raises(OSError, match="descriptors"):
            group.all_reduce(_nothing())
    else:
        with pytest.raises(OSError, match="descriptors"):
            connector.open("reshard/0", 0, 2)
    assert office.clients.take() is not office.used[0]


def test_where_groups_keep_asking_their_store_each_has_its_own() -> None:
    office = Office(again=False)
    connector = office.connector()
    connector.open("compute/0", 0, 2)
    connector.open("transfer", 0, 2)
    assert office.used[0] is not office.used[1]


def test_what_is_built_on_a_relay_goes_on_with_the_next_group() -> None:
    calls: list[tuple[str, str]] = []

    class Told(SoloGroup):
        def __init__(self, name: str, size: int = 2) -> None:
            super().__init__(1, size)
            object.__setattr__(self, "name", name)

        def all_reduce(self, tensor: Any, op: str = "sum") -> None:
            calls.append((self.name, op))  # type: ignore[attr-defined]

    relay = Relay(Told("old"))
    relay.all_reduce(_nothing())
    relay.let_go()
    relay.hand_over(Told("new"))
    relay.all_reduce(_nothing(), "max")
    assert calls == [("old", "sum"), ("new", "max")]
    assert (relay.rank, relay.size) == (1, 2)
    with pytest.raises(AssertionError, match="another place"):
        relay.hand_over(Told("larger", 3))


def test_a_relay_keeps_no_group_that_is_to_be_dropped() -> None:
    relay = Relay(SoloGroup())
    relay.let_go()
    with pytest.raises(AssertionError, match="between two generations"):
        relay.all_reduce(_nothing())


def _nothing() -> torch.Tensor:
    return torch.empty(0)


def test_who_waits_for_a_group_is_told_when_no_client_can_be_had() -> None:
    """Untold it would be taken for a rank that waits for others, and never be named."""
    office = Office()

    def refuse() -> Any:
        raise OSError("too many open files")

    office.clients = Clients(refuse, again=True)
    connector = office.connector()
    groups = [connector.open_later(f"reshard/{index}", 0, 2) for index in range(2)]
    connector.begin_later()
    for group in groups:
        with pytest.raises(OSError, match="too many open files"):
            group.all_reduce(torch.ones(1))
