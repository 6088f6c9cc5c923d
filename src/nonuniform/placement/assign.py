"""Which domains form which replica.

In: a shape, how many GPUs every domain has lost, who formed what before. Out: for each replica its
groups by stage; of all ways to make that shape one in which the fewest groups move. DESIGN
"Policies". Decides nothing about degrees or shares: that is the shape.

A group is named by a number: groups per domain x domain + its place in the domain, those with the
lowest degree last. Stages with equally many layers are alike, so a group that stays in its replica
keeps its stage as long as its degree is wanted among the stages of that kind.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from nonuniform.errors import BadInput
from nonuniform.placement.flow import greatest
from nonuniform.placement.groups import group_degrees
from nonuniform.placement.job import TrainingJob
from nonuniform.placement.limits import replicas_of
from nonuniform.placement.policy import PolicyOptions
from nonuniform.placement.shape import Shape

Wanted = Counter[tuple[int, int]]
"""(kind of stage: 0 long, 1 short; degree) -> number of groups."""


@dataclass(frozen=True)
class Assignment:
    """`replicas[r][stage]` is a group, `()` a replica that doesn't work; `classes[r]` is its place
    in the classes of the shape, -1 for none."""

    replicas: tuple[tuple[int, ...], ...]
    classes: tuple[int, ...]

    def moves_from(self, before: Assignment) -> int:
        """Groups that work where they did not work before."""
        return sum(
            was[stage : stage + 1] != (group,)
            for groups, was in zip(self.replicas, before.replicas, strict=True)
            for stage, group in enumerate(groups)
        )


def at_home(domains: int, domain: int, job: TrainingJob, options: PolicyOptions) -> Assignment:
    """All healthy: replicas of successive groups; what is left at the end are spares."""
    replicas = replicas_of(domains, domain, job, options)
    groups = tuple(
        tuple(range(replica * job.stages, (replica + 1) * job.stages))
        for replica in range(replicas)
    )
    return Assignment(groups, (0,) * replicas)


def assign(
    shape: Shape,
    lost_by_domain: Sequence[int],
    domain: int,
    job: TrainingJob,
    options: PolicyOptions,
    before: Assignment | None = None,
) -> Assignment:
    """`before`: None for all at home. The shape must be that of these domains."""
    if before is None:
        before = at_home(len(lost_by_domain), domain, job, options)
    degrees = _degrees(shape, lost_by_domain, domain, job, options)
    wanted = [_wanted(each.degrees, job) for each in shape.classes]
    classes = _classes(shape, wanted, _held(before, degrees, job))
    kept = [
        _kept(groups, degrees, wanted[index], job) if index >= 0 else ({}, Counter())
        for groups, index in zip(before.replicas, classes, strict=True)
    ]
    free = _free(degrees, {group for stays, _ in kept for group in stays.values()})
    replicas = tuple(
        _filled(stays, missing, free, job) if index >= 0 else ()
        for (stays, missing), index in zip(kept, classes, strict=True)
    )
    return Assignment(replicas, classes)


def _degrees(
    shape: Shape,
    lost_by_domain: Sequence[int],
    domain: int,
    job: TrainingJob,
    options: PolicyOptions,
) -> dict[int, int]:
    """group -> the degree at which it works or could work; dead groups are left out."""
    per_domain = domain // job.degree
    degrees = {
        where * per_domain + index: degree
        for where, lost in enumerate(lost_by_domain)
        for index, degree in enumerate(group_degrees(lost, domain, job, options))
    }
    if not options.one_degree:
        return degrees
    # All hurt groups of this shape run at one degree, if any does.
    floor = min((each.degrees[-1] for each in shape.classes), default=job.degree)
    return {g: d if d == job.degree else floor for g, d in degrees.items() if d >= floor}


def _kind(stage: int, job: TrainingJob) -> int:
    return int(stage >= job.stages - job.short_stages)


def _wanted(degrees: Sequence[int], job: TrainingJob) -> Wanted:
    return Counter((_kind(stage, job), degree) for stage, degree in enumerate(degrees))


def _held(before: Assignment, degrees: dict[int, int], job: TrainingJob) -> list[Wanted]:
    return [
        Counter(
            (_kind(stage, job), degrees[group])
            for stage, group in enumerate(groups)
            if group in degrees
        )
        for groups in before.replicas
    ]


def _classes(shape: Shape, wanted: Sequence[Wanted], held: Sequence[Wanted]) -> tuple[int, ...]:
    """The class of each replica, so that as many groups as possible can stay."""
    alike: dict[frozenset[tuple[tuple[int, int], int]], list[int]] = defaultdict(list)
    for replica, has in enumerate(held):
        alike[frozenset(has.items())].append(replica)
    numbers = [each.number for each in shape.classes]
    worth = [
        [(held[members[0]] & wants).total() for wants in wanted] + [0] for members in alike.values()
    ]
    places = [*numbers, len(held) - sum(numbers)]
    sent = greatest([len(members) for members in alike.values()], places, worth)
    classes = [-1] * len(held)
    for members, row in zip(alike.values(), sent, strict=True):
        order = (index for index, number in enumerate(row) for _ in range(number))
        for replica, index in zip(members, order, strict=True):
            classes[replica] = index if index < len(numbers) else -1
    return tuple(classes)


def _kept(
    groups: Sequence[int], degrees: dict[int, int], wanted: Wanted, job: TrainingJob
) -> tuple[dict[int, int], Wanted]:
    """stage -> the group that stays there; what is still wanted."""
    missing = wanted.copy()
    stays = {}
    for stage, group in enumerate(groups):
        place = (_kind(stage, job), degrees.get(group, 0))
        if missing[place]:
            missing[place] -= 1
            stays[stage] = group
    return stays, missing


def _free(degrees: dict[int, int], kept: set[int]) -> dict[int, Iterator[int]]:
    free: dict[int, list[int]] = defaultdict(list)
    for group in sorted(degrees.keys() - kept):
        free[degrees[group]].append(group)
    return {degree: iter(groups) for degree, groups in free.items()}


def _filled(
    stays: dict[int, int], missing: Wanted, free: dict[int, Iterator[int]], job: TrainingJob
) -> tuple[int, ...]:
    """The stages that are empty, the best groups first."""
    lacking = {
        kind: iter(
            sorted(
                (d for (k, d), n in missing.items() if k == kind for _ in range(n)), reverse=True
            )
        )
        for kind in (0, 1)
    }
    groups = []
    for stage in range(job.stages):
        if stage in stays:
            groups.append(stays[stage])
            continue
        group = next(free.get(next(lacking[_kind(stage, job)]), iter(())), None)
        if group is None:
            raise BadInput(
                "the shape is not that of these domains: it wants more groups of a degree"
            )
        groups.append(group)
    return tuple(groups)
