"""Which groups of a hurt cluster are put together into replicas, by numbers only.

In: how many groups live at each degree. Out: how many replicas consist of which degrees. DESIGN
"Policies": a replica is as slow as its slowest stage, so hurt groups are put together (packed), or
given the stages with fewer layers, which have time to spare (spread). Knows nothing of batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from nonuniform.placement.job import TrainingJob
from nonuniform.placement.policy import Packing

Runs = list[tuple[int, int]]
"""[(degree, number of groups), ...], descending in degree."""

Team = tuple[tuple[int, ...], int]
"""(degrees by stage, descending; number of replicas)."""


def teams(runs: Runs, replicas: int, job: TrainingJob, packing: Packing) -> list[Team]:
    """At most `replicas` replicas of the best groups; those with the best groups come first."""
    formed = min(replicas, sum(number for _, number in runs) // job.stages)
    short = job.short_stages
    if packing != "spread" or not short:
        return list(_chunks(runs, job.stages, formed))
    long = job.stages - short
    best, rest = _split(runs, formed * long)
    return list(_side_by_side(_chunks(best, long, formed), _chunks(rest, short, formed)))


def _chunks(runs: Runs, size: int, number: int) -> Iterator[Team]:
    """The first `number` times `size` groups, cut into pieces of `size`."""
    piece: tuple[int, ...] = ()
    for degree, groups in runs:
        if piece:
            taken = min(size - len(piece), groups)
            piece += (degree,) * taken
            groups -= taken
            if len(piece) < size:
                continue
            yield piece, 1
            number -= 1
            piece = ()
        whole = min(groups // size, number)
        if whole:
            yield (degree,) * size, whole
            number -= whole
        if not number:
            return
        piece = (degree,) * (groups - whole * size)


def _split(runs: Runs, groups: int) -> tuple[Runs, Runs]:
    """The first `groups` groups, and the others."""
    first: Runs = []
    others: Runs = []
    for degree, number in runs:
        taken = min(number, groups)
        groups -= taken
        if taken:
            first.append((degree, taken))
        if number > taken:
            others.append((degree, number - taken))
    return first, others


def _side_by_side(long: Iterable[Team], short: Iterable[Team]) -> Iterator[Team]:
    """Piece i of the one with piece i of the other, for as many pieces as both have alike."""
    shorts = iter(short)
    tail: tuple[int, ...] = ()
    left = 0
    for head, number in long:
        while number:
            if not left:
                tail, left = next(shorts)
            both = min(number, left)
            yield head + tail, both
            number -= both
            left -= both
