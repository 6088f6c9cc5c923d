"""What the replicas of a job look like on a hurt cluster, by numbers only.

In: how many domains have lost how many GPUs, the job, the policy. Out: how many replicas run at
which degrees, how fast and with which share, what throughput that makes, and why. DESIGN
"Policies". Who forms which replica is `assign.py`. Knows nothing of time: what a change costs is
the simulator's.

Only counts go in, so that a year of a large cluster asks for few different shapes; callers keep
those they have seen.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from nonuniform.errors import BadInput
from nonuniform.placement.groups import degrees_by_lost, group_degrees
from nonuniform.placement.job import TrainingJob
from nonuniform.placement.limits import replicas_of as replicas_of
from nonuniform.placement.packing import Runs, Team, teams
from nonuniform.placement.policy import PolicyOptions
from nonuniform.placement.sharing import ReplicaClass as ReplicaClass
from nonuniform.placement.sharing import Share, Shared, share_out

Counts = tuple[tuple[int, int], ...]
"""((lost GPUs, number of domains), ...), ascending in lost, all domains counted, numbers > 0."""

HomeCounts = tuple[tuple[tuple[int, ...], int], ...]
"""((degrees of a replica's home groups, descending, 0 for a dead one), number of replicas), ..."""


@dataclass(frozen=True)
class Shape:
    """`classes`: the replicas that work, the fastest first; `replicas`: of the whole job;
    `throughput` against the whole job; `busy_gpus`: GPUs' worth of work. The reason is put into
    words when somebody asks for it, since a simulation never does."""

    classes: tuple[ReplicaClass, ...]
    replicas: int
    throughput: float
    busy_gpus: float
    tell: Callable[[], str] = field(repr=False, compare=False)

    @property
    def reason(self) -> str:
        return self.tell()


@dataclass(frozen=True)
class _Scene:
    """What the reason tells beside the replicas."""

    replicas: int
    groups: int
    per_domain: int
    job: TrainingJob
    options: PolicyOptions


def shape(counts: Counts, domain: int, job: TrainingJob, options: PolicyOptions) -> Shape:
    """Replicas put together from all domains; with `packing = "none"`, see `shape_in_place`."""
    if options.in_place:
        raise BadInput('[policies] packing = "none": replicas keep their own domains')
    domains = sum(number for _, number in counts)
    replicas = replicas_of(domains, domain, job, options)
    per_domain = domain // job.degree
    scene = _Scene(replicas, domains * per_domain, per_domain, job, options)
    runs = runs_of(counts, domain, job, options)
    if options.waits:
        whole = sum(number for _, number in runs)
        return _all_or_nothing(scene, whole, whole >= replicas * job.stages)

    def formed(floor: int) -> list[Team]:
        return teams(capped(runs, job.degree, floor), replicas, job, options.packing)

    if not options.one_degree:
        return _shape(scene, share_out(formed(0), replicas, job, options), runs)
    floors = (degree for degree, _ in runs)
    shared, floor = _best_floor(scene, floors, formed)
    return _shape(scene, shared, capped(runs, job.degree, floor))


def shape_in_place(
    counts: HomeCounts, domain: int, job: TrainingJob, options: PolicyOptions
) -> Shape:
    """Each replica with the groups that it has at home; one dead group, and the replica is out."""
    replicas = sum(number for _, number in counts)
    per_domain = domain // job.degree
    scene = _Scene(replicas, replicas * job.stages, per_domain, job, options)
    runs = _runs((degree, n) for degrees, n in counts for degree in degrees if degree)
    if options.waits:
        whole = sum(number for degree, number in runs if degree == job.degree)
        return _all_or_nothing(scene, whole, whole == replicas * job.stages)

    def formed(floor: int) -> list[Team]:
        return _living_at_home(counts, job.degree, floor)

    if not options.one_degree:
        return _shape(scene, share_out(formed(0), replicas, job, options), runs)
    shared, floor = _best_floor(scene, (degree for degree, _ in runs), formed)
    return _shape(scene, shared, capped(runs, job.degree, floor))


def home_counts(
    lost: Mapping[int, int], domains: int, domain: int, job: TrainingJob, options: PolicyOptions
) -> HomeCounts:
    """`lost`: domain -> lost GPUs; domains that are whole may be left out.

    Replica r has the groups from r * stages on, domain after domain; in a domain those with the
    lowest degree come last.
    """
    replicas = replicas_of(domains, domain, job, options)
    per_domain = domain // job.degree
    hurt: dict[int, list[int]] = {}
    for where, gone in lost.items():
        if not gone:
            continue
        degrees = group_degrees(gone, domain, job, options)
        for index in range(per_domain):
            replica, stage = divmod(where * per_domain + index, job.stages)
            if replica < replicas:
                home = hurt.setdefault(replica, [job.degree] * job.stages)
                home[stage] = degrees[index] if index < len(degrees) else 0
    numbers: dict[tuple[int, ...], int] = {(job.degree,) * job.stages: replicas - len(hurt)}
    for home in hurt.values():
        key = tuple(sorted(home, reverse=True))
        numbers[key] = numbers.get(key, 0) + 1
    return tuple(sorted(((key, n) for key, n in numbers.items() if n), reverse=True))


def runs_of(counts: Counts, domain: int, job: TrainingJob, options: PolicyOptions) -> Runs:
    """The groups that live, by degree."""
    if counts and not 0 <= counts[0][0] <= counts[-1][0] <= domain:
        raise BadInput(f"{counts} lost GPUs, number of domains: none can lose more than {domain}")
    degrees = degrees_by_lost(domain, job, options)
    return _runs((degree, number) for lost, number in counts for degree in degrees[lost])


def capped(runs: Runs, degree: int, floor: int) -> Runs:
    """Hurt groups all at degree `floor`, those below it dead; a floor of 0 leaves all as they are,
    one of the full degree leaves whole groups only."""
    if not floor:
        return runs
    return _runs((d if d == degree else floor, n) for d, n in runs if d >= floor)


def _runs(groups: Iterable[tuple[int, int]]) -> Runs:
    numbers: dict[int, int] = {}
    for degree, number in groups:
        numbers[degree] = numbers.get(degree, 0) + number
    return sorted(numbers.items(), reverse=True)


def _living_at_home(counts: HomeCounts, degree: int, floor: int) -> list[Team]:
    living = []
    for degrees, number in counts:
        if degrees[-1] >= max(1, floor):
            at_one = tuple(d if d == degree or not floor else floor for d in degrees)
            living.append((at_one, number))
    return living


def _best_floor(
    scene: _Scene, degrees: Iterable[int], formed: Callable[[int], list[Team]]
) -> tuple[Shared, int]:
    """The one degree of all hurt groups that gives most; of equal ones the highest."""
    whole = scene.job.degree
    floors = sorted({degree for degree in degrees if degree < whole}, reverse=True) or [whole]
    choices = [
        (share_out(formed(floor), scene.replicas, scene.job, scene.options), floor)
        for floor in floors
    ]
    return max(choices, key=lambda choice: (choice[0].throughput, choice[1]))


def _all_or_nothing(scene: _Scene, whole: int, works: bool) -> Shape:
    job = scene.job
    needed = scene.replicas * job.stages
    if not works:
        return Shape(
            (), scene.replicas, 0.0, 0.0, functools.partial(_reason_to_wait, whole, needed)
        )
    team = ((job.degree,) * job.stages, scene.replicas)
    return _shape(
        scene, share_out([team], scene.replicas, job, scene.options), [(job.degree, whole)]
    )


def _shape(scene: _Scene, shared: Shared, runs: Runs) -> Shape:
    return Shape(
        shared.classes,
        scene.replicas,
        float(shared.throughput),
        _busy_gpus(scene.job, shared),
        functools.partial(_reason, scene, shared, runs),
    )


def _busy_gpus(job: TrainingJob, shared: Shared) -> float:
    """A boosted group is busy throughout; any other as much of the step as its share takes."""
    busy = 0.0
    step_time = float(shared.step_time)
    for each in shared.classes:
        if each.boosted:
            busy += each.number * sum(each.degrees)
            continue
        work = float(each.share) / job.sequences_per_replica * job.degree / step_time
        if work >= each.degrees[0]:
            busy += each.number * sum(each.degrees)
        elif work <= each.degrees[-1]:
            busy += each.number * len(each.degrees) * work
        else:
            busy += each.number * sum(min(degree, work) for degree in each.degrees)
    return busy


def _reason_to_wait(whole: int, needed: int) -> str:
    return f"the job waits: {whole} of {needed} groups whole"


def _reason(scene: _Scene, shared: Shared, runs: Runs) -> str:
    job, replicas = scene.job, scene.replicas
    working = sum(each.number for each in shared.classes)
    lowest: dict[int, int] = {}
    for each in shared.classes:
        lowest[each.degrees[-1]] = lowest.get(each.degrees[-1], 0) + each.number
    hurt = [(degree, number) for degree, number in lowest.items() if degree < job.degree]
    parts = [f"{n} of {replicas} replicas at degree {d}" for d, n in hurt]
    if working < replicas:
        parts.append(f"{working} of {replicas} replicas work")
    boosted = sum(each.number for each in shared.classes if each.boosted)
    if boosted:
        parts.append(f"{boosted} boosted")
    dead = scene.groups - sum(number for _, number in runs)
    if dead:
        noun = "domain" if scene.per_domain == 1 else "group"
        parts.append(f"{dead} {noun}{'s' if dead > 1 else ''} dead")
    if not parts:
        return f"all {replicas} replicas at degree {job.degree}"
    if scene.options.batch == "shrink":
        batch = replicas * job.sequences_per_replica
        parts.append(f"batch {_told(shared.throughput * batch)} of {batch}")
    elif shared.step_time > 1:
        parts.append(f"step {float(shared.step_time) - 1:.1%} longer")
    return ", ".join(parts)


def _told(sequences: Share) -> str:
    return str(sequences) if sequences.denominator == 1 else f"{float(sequences):.1f}"
