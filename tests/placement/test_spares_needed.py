"""Spare domains for an uninterrupted batch: reference values, and never one too many."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nonuniform.placement.job import TrainingJob
from nonuniform.placement.policy import PolicyOptions
from nonuniform.placement.shape import Counts, shape
from nonuniform.placement.spares import spares_needed

JOB = TrainingJob(32, stages=8, sequences_per_replica=8)
AS_PUBLISHED = PolicyOptions(
    "ntp", degrees=(32, 30, 28), min_degree=28, batch_at=((30, 7), (28, 6))
)


@pytest.mark.parametrize(
    ("number", "spares"),
    [(0, 0), (1, 8), (8, 8), (64, 8), (65, 16), (128, 16), (129, 24), (192, 24)],
)
def test_spare_replicas_make_up_for_the_batch_of_hurt_ones(number: int, spares: int) -> None:
    counts: Counts = ((0, 1024 - number), (2, number)) if number else ((0, 1024),)
    assert spares_needed(counts, 32, JOB, AS_PUBLISHED) == spares
    assert spares_needed(counts, 32, JOB, PolicyOptions("dp-drop")) == number
    assert spares_needed(counts, 32, JOB, PolicyOptions("uniform")) == number
    assert spares_needed(counts, 32, JOB, PolicyOptions("ntp-pw", min_degree=28)) == 0


def test_spare_domains_for_ntp_take_the_places_of_hurt_ones() -> None:
    by_domain = replace(AS_PUBLISHED, spare_unit="domain")
    assert spares_needed(((0, 1000), (1, 24)), 32, JOB, by_domain) == 24


def test_hurt_domains_on_short_stages_need_no_spare() -> None:
    layered = replace(JOB, layers=100)
    options = PolicyOptions("ntp", spare_unit="domain", packing="spread")
    assert spares_needed(((0, 512), (2, 512)), 32, layered, options) == 0
    assert spares_needed(((0, 508), (2, 516)), 32, layered, options) == 4


COUNTS = st.lists(st.sampled_from([0, 0, 0, 1, 2, 5, 8]), min_size=4, max_size=16).map(
    lambda lost: tuple(sorted(Counter(lost).items()))
)


def with_healthy(counts: Counts, more: int) -> Counts:
    numbers = Counter(dict(counts))
    numbers[0] += more
    return tuple(sorted((lost, n) for lost, n in numbers.items() if n))


@settings(max_examples=200, deadline=None)
@given(
    counts=COUNTS,
    degree=st.sampled_from([4, 8]),
    stages=st.integers(1, 3),
    kind=st.sampled_from(["uniform", "dp-drop", "ntp", "ntp-pw"]),
    batch=st.sampled_from(["shrink", "fixed"]),
    one=st.booleans(),
    by_replica=st.booleans(),
)
def test_so_many_are_enough_and_one_less_is_not(
    counts: Counts, degree: int, stages: int, kind: str, batch: str, one: bool, by_replica: bool
) -> None:
    job = TrainingJob(degree, stages, 8)
    options = PolicyOptions(
        kind,  # type: ignore[arg-type]
        batch=batch,  # type: ignore[arg-type]
        one_degree=one,
        spare_unit="replica" if by_replica else "domain",
    )
    replicas = shape(counts, 8, job, options).replicas
    per_domain = 8 // degree
    shrinks = replace(options, batch="shrink", kind="dp-drop" if kind == "uniform" else kind)  # type: ignore[arg-type]

    def enough(more: int) -> bool:
        domains = -(-more * stages // per_domain) if by_replica else more
        formed = replicas + (more if by_replica else 0)
        grown = replace(job, replicas=formed)
        if not by_replica:
            return shape(with_healthy(counts, domains), 8, grown, options).throughput == 1
        got = shape(with_healthy(counts, domains), 8, grown, shrinks)
        return sum(each.number * each.share for each in got.classes) >= replicas * 8

    least = next(more for more in range(100) if enough(more))
    domains = -(-least * stages // per_domain) if by_replica else least
    assert spares_needed(counts, 8, job, options) == domains
