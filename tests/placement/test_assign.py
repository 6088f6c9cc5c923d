"""Who forms which replica: what the shape says, with the fewest moves."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nonuniform.errors import BadInput
from nonuniform.placement.assign import Assignment, assign, at_home
from nonuniform.placement.flow import greatest
from nonuniform.placement.groups import group_degrees
from nonuniform.placement.job import TrainingJob
from nonuniform.placement.policy import PolicyOptions
from nonuniform.placement.shape import Shape, home_counts, shape, shape_in_place

LOST = st.sampled_from([0, 0, 0, 1, 2, 5, 8])
OPTIONS = st.builds(
    PolicyOptions,
    kind=st.sampled_from(["uniform", "dp-drop", "ntp"]),
    one_degree=st.booleans(),
    batch=st.sampled_from(["shrink", "fixed"]),
    packing=st.sampled_from(["packed", "spread"]),
    min_degree=st.sampled_from([1, 3]),
)
JOBS = st.builds(
    TrainingJob,
    degree=st.sampled_from([4, 8]),
    stages=st.integers(1, 3),
    sequences_per_replica=st.just(8),
    layers=st.sampled_from([0, 4, 5]),
)


def shape_of(lost: list[int], job: TrainingJob, options: PolicyOptions) -> Shape:
    return shape(tuple(sorted(Counter(lost).items())), 8, job, options)


def healthy_degrees(lost: list[int], job: TrainingJob, options: PolicyOptions) -> dict[int, int]:
    return {
        where * (8 // job.degree) + index: degree
        for where, gone in enumerate(lost)
        for index, degree in enumerate(group_degrees(gone, 8, job, options))
    }


@settings(max_examples=300, deadline=None)
@given(st.data(), JOBS, OPTIONS)
def test_replicas_are_those_of_the_shape(
    data: st.DataObject, job: TrainingJob, options: PolicyOptions
) -> None:
    size = data.draw(st.integers(4, 10))
    before: Assignment | None = None
    for _ in range(3):
        lost = data.draw(st.lists(LOST, min_size=size, max_size=size))
        found = shape_of(lost, job, options)
        now = assign(found, lost, 8, job, options, before)
        able = healthy_degrees(lost, job, options)
        used = [group for groups in now.replicas for group in groups]
        assert len(used) == len(set(used)), "a group works once"
        numbers = Counter(index for index in now.classes if index >= 0)
        assert [numbers[i] for i in range(len(found.classes))] == [c.number for c in found.classes]
        long = job.stages - job.short_stages
        for groups, index in zip(now.replicas, now.classes, strict=True):
            wanted = found.classes[index].degrees if index >= 0 else ()
            assert len(groups) == len(wanted)
            for part in (slice(None, long), slice(long, None)):
                degrees = sorted((able[g] for g in groups[part]), reverse=True)
                assert all(d >= w for d, w in zip(degrees, wanted[part], strict=True))
                if not options.one_degree:
                    assert tuple(degrees) == wanted[part]
        assert assign(found, lost, 8, job, options, now).moves_from(now) == 0
        before = now


@settings(max_examples=100, deadline=None)
@given(st.lists(LOST, min_size=4, max_size=6), st.lists(LOST, min_size=4, max_size=6))
def test_no_other_choice_moves_fewer(first: list[int], then: list[int]) -> None:
    job, options = TrainingJob(8, 2, 8), PolicyOptions("ntp")
    size = min(len(first), len(then))
    first, then = first[:size], then[:size]
    before = assign(shape_of(first, job, options), first, 8, job, options)
    found = shape_of(then, job, options)
    now = assign(found, then, 8, job, options, before)
    wanted = Counter(c.degrees for c in found.classes for _ in range(c.number))
    able = healthy_degrees(then, job, options)
    best = size
    replicas = len(before.replicas)
    formed = wanted.total()
    for groups in itertools.permutations(able, 2 * formed):
        pairs = [groups[2 * i : 2 * i + 2] for i in range(formed)]
        if Counter(tuple(sorted((able[g] for g in p), reverse=True)) for p in pairs) != wanted:
            continue
        for where in itertools.combinations(range(replicas), formed):
            moves = sum(
                g != (before.replicas[r][s] if before.replicas[r] else None)
                for r, pair in zip(where, pairs, strict=True)
                for s, g in enumerate(pair)
            )
            best = min(best, moves)
    assert now.moves_from(before) == best


def test_one_hurt_domain_moves_nobody_and_the_second_joins_the_first() -> None:
    job, options = TrainingJob(8, 4, 8), PolicyOptions("ntp")
    home = at_home(16, 8, job, options)
    lost = [0] * 16
    lost[1] = 1
    once = assign(shape_of(lost, job, options), lost, 8, job, options, home)
    assert once.moves_from(home) == 0
    assert once.classes == (1, 0, 0, 0)
    lost[6] = 1
    twice = assign(shape_of(lost, job, options), lost, 8, job, options, once)
    assert twice.moves_from(once) == 2
    together = next(groups for groups in twice.replicas if 6 in groups)
    assert 1 in together


def test_replicas_at_home_stay_at_home() -> None:
    job, options = TrainingJob(8, 2, 8), PolicyOptions("ntp", packing="none", min_degree=4)
    lost = [0, 1, 0, 0, 5, 0, 2, 3]
    homes = home_counts(dict(enumerate(lost)), 8, 8, job, options)
    now = assign(shape_in_place(homes, 8, job, options), lost, 8, job, options)
    assert now.replicas == ((0, 1), (2, 3), (), (6, 7))


def test_a_shape_of_other_domains_is_refused() -> None:
    job, options = TrainingJob(8), PolicyOptions("ntp")
    whole = shape_of([0, 0, 0], job, options)
    with pytest.raises(BadInput, match="not that of these domains"):
        assign(whole, [0, 0, 1], 8, job, options)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_the_greatest_sum_is_found(data: st.DataObject) -> None:
    kinds = data.draw(st.lists(st.integers(1, 2), min_size=1, max_size=3))
    total = sum(kinds)
    cuts = sorted(data.draw(st.lists(st.integers(0, total), min_size=2, max_size=2)))
    places = [cuts[0], cuts[1] - cuts[0], total - cuts[1]]
    row = st.lists(st.integers(0, 4), min_size=3, max_size=3)
    worth = data.draw(st.lists(row, min_size=len(kinds), max_size=len(kinds)))
    sent = greatest(kinds, places, worth)
    assert [sum(each) for each in sent] == kinds
    assert [sum(column) for column in zip(*sent, strict=True)] == places
    singles = [kind for kind, number in enumerate(kinds) for _ in range(number)]
    rooms = [place for place, number in enumerate(places) for _ in range(number)]
    best = max(
        sum(worth[kind][place] for kind, place in zip(singles, order, strict=True))
        for order in set(itertools.permutations(rooms))
    )
    got = sum(n * worth[k][p] for k, each in enumerate(sent) for p, n in enumerate(each))
    assert got == best
