"""What every state of a cluster is worth under one policy, worked out once and kept.

In: a cluster's size, a job, a policy. Out: the kinds that tell states apart, and for a state its
throughput, busy GPUs, boosted replicas and spares needed, from the same `shape` as everywhere.
DESIGN "Policies". Knows no time. A book lives as long as its process, so that the seeds of a
simulation share it: they pass through much the same states. What no figure here can tell apart is
one kind, so that a history has few states.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nonuniform.placement.groups import degrees_by_lost
from nonuniform.placement.job import TrainingJob
from nonuniform.placement.policy import PolicyOptions
from nonuniform.placement.shape import Shape, replicas_of, shape, shape_in_place
from nonuniform.placement.sharing import Share, pace_of
from nonuniform.placement.spares import spares_needed
from nonuniform.sim.instants import Moves
from nonuniform.sim.states import KindChanges

Ints = npt.NDArray[np.int64]
Numbers = tuple[tuple[int, int], ...]


class Worth(NamedTuple):
    """Of one state: relative to the healthy job, in GPUs, and as a share of the replicas."""

    throughput: float
    busy_gpus: float
    boosted_share: float


class Book:
    """One cluster, one job, one policy."""

    def __init__(self, domains: int, domain: int, job: TrainingJob, options: PolicyOptions) -> None:
        self.replicas = replicas_of(domains, domain, job, options)
        self.trained_gpus = self.replicas * job.stages * job.degree
        self.in_place = options.in_place
        self._domains, self._domain = domains, domain
        self._job, self._options = job, options
        self._groups = degrees_by_lost(domain, job, options)
        # Of numbers of lost GPUs that leave the same groups, the lowest stands for all.
        self._left = _first_equal(self._groups)
        self._alike = _alike(job, options)
        merged = [tuple(self._alike.get(d, d) for d in groups) for groups in self._groups]
        self._kind = _first_equal(merged)
        dead = (0,) * (domain // job.degree)
        self._places = [(*groups, *dead)[: len(dead)] for groups in self._groups]
        self._worth: dict[Numbers, Worth] = {}
        self._spares: dict[Numbers, int] = {}
        # In place, kinds are degrees of whole replicas, numbered as they are met.
        self._replicas_met: dict[tuple[int, ...], int] = {}

    def regrouped(self, moves: Moves) -> npt.NDArray[np.bool_]:
        """Which moves change what a domain can do."""
        return np.not_equal(self._left[moves.before], self._left[moves.after])

    def by_domain(self, moves: Moves) -> KindChanges:
        """Items are domains, their kinds numbers of lost GPUs."""
        before, after = self._kind[moves.before], self._kind[moves.after]
        return KindChanges(self._domains, 0, moves.instant, before, after)

    def by_item(self, moves: Moves) -> KindChanges:
        """What `worth` wants: by domain, or for a placement in place by replica."""
        return self._by_replica(moves) if self.in_place else self.by_domain(moves)

    def worth(self, numbers: Numbers) -> Worth:
        """Of a state in the kinds of `by_item`."""
        known = self._worth.get(numbers)
        if known is None:
            made = self._shape(numbers)
            boosted = sum(c.number for c in made.classes if c.boosted)
            known = Worth(made.throughput, made.busy_gpus, boosted / self.replicas)
            self._worth[numbers] = known
        return known

    def spares(self, numbers: Numbers) -> int:
        """Spare domains without which this state is not whole, in the kinds of `by_domain`."""
        known = self._spares.get(numbers)
        if known is None and self._is_whole(numbers):
            known = self._spares[numbers] = 0
        if known is None:
            known = spares_needed(numbers, self._domain, self._job, self._options)
            self._spares[numbers] = known
        return known

    def _is_whole(self, numbers: Numbers) -> bool:
        """Known to be, without asking: a job that loses nothing needs no spares."""
        met = None if self.in_place else self._worth.get(numbers)
        return met is not None and met.throughput >= 1.0

    def _shape(self, numbers: Numbers) -> Shape:
        if not self.in_place:
            return shape(numbers, self._domain, self._job, self._options)
        met = list(self._replicas_met)
        homes = sorted(((met[kind], number) for kind, number in numbers), reverse=True)
        return shape_in_place(tuple(homes), self._domain, self._job, self._options)

    def _by_replica(self, moves: Moves) -> KindChanges:
        """Replica r has the groups r x stages, ... of the domains in their order."""
        stages, groups = self._job.stages, self._domain // self._job.degree
        first = self._met((self._job.degree,) * stages)
        lost: dict[int, int] = {}
        kinds: dict[int, int] = {}
        rows: list[tuple[int, int, int]] = []
        which = np.flatnonzero(self.regrouped(moves))
        columns = (moves.instant[which], moves.domain[which], moves.after[which])
        for instant, domain, after in zip(*(c.tolist() for c in columns), strict=True):
            lost[domain] = after
            last = min((domain * groups + groups - 1) // stages, self.replicas - 1)
            for replica in range(domain * groups // stages, last + 1):
                kind = self._met(self._home(replica, lost))
                rows.append((instant, kinds.get(replica, first), kind))
                kinds[replica] = kind
        table = np.array(rows, np.int64).reshape(-1, 3)
        return KindChanges(self.replicas, first, table[:, 0], table[:, 1], table[:, 2])

    def _home(self, replica: int, lost: dict[int, int]) -> tuple[int, ...]:
        """The degrees of a replica's own groups, descending; all 0 if one of them is dead."""
        stages, groups = self._job.stages, self._domain // self._job.degree
        degrees = [
            self._places[lost.get(number // groups, 0)][number % groups]
            for number in range(replica * stages, (replica + 1) * stages)
        ]
        lowest = min(degrees)
        if not lowest:
            return (0,) * stages
        if self._alike:
            return (self._alike[lowest],) * stages
        return tuple(sorted(degrees, reverse=True))

    def _met(self, degrees: tuple[int, ...]) -> int:
        return self._replicas_met.setdefault(degrees, len(self._replicas_met))


def _first_equal(groups: Sequence[tuple[int, ...]]) -> Ints:
    first: dict[tuple[int, ...], int] = {}
    return np.array([first.setdefault(g, lost) for lost, g in enumerate(groups)], np.int64)


def _alike(job: TrainingJob, options: PolicyOptions) -> dict[int, int]:
    """Degrees that a replica's share does not tell apart -> the highest of them; empty where more
    than the share of the slowest stage counts.

    With 8 sequences, degrees 31 to 28 of 32 all take 7. Unboosted GPUs are as busy as their share
    makes them, which is never more than the lowest degree can do; so nothing else differs.
    """
    only_share = options.batch == "shrink" and not options.boosts and not options.batch_at
    if options.one_degree or job.short_stages or not only_share:
        return {}
    pace = pace_of(job, options)
    highest: dict[Share, int] = {}
    return {
        degree: highest.setdefault(pace.share(pace.paced(((degree,) * job.stages, 1))), degree)
        for degree in range(job.degree, 0, -1)
    }


@lru_cache(maxsize=256)
def book(domains: int, domain: int, job: TrainingJob, options: PolicyOptions) -> Book:
    """The one of this process."""
    return Book(domains, domain, job, options)
