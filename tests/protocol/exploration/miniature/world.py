"""A whole run as one value: launcher, board, processes, and what the adversary may still do.

In and out: immutable, hashable values, so that states can be compared and counted. Besides what a
real run has there is a ledger that no process sees: what was committed, by which generation.
DESIGN "The step is a transaction". Knows nothing of which moves there are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

Past = tuple[int, ...]
"""`past[s - 1]`: the generation whose gradients made step s. Equal pasts are equal weights."""


class Broken(AssertionError):
    """An invariant does not hold in a state."""


def check(holds: bool, words: str) -> None:
    if not holds:
        raise Broken(words)


@dataclass(frozen=True)
class Size:
    """`validate_every` 0: never; `checkpoint`: the step after which there is one, 0: never."""

    replicas: int
    degree: int
    steps: int = 2
    validate_every: int = 0
    checkpoint: int = 0
    min_degree: int = 1
    final: bool = True
    nonfinite_step: int = 0
    stop_at_nonfinite: bool = False


@dataclass(frozen=True)
class Rules:
    """How a run is carried out. `eager`: what only the process itself can see is done at once;
    `patient`: the launcher hears answers to its orders before anything else, as it really does;
    `settled`: begin after the first generation has settled; `zombies`: who is given up goes on;
    `hears_singly`: reports are heard one by one; `coarse`: to vote and to count it is one move.
    The others are broken by tests, to see that it is noticed."""

    eager: bool = False
    patient: bool = True
    settled: bool = False
    zombies: bool = True
    hears_singly: bool = False
    coarse: bool = False
    compare_and_set: bool = True
    checks_life: bool = True
    keeps_promise: bool = True
    forget_back: int = 2
    start_back: int = 0


class Budget(NamedTuple):
    """What the adversary may still do."""

    kills: int = 0
    raises: int = 0
    hangs: int = 0
    returns: int = 0
    drains: int = 0
    interrupts: int = 0
    stalls: int = 0
    doubles: int = 0

    def spend(self, name: str) -> Budget:
        return self._replace(**{name: getattr(self, name) - 1})


class Proc(NamedTuple):
    """One process. `mode` says what it does next; `rank`: its machine, as a number of the book;
    `units`: what it holds, as bits, 0: nothing; `fenced`: the generation in which it was given up;
    `ended`: how it ended, as long as the launcher has not heard of it."""

    life: int
    mode: str
    generation: int
    rank: int = 0
    units: int = 0
    past: Past = ()
    placed: bool = False
    fenced: int = 0
    ended: str = ""
    warm: bool = True

    @property
    def alive(self) -> bool:
        return self.mode != "dead"


class Held(NamedTuple):
    """What a process said, or brought along, in one generation."""

    gpu: int
    life: int
    units: int
    past: Past


class Ballot(NamedTuple):
    """The keys of one transaction."""

    kind: str
    step: int
    votes: frozenset[int] = frozenset()
    count: int = 0
    outcome: str = ""

    @property
    def work(self) -> tuple[str, int]:
        return self.kind, self.step


class Pages(NamedTuple):
    """The board's keys of one generation; `entered` is only ours: who came, and with what."""

    number: int
    record: int
    over: bool = False
    pause: bool = False
    ballots: tuple[Ballot, ...] = ()
    settled: frozenset[int] = frozenset()
    reports: frozenset[Held] = frozenset()
    entered: frozenset[Held] = frozenset()
    parts: frozenset[int] = frozenset()

    def ballot(self, work: tuple[str, int]) -> Ballot:
        for one in self.ballots:
            if (one.kind, one.step) == work:
                return one
        return Ballot(*work)

    def with_ballot(self, ballot: Ballot) -> Pages:
        rest = [one for one in self.ballots if one.work != ballot.work]
        return self._replace(ballots=tuple(sorted([*rest, ballot], key=lambda one: one.work)))

    def without(self, works: set[tuple[str, int]]) -> Pages:
        return self._replace(ballots=tuple(b for b in self.ballots if b.work not in works))


class World(NamedTuple):
    """`todo`: orders not yet carried out; `queue`: answers not yet heard; `ledger`: the past that
    was committed; `checked`: (step, generation) of committed validations; `logged`: what the step
    log has, (step, validated); `shelf`: a checkpoint, (past, validated); `lives`: by GPU."""

    control: int
    todo: tuple[Any, ...]
    queue: tuple[Any, ...]
    procs: tuple[tuple[Proc, ...], ...]
    pages: tuple[Pages, ...]
    ledger: Past
    checked: tuple[tuple[int, int], ...]
    logged: tuple[int, int]
    shelf: tuple[Past, int] | None
    budget: Budget
    lives: tuple[int, ...]
    over: str = ""

    def page(self, number: int) -> Pages | None:
        for one in reversed(self.pages):
            if one.number == number:
                return one
        return None

    def with_page(self, page: Pages) -> World:
        return self._replace(
            pages=tuple(page if one.number == page.number else one for one in self.pages)
        )

    def with_proc(self, gpu: int, old: Proc, new: Proc | None) -> World:
        """The same world with one process changed, or gone."""
        crowd = tuple(new if one is old else one for one in self.procs[gpu])
        left = tuple(one for one in crowd if one is not None)
        return self._replace(procs=(*self.procs[:gpu], left, *self.procs[gpu + 1 :]))

    def current(self, gpu: int, life: int) -> Proc | None:
        """The process of that life, if it lives and was not given up."""
        for one in self.procs[gpu]:
            if one.life == life and one.mode != "dead" and not one.fenced:
                return one
        return None
