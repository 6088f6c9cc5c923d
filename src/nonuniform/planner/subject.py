"""One job on the GPUs that it has, ready to be simulated.

In: values of a scenario, or a job and a cluster that were read. Out: `Subject`. DESIGN "Words". A
job is looked at on its own domains: what others leave free is not lent to it, and its spares come
out of its own GPUs, so that every answer is given with the same hardware.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from nonuniform.cluster.fleet import Fleet
from nonuniform.cluster.sources.rates import Cause
from nonuniform.cluster.sources.repair import Empirical, Fixed, LogNormal, Repair, Weibull
from nonuniform.perf.hardware import Machine
from nonuniform.perf.parallelism import Parallel, Work
from nonuniform.placement.job import TrainingJob
from nonuniform.scenario.build import ModelSource

ByDegree = tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class Pace:
    """What the step-time model needs; only where the model and the GPU are known."""

    machine: Machine
    work: Work
    parallel: Parallel


@dataclass(frozen=True)
class Subject:
    """`days`: of undisturbed work, and whether that is assumed. `source` draws its histories.
    `rack`: of the catalog, or a file. `speed_at`: a hurt replica's speed by degree; `speedup_at`:
    how far its GPUs can be boosted; () where no model says. `checkpoint_every_s`: as its files say;
    0 where they do not."""

    name: str
    fleet: Fleet
    job: TrainingJob
    source: ModelSource
    days: float
    days_assumed: bool
    preemptible: bool = False
    pace: Pace | None = None
    format: str = "scenario"
    rack: str = ""
    speed_at: ByDegree = ()
    speedup_at: ByDegree = ()
    checkpoint_every_s: float = 0.0
    min_degree_stated: bool = False

    @property
    def replicas(self) -> int:
        groups = self.fleet.domains * (self.fleet.domain // self.job.degree)
        return self.job.replicas or groups // self.job.stages

    @property
    def gpus_per_replica(self) -> int:
        return self.job.degree * self.job.stages

    @property
    def gpus(self) -> int:
        """That train."""
        return self.replicas * self.gpus_per_replica

    def job_beside(self, spares: int) -> TrainingJob:
        """With as many of its replicas as fit beside so many spare domains."""
        fit = self.beside(spares)
        return self.job if self.job.replicas <= fit else replace(self.job, replicas=fit)

    def beside(self, spares: int) -> int:
        """Replicas beside so many spare domains."""
        fit = (self.fleet.domains - spares) * self.groups_per_domain // self.job.stages
        return min(self.replicas, fit)

    def spares_that_cost_as_much(self, spares: int) -> int:
        """The most domains that can be spare for the replicas that this number takes away."""
        left = self.beside(spares)
        return self.fleet.domains - -(-left * self.job.stages // self.groups_per_domain)

    @property
    def groups_per_domain(self) -> int:
        return self.fleet.domain // self.job.degree

    def failures_per_day(self) -> float:
        """Of the GPUs that it owns."""
        return sum(cause.failures_per_day(self.fleet) for cause in self.source.causes)

    def shorter(self, hours: float) -> Subject:
        """With histories of at most so many hours, as in the long run from their beginning."""
        if self.source.hours <= hours:
            return self
        return replace(self, source=replace(self.source, hours=hours, steady_start=True))

    def with_rates(self, factor: float) -> Subject:
        causes = tuple(replace(c, rate_per_day=c.rate_per_day * factor) for c in self.source.causes)
        return replace(self, source=replace(self.source, causes=causes))

    def with_single_gpus(self) -> Subject:
        """As many failures, each of one GPU."""
        causes = tuple(replace(c, blast="gpu", blast_gpus=1) for c in self.source.causes)
        return replace(self, source=replace(self.source, causes=causes))

    def with_repairs(self, factor: float) -> Subject:
        causes = tuple(replace(c, repair=longer(c.repair, factor)) for c in self.source.causes)
        return replace(self, source=replace(self.source, causes=causes))


def longer(repair: Repair, factor: float) -> Repair:
    """The same repairs, each `factor` times as long."""
    if isinstance(repair, Fixed):
        return Fixed(repair.hours * factor)
    if isinstance(repair, LogNormal):
        return replace(repair, median_h=repair.median_h * factor)
    if isinstance(repair, Weibull):
        return replace(repair, scale_h=repair.scale_h * factor)
    assert isinstance(repair, Empirical), type(repair)
    return Empirical(tuple(hours * factor for hours in repair.hours))


def mean_block(causes: tuple[Cause, ...], fleet: Fleet) -> float:
    """GPUs that a failure takes, in the mean."""
    rates = [cause.failures_per_day(fleet) for cause in causes]
    taken = sum(r * c.mean_block(fleet) for r, c in zip(rates, causes, strict=True))
    return taken / sum(rates) if sum(rates) else 1.0
