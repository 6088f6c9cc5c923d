"""What can never be worse: more choices of a policy, at no cost and without stage slack."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from nonuniform.placement.job import TrainingJob
from nonuniform.placement.policy import PolicyOptions
from nonuniform.placement.shape import Counts, home_counts, shape, shape_in_place
from nonuniform.placement.spares import spares_needed

DOMAIN = 8
LOST = st.lists(st.sampled_from([0, 0, 0, 1, 2, 3, 5, 7, 8]), min_size=4, max_size=24)
JOBS = st.builds(
    TrainingJob,
    degree=st.sampled_from([3, 4, 8]),
    stages=st.integers(1, 4),
    sequences_per_replica=st.sampled_from([2, 4, 6, 12]),
    microbatch_sequences=st.sampled_from([1, 2]),
    replicas=st.sampled_from([0, 1]),
)
OPTIONS = st.builds(
    PolicyOptions,
    kind=st.sampled_from(["ntp", "ntp-pw"]),
    degrees=st.sampled_from([(), (2,), (3, 2), (3, 1)]),
    min_degree=st.integers(1, 3),
    one_degree=st.booleans(),
    batch=st.sampled_from(["shrink", "fixed"]),
    grain=st.sampled_from(["sequence", "microbatch", "token"]),
    packing=st.sampled_from(["packed", "none"]),
    max_speedup=st.sampled_from([1.0, 1.1, 1.15, 1.5]),
)
hurt_jobs = settings(max_examples=200, deadline=None)


def counts_of(lost: list[int]) -> Counts:
    return tuple(sorted(Counter(lost).items()))


def throughput(lost: list[int], job: TrainingJob, options: PolicyOptions) -> float:
    if not options.in_place:
        return shape(counts_of(lost), DOMAIN, job, options).throughput
    homes = home_counts(dict(enumerate(lost)), len(lost), DOMAIN, job, options)
    return shape_in_place(homes, DOMAIN, job, options).throughput


@hurt_jobs
@given(LOST, JOBS, OPTIONS)
def test_reduced_degrees_never_fall_below_dropping(
    lost: list[int], job: TrainingJob, options: PolicyOptions
) -> None:
    dropped = throughput(lost, job, replace(options, kind="dp-drop"))
    assert throughput(lost, job, options) >= dropped
    assert dropped >= throughput(lost, job, replace(options, kind="uniform"))


@hurt_jobs
@given(LOST, JOBS, OPTIONS)
def test_several_degrees_never_fall_below_one(
    lost: list[int], job: TrainingJob, options: PolicyOptions
) -> None:
    several = throughput(lost, job, replace(options, one_degree=False))
    assert several >= throughput(lost, job, replace(options, one_degree=True))


@hurt_jobs
@given(LOST, JOBS, OPTIONS)
def test_a_finer_grain_is_never_worse(
    lost: list[int], job: TrainingJob, options: PolicyOptions
) -> None:
    token, sequence, microbatch = (
        throughput(lost, job, replace(options, grain=grain))  # type: ignore[arg-type]
        for grain in ("token", "sequence", "microbatch")
    )
    assert token >= sequence >= microbatch


@hurt_jobs
@given(LOST, JOBS, OPTIONS)
def test_a_lower_floor_is_never_worse(
    lost: list[int], job: TrainingJob, options: PolicyOptions
) -> None:
    floors = [throughput(lost, job, replace(options, min_degree=floor)) for floor in (1, 2, 3)]
    assert floors == sorted(floors, reverse=True)


@hurt_jobs
@given(LOST, JOBS, OPTIONS)
def test_any_degree_is_never_worse_than_some(
    lost: list[int], job: TrainingJob, options: PolicyOptions
) -> None:
    any_degree = throughput(lost, job, replace(options, degrees=()))
    assert any_degree >= throughput(lost, job, options)


@hurt_jobs
@given(LOST, JOBS, OPTIONS, st.integers(1, 5))
def test_more_spares_are_never_worse(
    lost: list[int], job: TrainingJob, options: PolicyOptions, more: int
) -> None:
    options = replace(options, packing="packed")
    fixed = replace(job, replicas=shape(counts_of(lost), DOMAIN, job, options).replicas)
    for hurt in (0, 1):
        grown = throughput([*lost, *[hurt] * more], fixed, options)
        assert grown >= throughput(lost, fixed, options)


@hurt_jobs
@given(LOST, JOBS, OPTIONS)
def test_power_is_never_worse(lost: list[int], job: TrainingJob, options: PolicyOptions) -> None:
    plain = throughput(lost, job, replace(options, kind="ntp"))
    assert throughput(lost, job, replace(options, kind="ntp-pw")) >= plain


@hurt_jobs
@given(LOST, JOBS, OPTIONS, st.data())
def test_a_further_failure_never_helps(
    lost: list[int], job: TrainingJob, options: PolicyOptions, data: st.DataObject
) -> None:
    where = data.draw(st.integers(0, len(lost) - 1))
    worse = [min(DOMAIN, gone + 1) if d == where else gone for d, gone in enumerate(lost)]
    assert throughput(worse, job, options) <= throughput(lost, job, options)


@hurt_jobs
@given(LOST, JOBS, OPTIONS)
def test_packing_is_never_worse_than_staying_at_home(
    lost: list[int], job: TrainingJob, options: PolicyOptions
) -> None:
    packed = throughput(lost, job, replace(options, packing="packed"))
    assert packed >= throughput(lost, job, replace(options, packing="none"))


@hurt_jobs
@given(LOST, JOBS, OPTIONS)
def test_no_failures_no_loss_and_no_spares(
    lost: list[int], job: TrainingJob, options: PolicyOptions
) -> None:
    assert throughput([0] * len(lost), job, options) == 1
    packed = replace(options, packing="packed")
    if throughput(lost, job, packed) == 1:
        assert spares_needed(counts_of(lost), DOMAIN, job, packed) == 0
