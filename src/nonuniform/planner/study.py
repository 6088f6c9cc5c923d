"""One job, all answers: simulated, priced, chosen.

In: a subject, policies, prices, seeds. Out: `Study`. DESIGN "Policies". First every policy without
spares; then with as many as the histories themselves ask for. Decides by `choose` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from nonuniform.cluster.trace import Trace
from nonuniform.errors import BadInput
from nonuniform.placement.limits import replicas_of
from nonuniform.planner.choose import Choice, choose
from nonuniform.planner.exposure import Exposure, exposure
from nonuniform.planner.figure import Figure
from nonuniform.planner.policies import TODAY, Compared, order_of
from nonuniform.planner.prices import Prices
from nonuniform.planner.subject import Subject
from nonuniform.planner.trials import Candidate, Tallies, Tally, ask
from nonuniform.planner.valuation import Valued, material, today_of, value, worths
from nonuniform.sim.outcome import pool, quantile

MOST_SPARE_SHARE = 0.25  # of the domains; more than that is another cluster
TRACES = 4  # histories that the failed share is taken from


@dataclass(frozen=True)
class Study:
    """`valued`: every candidate; `best`: of each policy the one with the best number of spares."""

    subject: Subject
    rows: Sequence[Compared]
    valued: Mapping[Candidate, Valued]
    best: Mapping[str, Valued]
    choice: Choice
    exposure: Exposure
    traces: Sequence[Trace]
    material: float

    @property
    def today(self) -> Valued:
        return today_of(self.valued)

    @property
    def chosen(self) -> Valued:
        return self.valued[self.choice.chosen]

    def bare(self, name: str) -> Valued:
        """Without spares."""
        return self.valued[name, 0]


@dataclass(frozen=True)
class How:
    """`jobs`: processes; `overheads`: of each policy; `now`: the failed share as a log ends."""

    prices: Prices
    seeds: Sequence[int]
    overheads: Mapping[str, float]
    jobs: int = 1
    now: Figure | None = None
    told: Callable[[str], None] | None = None


def study(subject: Subject, rows: Sequence[Compared], how: How) -> Study:
    if how.told is not None:
        how.told(f"{subject.name}: every policy, with spares and without")
    tried, found = with_spares(subject, rows, how.seeds, how.overheads, how.jobs)
    valued = value(subject, tried, found, how.prices)
    order, least = order_of(rows), material(subject, how.prices)
    best = {row.name: _best_of(valued, row.name, order, least) for row in rows}
    traces = [subject.source(seed) for seed in list(how.seeds)[:TRACES]]
    return Study(
        subject, rows, valued, best, choose(worths(valued), order, least),
        exposure(subject, traces, how.now), traces, least,
    )  # fmt: skip


def with_spares(
    subject: Subject, rows: Sequence[Compared], seeds: Sequence[int],
    overheads: Mapping[str, float], jobs: int = 1,
) -> tuple[list[Compared], Tallies]:  # fmt: skip
    """Every policy without spares, and with as many as its histories ask for."""
    found = ask(subject, rows, seeds, jobs, overheads=overheads)
    spared = [
        row.with_spares(domains)
        for row in rows
        for domains in _numbers_of_spares(subject, row, found[row.name, 0])
    ]
    if spared:
        found |= ask(subject, spared, seeds, jobs, overheads=overheads)
    return [*rows, *spared], found


def _best_of(
    valued: Mapping[Candidate, Valued], name: str, order: Mapping[str, int], least: float
) -> Valued:
    """By the same rule; today is as it is, without spares."""
    own = {c: each for c, each in valued.items() if c[0] == name}
    if name == TODAY:
        return own[name, 0]
    return own[choose(worths(own), order, least).chosen]


def _numbers_of_spares(subject: Subject, row: Compared, tallies: Sequence[Tally]) -> list[int]:
    """Enough for half, for nearly all and for all of the time, where the cluster has room; up to
    where one replica more would have to go."""
    hours = pool([t.spares_hours for t in tallies])
    needed = {quantile(hours, share) for share in (0.5, 0.95, 1.0)} - {0}
    domains = subject.fleet.domains
    asked = sorted({
        subject.spares_that_cost_as_much(n)
        for n in needed
        if n < domains and subject.beside(n) < subject.replicas  # else they are spare as it is
    })  # fmt: skip
    most = int(domains * MOST_SPARE_SHARE)
    return [n for n in asked if n <= most and _fits(subject, row.with_spares(n))]


def _fits(subject: Subject, row: Compared) -> bool:
    try:
        job = subject.job_beside(row.options.spare_domains)
        replicas_of(subject.fleet.domains, subject.fleet.domain, job, row.options)
    except BadInput:
        return False
    return True
