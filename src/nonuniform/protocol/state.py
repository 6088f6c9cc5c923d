"""The state of a run as its control sees it, and what the control may ask of others.

Plain frozen values; `control` moves from one to the next. Knows nothing of events but their orders.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from nonuniform.cluster.health import ClusterState
from nonuniform.cluster.quarantine import Quarantine
from nonuniform.placement.placement import Placement
from nonuniform.protocol.commit import Work, WorkOptions, work_after
from nonuniform.protocol.events import Order, Tell
from nonuniform.protocol.record import Position, Record, Report


class Phase(enum.StrEnum):
    RUNNING = "running"
    SETTLING = "settling"
    HEARING = "hearing"
    RECALLING = "recalling"
    SAVING = "saving"
    OVER = "over"


@dataclass(frozen=True)
class Regroup:
    """All that the next placement may depend on. `load`: a checkpoint that everybody reads."""

    cluster: ClusterState
    reports: tuple[Report, ...]
    position: Position
    generation: int
    before: Placement
    lenders: tuple[str, ...] = ()
    load: str = ""


@dataclass(frozen=True)
class Options:
    """`regroup` makes the record of the next generation and its reason, or raises RunFailed
    (UnitsLost); `place` only the placement; `savers` names the GPUs that a saving generation needs,
    () if it can't save; `samples` tells the samples of a piece of work."""

    work: WorkOptions
    regroup: Callable[[Regroup], tuple[Record, str]]
    place: Callable[[ClusterState, Placement], Placement]
    savers: Callable[[Record], Collection[str]]
    lenders: Callable[[Record], Collection[str]]
    samples: Callable[[Work], Iterable[int]]
    stop_at_nonfinite: bool = False
    final: bool = True


@dataclass(frozen=True)
class Ending:
    """How the run ends, once that is settled; `by_hand`: the reason shall name the last step."""

    failed: bool
    reason: str
    save: bool = True
    by_hand: bool = False

    def words(self, step: int) -> str:
        return f"{self.reason} after step {step}" if self.by_hand else self.reason


@dataclass(frozen=True)
class Failure:
    """An exception of a member, at a piece of work."""

    work: Work
    generation: int
    words: str
    working: bool = True


@dataclass(frozen=True)
class Control:
    """`living`: gpu -> life of its process; `ready`: warmed up and not yet placed; `leaving`: to be
    drained, but still there to send what they hold; `waiting`: gpu -> end of its quarantine;
    `saved`: the step of the newest final checkpoint; `failures`: exceptions by work."""

    options: Options = field(repr=False)
    record: Record
    cluster: ClusterState
    position: Position
    quarantine: Quarantine
    phase: Phase = Phase.RUNNING
    living: Mapping[str, int] = field(default_factory=dict)
    ready: frozenset[str] = frozenset()
    leaving: frozenset[str] = frozenset()
    settled: frozenset[str] = frozenset()
    reports: Mapping[str, Report] = field(default_factory=dict)
    waiting: Mapping[str, float] = field(default_factory=dict)
    lost: tuple[str, ...] = ()
    why: str = ""
    paused: bool = False
    ending: Ending | None = None
    saved: int = 0
    failures: tuple[Failure, ...] = ()
    stalls: tuple[tuple[Work, int], ...] = ()

    @property
    def work(self) -> Work:
        return work_after(self.position.step, self.position.validated, self.options.work)

    @property
    def members(self) -> tuple[str, ...]:
        return tuple(member.gpu for member in self.record.placement.members())

    @property
    def all_settled(self) -> bool:
        return self.settled >= set(self.members) & set(self.living)

    def placed(self) -> set[str]:
        """The living processes that the generation knows."""
        lives = self.record.lives
        return {gpu for gpu, life in self.living.items() if lives.get(gpu) == life}

    def needed(self) -> set[str]:
        """Those whose loss ends the generation."""
        if self.record.task == "save":
            return set(self.options.savers(self.record))
        lenders = set() if self.all_settled else set(self.options.lenders(self.record))
        return set(self.members) | lenders


class Move:
    """One transition under construction."""

    def __init__(self, state: Control) -> None:
        self.state = state
        self.orders: list[Order] = []

    def set(self, **changes: Any) -> Move:
        self.state = replace(self.state, **changes)
        return self

    def order(self, *orders: Order) -> Move:
        self.orders.extend(orders)
        return self

    def tell(
        self, kind: str, reason: str, gpu: str | None = None, extra: Mapping[str, Any] | None = None
    ) -> Move:
        return self.order(Tell(self.state.record.generation, kind, reason, gpu, extra or {}))

    def result(self) -> tuple[Control, tuple[Order, ...]]:
        return self.state, tuple(self.orders)
