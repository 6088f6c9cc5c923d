"""Shares by class of replicas: the same as one by one, and the same as the trainer's."""

from __future__ import annotations

import itertools
from collections import Counter
from fractions import Fraction

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
