"""What a job does with a list of hurt domains: every group, replica and grain, one by one.

In: how many GPUs each domain lost, the job, the options of a policy. Out: throughput, working GPUs
and boosted replicas, as exact fractions. Knows nothing of time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from math import ceil, floor

from nonuniform.placement.job import TrainingJob
from nonuniform.placement.policy import PolicyOptions


@dataclass(frozen=True)
class Work:
    """What the job does in one state."""

    throughput: Fraction
    busy: Fraction
    boosted: int


@dataclass(frozen=True)
class Replica:
    """One replica: the degree of its stages, those with most layers first."""

    degrees: tuple[int, ...]
    speed: Fraction
    boosted: bool


COSTS = ("detect_s", "regroup_s", "transfer_s", "restart_s", "redo_s", "checkpoint_every_s")


@dataclass(frozen=True)
class Case:
    """What does not change while the cluster does."""

    domains: int
    domain: int
    job: TrainingJob
    options: PolicyOptions

    @property
    def groups(self) -> int:
        """Per domain."""
        return self.domain // self.job.degree

    @property
    def replicas(self) -> int:
        places = (self.domains - self.options.spare_domains) * self.groups
        return self.job.replicas or places // self.job.stages

    @property
    def in_place(self) -> bool:
        return self.options.packing == "none" or self.options.repack == "never"

    @cached_property
    def without_costs(self) -> Case:
        """The same job at any one moment: what is worked out for it is kept."""
        options = self.options
        repack = "never" if options.repack == "never" else "at-once"
        free = replace(options, repack=repack, **dict.fromkeys(COSTS, 0.0))  # type: ignore[arg-type]
        return replace(self, options=free)

    @property
    def planned_gpus(self) -> int:
        return self.replicas * self.job.stages * self.job.degree


IDLE = Work(Fraction(0), Fraction(0), 0)


def work(case: Case, lost: Sequence[int]) -> Work:
    """The state of the job when domain i has lost `lost[i]` GPUs."""
    return _work(case.without_costs, tuple(lost))


@lru_cache(maxsize=100_000)
def _work(case: Case, lost: tuple[int, ...]) -> Work:
    places = [place for gone in lost for place in degrees_of_domain(case, gone)]
    if case.options.kind == "uniform" and case.options.on_failure == "wait":
        return _all_or_nothing(case, places)
    return max((_train(case, way) for way in _ways(case, places)), key=lambda w: w.throughput)


def degrees_of_domain(case: Case, lost: int) -> list[int]:
    """The degree of every group of a domain, 0 for a dead one."""
    healthy = case.domain - lost
    degrees: list[int] = []
    for _ in range(case.groups):
        if healthy >= case.job.degree:
            degree = case.job.degree
        elif case.options.kind in ("uniform", "dp-drop"):
            degree = 0
        else:
            # No second hurt group: what is left of the domain idles.
            hurt_before = any(d < case.job.degree for d in degrees)
            fits = [d for d in _reduced(case) if d <= healthy]
            degree = 0 if hurt_before or not fits else max(fits)
        degrees.append(degree)
        healthy -= degree
    return degrees


def _reduced(case: Case) -> list[int]:
    """The legal degrees below the full one, the highest first."""
    options = case.options
    every = range(case.job.degree - 1, options.min_degree - 1, -1)
    return [d for d in every if not options.degrees or d in options.degrees]


def _ways(case: Case, places: list[int]) -> list[list[int]]:
    """What the groups may run at: one way, or with one degree for the job a way per degree that a
    hurt group has, the highest first."""
    full = case.job.degree
    hurt = sorted({d for d in places if 0 < d < full}, reverse=True)
    if not case.options.one_degree or not hurt:
        return [places]
    return [[d if d == full else (one if d >= one else 0) for d in places] for one in hurt]


def _all_or_nothing(case: Case, places: list[int]) -> Work:
    wanted = case.replicas * case.job.stages
    usable = places[:wanted] if case.in_place else places
    if usable.count(case.job.degree) < wanted:
        return IDLE
    return Work(Fraction(1), Fraction(case.planned_gpus), 0)


# ------------------------------------------------------------------------------------- replicas


def _train(case: Case, places: list[int]) -> Work:
    replicas = form(case, places, case.replicas)
    if case.options.batch == "fixed":
        return _fixed(case, replicas)
    return _total(case, replicas, [_shrunk_share(case, r) for r in replicas], Fraction(1))


def form(case: Case, places: list[int], at_most: int) -> list[Replica]:
    """Which groups make a replica together."""
    stages = case.job.stages
    live = sorted((d for d in places if d > 0), reverse=True)
    number = min(at_most, len(live) // stages)
    if case.in_place:
        homes = [places[r * stages : (r + 1) * stages] for r in range(at_most)]
        chosen = [sorted(h, reverse=True) for h in homes if len(h) == stages and all(h)]
    elif case.options.packing == "spread":
        short = stages - sum(1 for n in _layers(case) if n == max(_layers(case)))
        long = stages - short
        first, rest = live[: number * long], live[number * long :]
        chosen = [
            first[i * long : (i + 1) * long] + rest[i * short : (i + 1) * short]
            for i in range(number)
        ]
    else:
        chosen = [live[i * stages : (i + 1) * stages] for i in range(number)]
    return [_replica(case, tuple(c)) for c in chosen]


def _layers(case: Case) -> list[int]:
    """Of every stage, the long ones first."""
    layers, stages = case.job.layers or case.job.stages, case.job.stages
    return [layers // stages + (1 if s < layers % stages else 0) for s in range(stages)]


@lru_cache(maxsize=100_000)
def _replica(case: Case, degrees: tuple[int, ...]) -> Replica:
    layers = _layers(case)
    loads = [Fraction(n * case.job.degree, d) for n, d in zip(layers, degrees, strict=True)]
    speed = max(layers) / max(loads)
    if case.options.kind != "ntp-pw":
        return Replica(degrees, speed, False)
    # The figure that a person wrote, not its nearest binary: 5/6 boosted by 1.2 is 1.
    faster = min(Fraction(1), speed * Fraction(str(case.options.max_speedup)))
    return Replica(degrees, faster, faster != speed)


# ---------------------------------------------------------------------------------------- batch


def _grain(case: Case) -> int:
    return case.job.microbatch_sequences if case.options.grain == "microbatch" else 1


def _shrunk_share(case: Case, replica: Replica) -> Fraction:
    """Sequences per step of a replica that must not make the step longer."""
    table = dict(case.options.batch_at)
    if min(replica.degrees) in table and replica.speed < 1:
        return Fraction(table[min(replica.degrees)])
    batch = case.job.sequences_per_replica * replica.speed
    if case.options.grain == "token":
        return batch
    return Fraction(floor(batch / _grain(case)) * _grain(case))


def _fixed(case: Case, replicas: list[Replica]) -> Work:
    """The whole batch, dealt to those replicas with which the step is shortest."""
    whole = case.replicas * case.job.sequences_per_replica
    best, best_shares, best_time = replicas[:0], [], None
    for some in _prefixes(replicas):
        shares = _deal(case, some, whole)
        step = max(s / r.speed for s, r in zip(shares, some, strict=True))
        if best_time is None or step <= best_time:
            best, best_shares, best_time = some, shares, step
    if best_time is None:
        return IDLE
    return _total(case, best, best_shares, best_time / case.job.sequences_per_replica)


def _prefixes(replicas: list[Replica]) -> list[list[Replica]]:
    """The fastest class of equal replicas, the fastest two, and so on."""
    by_speed = sorted(replicas, key=lambda r: (r.speed, r.degrees), reverse=True)
    ends = [i for i in range(1, len(by_speed)) if by_speed[i] != by_speed[i - 1]]
    return [by_speed[:end] for end in [*ends, len(by_speed)] if end]


def _deal(case: Case, replicas: list[Replica], whole: int) -> list[Fraction]:
    """One grain after the other, to whom it delays least, of equals the first; nobody without."""
    if case.options.grain == "token":
        together = sum(r.speed for r in replicas)
        return [whole * r.speed / together for r in replicas]
    grain = _grain(case)
    shares = [Fraction(grain) for _ in replicas]
    for _ in range(whole // grain - len(replicas)):
        first = min(
            range(len(replicas)), key=lambda i: ((shares[i] + grain) / replicas[i].speed, i)
        )
        shares[first] += grain
    return shares


def _total(case: Case, replicas: list[Replica], shares: list[Fraction], step: Fraction) -> Work:
    whole, degree = case.job.sequences_per_replica, case.job.degree
    busy, boosted = Fraction(0), 0
    for replica, share in zip(replicas, shares, strict=True):
        if share == 0:
            continue
        boosted += replica.boosted
        for d in replica.degrees:
            busy += d if replica.boosted else min(Fraction(d), share / whole * degree / step)
    done = sum(shares, Fraction(0)) / step / (case.replicas * whole)
    return Work(min(Fraction(1), done), busy, boosted)


# --------------------------------------------------------------------------------------- spares


def spares_needed(case: Case, lost: Sequence[int]) -> int:
    """Healthy domains to add until nothing is missing."""
    return _spares_needed(case.without_costs, tuple(sorted(lost)))


@lru_cache(maxsize=100_000)
def _spares_needed(case: Case, lost: tuple[int, ...]) -> int:
    by_domain = case.options.kind in ("uniform", "dp-drop")
    unit = case.options.spare_unit or ("domain" if by_domain else "replica")
    # To add domains means to move groups into them, also for a policy that never moves one.
    options = replace(case.options, packing="packed", repack="at-once") if case.in_place else None
    free = replace(case, job=replace(case.job, replicas=case.replicas))
    free = replace(free, options=options) if options else free
    number = 0
    while True:
        if unit == "domain":
            domains = number
            enough = work(free, [*lost, *[0] * domains]).throughput >= 1
        else:
            domains = ceil(Fraction(number * case.job.stages, case.groups))
            enough = _enough(free, [*lost, *[0] * domains], case.replicas + number)
        if enough:
            return domains
        number += 1


def _enough(case: Case, lost: Sequence[int], at_most: int) -> bool:
    """Whether so many replicas do the whole batch in the time of a healthy step."""
    places = [place for gone in lost for place in degrees_of_domain(case, gone)]
    whole = case.replicas * case.job.sequences_per_replica
    return any(
        sum(_shrunk_share(case, r) for r in form(case, way, at_most)) >= whole
        for way in _ways(case, places)
    )
