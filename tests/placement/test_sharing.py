"""Shares by class of replicas: the same as one by one, and the same as the trainer's."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from nonuniform.cluster.health import ClusterState
from nonuniform.cluster.topology import Gpu
from nonuniform.placement.job import TrainingJob
from nonuniform.placement.ntp import NtpOptions, next_placement
from nonuniform.placement.policy import PolicyOptions
from nonuniform.placement.shape import shape
from nonuniform.placement.shares import batch_shares
from nonuniform.placement.sharing import ReplicaClass, class_shares, share_out

FIXED = PolicyOptions("ntp", batch="fixed")


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(1, 6)), min_size=1, max_size=5),
    st.integers(0, 150),
)
def test_classes_are_dealt_to_as_their_replicas_one_by_one(
    classes: list[tuple[int, int]], more: int
) -> None:
    speeds = [speed for speed, _ in classes]
    numbers = [number for _, number in classes]
    grains = sum(numbers) + more
    expanded = [float(speed) for speed, number in classes for _ in range(number)]
    dealt = [
        share + (index < larger)
        for (share, larger), number in zip(
            class_shares(speeds, numbers, grains), numbers, strict=True
        )
        for index in range(number)
    ]
    assert tuple(dealt) == batch_shares(expanded, grains)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.integers(1, 12), min_size=1, max_size=5),
    st.integers(0, 2),
    st.integers(1, 9),
)
def test_no_choice_of_replicas_makes_a_fixed_batch_faster(
    degrees: list[int], dead: int, batch: int
) -> None:
    job = TrainingJob(12, sequences_per_replica=batch)
    replicas = len(degrees) + dead
    teams = [((degree,), number) for degree, number in Counter(degrees).items()]
    shared = share_out(teams, replicas, job, FIXED)
    best = min(
        max(Fraction(share * 12, d) for share, d in zip(shares, chosen, strict=True)) / batch
        for size in range(1, len(degrees) + 1)
        for chosen in itertools.combinations(degrees, size)
        for shares in [batch_shares([float(d) for d in chosen], replicas * batch)]
    )
    assert shared.step_time == best
    assert shared.throughput == 1 / best
    assert _total(shared.classes) == replicas * batch
    assert max(each.share / each.speed for each in shared.classes) == best * batch


@given(st.integers(1, 12), st.integers(1, 6), st.sampled_from([1, 2, 3]))
def test_a_shrinking_share_is_what_a_healthy_step_has_time_for(
    degree: int, batches: int, grain: int
) -> None:
    job = TrainingJob(12, sequences_per_replica=batches * grain, microbatch_sequences=grain)
    options = PolicyOptions("ntp", grain="microbatch")
    shared = share_out([((degree,), 2)], 3, job, options)
    share = _total(shared.classes) // 2
    assert share % grain == 0
    assert Fraction(share * 12, degree) <= job.sequences_per_replica
    assert Fraction((share + grain) * 12, degree) > job.sequences_per_replica or degree == 12
    assert shared.throughput == Fraction(2 * share, 3 * job.sequences_per_replica)


def test_boost_that_just_suffices_suffices() -> None:
    """32/30 has no exact float; the floor of a share would show it."""
    job = TrainingJob(32, sequences_per_replica=8)
    options = PolicyOptions("ntp-pw", max_speedup=32 / 30)
    (whole,) = share_out([((30,), 1)], 1, job, options).classes
    assert whole == ReplicaClass(1, (30,), Fraction(1), 8, boosted=True)


def test_a_batch_at_a_degree_stands_unless_boost_gives_all() -> None:
    job = TrainingJob(32, sequences_per_replica=8)
    shares = {
        (kind, degree): share_out(
            [((degree,), 1)],
            1,
            job,
            PolicyOptions(kind, batch_at=((30, 6), (28, 5)), max_speedup=1.1),
        )
        .classes[0]
        .share
        for kind in ("ntp", "ntp-pw")
        for degree in (30, 29, 28)
    }
    assert [shares["ntp", d] for d in (30, 29, 28)] == [6, 7, 5]
    assert [shares["ntp-pw", d] for d in (30, 29, 28)] == [8, 7, 5]


def shares_at(degrees: range, **options: Any) -> list[Any]:
    """Of one replica of 40 sequences at each degree, in tokens."""
    job = TrainingJob(32, sequences_per_replica=40)
    policy = PolicyOptions(grain="token", **options)
    return [share_out([((d,), 1)], 1, job, policy).classes[0].share for d in degrees]


def test_a_speed_that_is_given_stands_in_place_of_the_share_of_gpus() -> None:
    found = shares_at(range(31, 28, -1), kind="ntp", speed_at=((30, 0.9), (31, 0.925)))
    assert found == [37, 36, Fraction(40 * 29, 32)]


def test_boost_differs_by_degree_and_never_makes_a_lower_degree_faster() -> None:
    """At 30: 30/32 x 1.04; at 28 it would be 28/32 x 1.2 = 1.05, and is what 30 is."""
    boosts = ((28, 1.2), (30, 1.04))
    found = shares_at(range(30, 27, -1), kind="ntp-pw", speedup_at=boosts, max_speedup=1.3)
    assert found == [39, 39, 39]
    alone = shares_at(range(28, 27, -1), kind="ntp-pw", speedup_at=((28, 1.04),), max_speedup=1.3)
    assert alone == [Fraction(40 * 28 * 104, 32 * 100)]


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 12), st.integers(0, 11), st.integers(1, 3), st.booleans(), st.data())
def test_speeds_as_the_share_of_gpus_change_nothing(
    degree: int, lost: int, stages: int, fixed: bool, data: st.DataObject
) -> None:
    lost = min(lost, degree - 1)
    layers = data.draw(st.integers(stages, 3 * stages))
    job = TrainingJob(degree, stages, sequences_per_replica=8, layers=layers)
    usual = PolicyOptions("ntp-pw", batch="fixed" if fixed else "shrink", max_speedup=1.15)
    given_ = tuple((d, d / degree) for d in range(1, degree + 1))
    told = replace(usual, speed_at=given_, speedup_at=tuple((d, 1.15) for d, _ in given_))
    teams = [((degree,) * (stages - 1) + (degree - lost,), 1), ((degree,) * stages, 2)]
    assert share_out(teams, 3, job, told) == share_out(teams, 3, job, usual)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.integers(0, 6), min_size=1, max_size=6),
    st.integers(1, 6),
    st.integers(6, 14),
)
def test_the_trainer_deals_the_same_shares_to_the_same_degrees(
    lost: list[int], least: int, batch: int
) -> None:
    lost.sort()
    assume(6 - lost[0] >= least)
    down = frozenset(Gpu(replica, index) for replica, n in enumerate(lost) for index in range(n))
    state = ClusterState(len(lost), 6, down)
    trained, _ = next_placement(state, NtpOptions(least, len(lost) * batch, borrow=False))
    job = TrainingJob(6, sequences_per_replica=batch)
    options = PolicyOptions("ntp", min_degree=least, batch="fixed")
    simulated = shape(tuple(sorted(Counter(lost).items())), 6, job, options)
    rows = [(each.degrees, each.share) for each in simulated.classes for _ in range(each.number)]
    assert rows == [((entry.degree,), entry.share) for entry in trained.replicas]


def _total(classes: tuple[ReplicaClass, ...]) -> Fraction:
    return sum((each.number * Fraction(each.share) for each in classes), Fraction(0))
