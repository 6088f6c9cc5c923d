"""The numbers behind the paper's figures, from the simulator and from closed forms.

In: numbers of histories, seeds. Out: plain numbers. DESIGN "Policies". What each is compared with
is in `compared.py`. Nothing here is fitted to a published figure.

Two ways: *placements* are so many failed GPUs anywhere in the fleet, at one moment; *histories* are
failures over time, from a fleet in which nothing has failed yet.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from nonuniform.cluster.fleet import Fleet
from nonuniform.cluster.sources.catalog import Catalog
from nonuniform.cluster.sources.generate import generate
from nonuniform.cluster.trace import Trace
from nonuniform.placement.job import TrainingJob
from nonuniform.placement.policy import PolicyOptions
from nonuniform.placement.shape import home_counts, shape, shape_in_place
from nonuniform.sim.engine import simulate_policies
from nonuniform.sim.outcome import Outcome
from nonuniform.sim.paper.setting import FLEET, JOB
from nonuniform.sim.timeline import changes

Policies = Mapping[str, PolicyOptions]


@dataclass(frozen=True)
class Spread:
    """Of one number over histories."""

    mean: float
    sd: float
    low: float
    high: float


def share_of_time_above(
    failed_share: float, catalog: Catalog, hours: float, seeds: int, steady: bool = False
) -> Spread:
    """With more than this share of the GPUs failed."""
    found = []
    for seed in range(seeds):
        trace = generate(FLEET, catalog.causes, hours, seed, steady_start=steady)
        found.append(_share_above(trace, FLEET, failed_share * FLEET.gpus))
    return spread(found)


def _share_above(trace: Trace, fleet: Fleet, gpus: float) -> float:
    steps = changes(trace, fleet)
    failed = np.append(0, np.cumsum(steps.lost - steps.before))
    lasts = np.diff(steps.time_h, prepend=0.0, append=trace.hours)
    return float(lasts[failed > gpus].sum() / trace.hours)


def histories(
    policies: Policies, catalog: Catalog, hours: float, seeds: int, job: TrainingJob = JOB
) -> dict[str, list[Outcome]]:
    """Of each policy, one outcome for each seed; all policies see the same failures."""
    both = {name: (job, options) for name, options in policies.items()}
    runs = [
        simulate_policies(generate(FLEET, catalog.causes, hours, seed), FLEET, both)
        for seed in range(seeds)
    ]
    return {name: [run[name] for run in runs] for name in policies}


def losses_when_failed(
    policies: Policies,
    failed_share: float,
    placements: int,
    job: TrainingJob = JOB,
    domain: int = 32,
) -> dict[str, float]:
    """Mean loss over placements of this share of the fleet's GPUs."""
    failed = round(failed_share * FLEET.gpus)
    drawn = list(_placements(Fleet(FLEET.gpus, domain), failed, placements))
    return {name: _mean_loss(drawn, domain, job, options) for name, options in policies.items()}


def loss_at_the_lowest_degree(
    options: PolicyOptions, failed_share: float, placements: int
) -> float:
    """As above, where every hurt domain runs at the lowest degree that one of them needs: none is
    left out for the sake of the others, as with `one_degree`, unless it is below the minimum."""
    most = FLEET.domain - options.min_degree
    drawn = list(_placements(FLEET, round(failed_share * FLEET.gpus), placements))
    return _mean_loss([_at_the_lowest(lost, most) for lost in drawn], FLEET.domain, JOB, options)


def _at_the_lowest(lost: dict[int, int], most: int) -> dict[int, int]:
    deepest = max((gone for gone in lost.values() if gone <= most), default=0)
    return {domain: max(gone, deepest) for domain, gone in lost.items()}


def _placements(fleet: Fleet, failed: int, number: int) -> Iterator[dict[int, int]]:
    """Domain -> lost GPUs, of the domains that lost some."""
    generator = np.random.default_rng(0)
    for _ in range(number):
        gpus = generator.choice(fleet.gpus, size=failed, replace=False)
        domains, lost = np.unique(gpus[gpus < fleet.in_domains] // fleet.domain, return_counts=True)
        yield dict(zip(domains.tolist(), lost.tolist(), strict=True))


def _mean_loss(
    drawn: list[dict[int, int]], domain: int, job: TrainingJob, options: PolicyOptions
) -> float:
    domains = FLEET.gpus // domain
    if options.in_place:
        homes = Counter(home_counts(lost, domains, domain, job, options) for lost in drawn)
        done = [n * shape_in_place(h, domain, job, options).throughput for h, n in homes.items()]
    else:
        counts = Counter(_counts(lost, domains) for lost in drawn)
        done = [n * shape(c, domain, job, options).throughput for c, n in counts.items()]
    return 1.0 - math.fsum(done) / len(drawn)


def _counts(lost: dict[int, int], domains: int) -> tuple[tuple[int, int], ...]:
    numbers = Counter(lost.values())
    return tuple(sorted({0: domains - len(lost), **numbers}.items()))


def spread(values: list[float]) -> Spread:
    """95% of the values lie from `low` to `high`."""
    low, high = np.quantile(values, [0.025, 0.975])
    return Spread(float(np.mean(values)), float(np.std(values, ddof=1)), float(low), float(high))


def mean_loss(outcomes: list[Outcome]) -> float:
    return math.fsum(o.loss_mean for o in outcomes) / len(outcomes)
