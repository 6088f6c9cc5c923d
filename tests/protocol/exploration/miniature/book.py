"""Every state of the control, record and rank machine that was met, by number.

In: numbers and plain tuples. Out: numbers and plain tuples; in between the real machines run, once
for each (state, event). Left out of a control's state is what only goes into texts: `why`, `lost`,
the words of reasons. Worlds that hold numbers are small, quick to compare, and renamed by looking
up. Knows nothing of moves.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from miniature.grid import Grid, Renaming
from miniature.policy import Policy, placed_units, senders
from miniature.wire import event_of, key_of, kind_of_end
from miniature.world import Size

from nonuniform.cluster.health import ClusterState
from nonuniform.cluster.quarantine import FlapOptions, Quarantine
from nonuniform.protocol import control as controls
from nonuniform.protocol import rank as ranks
from nonuniform.protocol.commit import WorkOptions
from nonuniform.protocol.rank import Rank
from nonuniform.protocol.record import Position, Record, Report
from nonuniform.protocol.state import Control, Ending, Regroup

Key = tuple[Any, ...]


@dataclass(frozen=True)
class Page:
    """A record with GPUs as numbers, and what follows from it."""

    record: Record
    lives: dict[int, int]
    members: frozenset[int]
    units: dict[int, int]
    holders: frozenset[int]
    senders: dict[int, frozenset[int]]
    savers: frozenset[int]

    @property
    def all_senders(self) -> frozenset[int]:
        return frozenset().union(*self.senders.values())


class Book:
    def __init__(self, size: Size) -> None:
        self.size = size
        self.grid = Grid(size.replicas, size.degree)
        self.policy = Policy(size)
        self.options = self.policy.options()
        self.work = WorkOptions(size.steps, size.validate_every)
        self.controls: list[Control] = []
        self.pages: list[Page] = []
        self.ranks: list[Rank | None] = [None]  # 0: no machine
        self.stages: list[str] = [""]
        self.works: list[tuple[str, int]] = [("done", 0)]
        self._numbers: dict[Key, int] = {}
        self._heard: dict[Key, tuple[int, tuple[Key, ...]]] = {}
        self._ranked: dict[Key, int] = {}
        self._renamed: dict[Key, int] = {}

    # --- the control

    def first(self) -> tuple[int, tuple[Key, ...]]:
        """The control after it has published the first generation, and that order."""
        cluster = ClusterState(self.size.replicas, self.size.degree)
        asked = Regroup(cluster, (), Position(0, 0), 1, self.policy.place(cluster, None))
        record, reason = self.policy.regroup(asked)
        state = Control(
            options=self.options,
            record=record,
            cluster=cluster,
            position=Position(0, 0),
            quarantine=Quarantine(FlapOptions(flaps=9, window_s=0.0, first_s=0.0, max_s=0.0)),
            living=dict.fromkeys(self.grid.names, 1),
        )
        state, orders = controls.begin(state, reason)
        return self.control(state), self._keys(orders)

    def hear(self, number: int, event: Key) -> tuple[int, tuple[Key, ...]]:
        """What the real control makes of an event."""
        key = (number, event)
        found = self._heard.get(key)
        if found is None:
            heard = event_of(event, self.grid, self.size)
            state, orders = controls.advance(self.controls[number], heard, 0.0)
            found = self._heard[key] = (self.control(state), self._keys(orders))
        return found

    def _keys(self, orders: tuple[Any, ...]) -> tuple[Key, ...]:
        found = [key_of(order, self.grid, self.page) for order in orders]
        return tuple(key for key in found if key)

    def control(self, state: Control) -> int:
        ending = state.ending
        if ending is not None:
            ending = Ending(ending.failed, kind_of_end(ending.reason), ending.save, ending.by_hand)
        page = self.page(state.record)
        failures = tuple(replace(failure, words="boom") for failure in state.failures)
        state = replace(
            state,
            record=self.pages[page].record,
            why="",
            lost=(),
            ending=ending,
            failures=failures,
        )
        reports = sorted((gpu, said.degree, said.step) for gpu, said in state.reports.items())
        key = (
            "control",
            page,
            state.cluster.down,
            state.position,
            state.phase,
            tuple(sorted(state.living.items())),
            state.ready,
            state.leaving,
            state.settled,
            tuple(reports),
            tuple(sorted(state.waiting)),
            state.paused,
            ending,
            state.saved,
            failures,
            state.stalls,
        )
        return self._enter(key, self.controls, state)

    def page(self, record: Record) -> int:
        record = replace(record, holdings=dict(sorted(record.holdings.items())))
        key = (
            "record",
            record.generation,
            record.placement,
            (record.step, record.validated, record.digest, record.task, record.load),
            tuple(record.holdings.items()),
            tuple(sorted(record.lives.items())),
        )
        return self._numbers[key] if key in self._numbers else self._new_page(key, record)

    def _new_page(self, key: Key, record: Record) -> int:
        number, degree = self.grid.number, self.size.degree
        page = Page(
            record=record,
            lives={number[gpu]: life for gpu, life in record.lives.items()},
            members=frozenset(number[member.gpu] for member in record.placement.members()),
            units={
                number[gpu]: bits for gpu, bits in placed_units(record.placement, degree).items()
            },
            holders=frozenset(number[gpu] for gpu in record.holdings),
            senders={
                number[gpu]: frozenset(number[name] for name in names)
                for gpu, names in senders(record, degree).items()
            },
            savers=frozenset(number[gpu] for gpu in self.policy.savers(record)),
        )
        return self._enter(key, self.pages, page)

    def _enter(self, key: Key, shelf: list[Any], value: Any) -> int:
        found = self._numbers.get(key)
        if found is None:
            shelf.append(value)
            found = self._numbers[key] = len(shelf) - 1
        return found

    # --- ranks

    def settled(self, members: int, step: int, validated: int) -> int:
        return self._rank(ranks.settled(members, step, validated, self.work))

    def step(self, name: str, number: int, *arguments: Any) -> int:
        """The rank machine after `name`, a function of `protocol.rank`."""
        key = (name, number, *arguments)
        found = self._ranked.get(key)
        if found is None:
            found = self._ranked[key] = self._rank(
                getattr(ranks, name)(self.ranks[number], *arguments)
            )
        return found

    def _rank(self, rank: Rank) -> int:
        number = self._enter(("rank", rank), self.ranks, rank)
        if number == len(self.stages):
            self.stages.append(rank.stage)
            self.works.append((rank.work.kind, rank.work.step))
        return number

    # --- other names

    def rename_control(self, number: int, names: Renaming) -> int:
        key = ("control", number, names)
        if key not in self._renamed:
            self._renamed[key] = self.control(_rename_control(self.controls[number], names))
        return self._renamed[key]

    def rename_page(self, number: int, names: Renaming) -> int:
        key = ("record", number, names)
        if key not in self._renamed:
            self._renamed[key] = self.page(_rename_record(self.pages[number].record, names))
        return self._renamed[key]


def _rename_record(record: Record, names: Renaming) -> Record:
    holdings = {
        names.name(gpu): (names.bits[bits], label) for gpu, (bits, label) in record.holdings.items()
    }
    return replace(
        record,
        placement=names.placement(record.placement),
        holdings=holdings,
        lives={names.name(gpu): life for gpu, life in record.lives.items()},
    )


def _rename_control(state: Control, names: Renaming) -> Control:
    reports = {}
    for gpu, said in state.reports.items():
        new = names.name(gpu)
        reports[new] = Report(new, said.step, names.bits[said.degree], said.label)
    return replace(
        state,
        record=_rename_record(state.record, names),
        cluster=replace(state.cluster, down=names.down(state.cluster.down)),
        living={names.name(gpu): life for gpu, life in state.living.items()},
        ready=frozenset(names.names(state.ready)),
        leaving=frozenset(names.names(state.leaving)),
        settled=frozenset(names.names(state.settled)),
        reports=reports,
        waiting={names.name(gpu): until for gpu, until in state.waiting.items()},
    )
