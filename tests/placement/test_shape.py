"""Shapes of a hurt cluster: closed forms, measured reference values, stage slack, GPUs at work."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from statistics import mean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nonuniform.errors import BadInput
from nonuniform.placement.job import TrainingJob
from nonuniform.placement.policy import PolicyOptions
from nonuniform.placement.shape import Counts, Shape, home_counts, shape, shape_in_place

JOB = TrainingJob(32, stages=8, sequences_per_replica=8)
AS_PUBLISHED = PolicyOptions(
    "ntp", degrees=(32, 30, 28), min_degree=28, batch_at=((30, 7), (28, 6))
)
DROP = PolicyOptions("dp-drop")
ANY = PolicyOptions("ntp")


def hurt(number: int, lost: int = 1, domains: int = 1024) -> Counts:
    rows = [(0, domains - number), (lost, number)]
    return tuple((lost, n) for lost, n in rows if n)


@pytest.mark.parametrize("number", [0, 1, 7, 8, 9, 64, 65, 500, 1024])
def test_hurt_domains_put_together_cost_one_replica_in_eight(number: int) -> None:
    replicas = -(-number // 8)
    assert shape(hurt(number), 32, JOB, DROP).throughput == 1 - replicas / 128
    assert shape(hurt(number), 32, JOB, AS_PUBLISHED).throughput == 1 - replicas / 1024


# --------------------------------------------------------------------- random failures
DOMAINS, GPUS = 1024, 32768


def placements(failed: int, number: int) -> list[dict[int, int]]:
    """domain -> lost GPUs, of `number` random placements of single failures."""
    rng = random.Random(4)
    return [
        dict(Counter(gpu // 32 for gpu in rng.sample(range(GPUS), failed))) for _ in range(number)
    ]


def counts_of(lost: dict[int, int]) -> Counts:
    rows = Counter(lost.values())
    return ((0, DOMAINS - len(lost)), *sorted(rows.items()))


def packed(options: PolicyOptions) -> Callable[[dict[int, int]], Shape]:
    return lambda lost: shape(counts_of(lost), 32, JOB, options)


def unpacked(options: PolicyOptions) -> Callable[[dict[int, int]], Shape]:
    at_home = replace(options, packing="none")
    return lambda lost: shape_in_place(
        home_counts(lost, DOMAINS, 32, JOB, at_home), 32, JOB, at_home
    )


SIX_AT_30 = replace(AS_PUBLISHED, batch_at=((30, 6), (28, 6)))


@pytest.mark.parametrize(
    ("form", "loss_percent", "within"),
    [
        (packed(DROP), 12.40, 0.1),
        (packed(AS_PUBLISHED), 1.57, 0.02),
        (packed(SIX_AT_30), 3.10, 0.03),
        (unpacked(DROP), 64.4, 0.5),
        (unpacked(AS_PUBLISHED), 8.1, 0.1),
        (packed(PolicyOptions("ntp-pw", degrees=(32, 30, 28), min_degree=28)), 0.0, 0.0),
    ],
    ids=["dp-drop", "ntp", "six-at-30", "drop-unpacked", "ntp-unpacked", "ntp-pw"],
)
def test_mean_loss_at_four_in_a_thousand(
    form: Callable[[dict[int, int]], Shape], loss_percent: float, within: float
) -> None:
    losses = [100 * (1 - form(lost).throughput) for lost in placements(131, 200)]
    assert mean(losses) == pytest.approx(loss_percent, abs=within)


def all_at_the_lowest(lost: dict[int, int]) -> Shape:
    """All hurt groups at the lowest degree that one of them needs; none may be dropped."""
    deepest = max((gone for gone in lost.values() if gone <= 4), default=0)
    return packed(AS_PUBLISHED)({d: max(gone, deepest) for d, gone in lost.items()})


def test_mean_loss_at_one_degree_depends_on_who_may_be_dropped() -> None:
    """1.92% is the loss where the worst living domain sets the degree; the best degree, at which a
    few such domains may be dropped, costs 1.71%. The spread is that of having such a domain."""
    drawn = placements(131, 500)
    free = packed(replace(AS_PUBLISHED, one_degree=True))
    best, forced = (
        [100 * (1 - f(lost).throughput) for lost in drawn] for f in (free, all_at_the_lowest)
    )
    assert all(a <= b for a, b in zip(best, forced, strict=True))
    assert mean(forced) == pytest.approx(1.92, abs=0.1)
    assert mean(best) == pytest.approx(1.71, abs=0.05)


@pytest.mark.parametrize(
    ("form", "amplification", "within"),
    [
        (packed(DROP), 35.5, 0.5),
        (unpacked(DROP), 225.0, 3.0),
        (packed(AS_PUBLISHED), 4.4, 0.1),
        (packed(ANY), 4.5, 0.1),
        (packed(replace(ANY, grain="token")), 1.2, 0.1),
    ],
    ids=["drop", "drop-unpacked", "published", "any-degree", "tokens"],
)
def test_amplification_at_one_in_a_thousand(
    form: Callable[[dict[int, int]], Shape], amplification: float, within: float
) -> None:
    losses = [1 - form(lost).throughput for lost in placements(33, 200)]
    assert mean(losses) / (33 / GPUS) == pytest.approx(amplification, abs=within)


def test_a_floor_makes_ntp_as_bad_as_dropping_when_a_node_goes() -> None:
    """Each failure takes 8 of 32 GPUs."""
    dropped = shape(hurt(96, lost=8), 32, JOB, DROP).throughput
    for floor, better in ((28, False), (16, True)):
        options = replace(ANY, min_degree=floor)
        assert (shape(hurt(96, lost=8), 32, JOB, options).throughput > dropped) is better


# ------------------------------------------------------------------------------- slack
LAYERED = replace(JOB, layers=100)


def loss(options: PolicyOptions, number: int, lost: int) -> Fraction:
    found = shape(hurt(number, lost), 32, LAYERED, options)
    shares = sum((each.number * Fraction(each.share) for each in found.classes), Fraction(0))
    return 1024 - shares


SPREAD = replace(ANY, packing="spread")


def test_hurt_domains_on_shorter_stages_are_free() -> None:
    """100 layers on 8 stages: four of 13 and four of 12, and 12 * 32/30 is less than 13."""
    assert loss(ANY, 4, 2) == 0, "the lowest degrees take the short stages"
    assert loss(ANY, 5, 2) == 1
    assert loss(ANY, 8, 2) == 1
    assert loss(SPREAD, 8, 2) == 0
    assert loss(SPREAD, 512, 2) == 0
    assert loss(ANY, 512, 2) == 64
    assert loss(SPREAD, 516, 2) == 1, "a replica takes its first on a long stage"


def test_deep_losses_are_better_put_together_than_spread() -> None:
    """With shares in tokens the turn is at 6/7 of the degree: 1 - x < 2 (1 - 13 x / 12)."""
    tokens, spread = replace(ANY, grain="token"), replace(SPREAD, grain="token")
    for lost in range(5, 17):
        assert loss(tokens, 64, lost) < loss(spread, 64, lost)
    for lost in range(1, 5):
        assert loss(tokens, 64, lost) > loss(spread, 64, lost)
    assert loss(ANY, 64, 4) < loss(SPREAD, 64, 4), "whole sequences: 8 replicas of 7 against 16"


@given(st.integers(0, 64), st.integers(0, 32))
def test_without_shorter_stages_spreading_is_packing(number: int, lost: int) -> None:
    counts = hurt(number, lost, 64)
    assert shape(counts, 32, JOB, SPREAD) == shape(counts, 32, JOB, ANY)


# ----------------------------------------------------------------------- plain restatement
COUNTS = st.lists(st.integers(0, 8), min_size=4, max_size=14).map(
    lambda lost: tuple(sorted(Counter(lost).items()))
)


@settings(max_examples=300, deadline=None)
@given(
    counts=COUNTS,
    stages=st.integers(1, 4),
    layers=st.integers(0, 9),
    degree=st.sampled_from([3, 4, 8]),
    batch=st.integers(1, 9),
    least=st.integers(1, 3),
    packing=st.sampled_from(["packed", "spread"]),
)
def test_shape_is_what_its_rules_say_group_by_group(
    counts: Counts, stages: int, layers: int, degree: int, batch: int, least: int, packing: str
) -> None:
    layers = layers if layers >= stages else 0
    job = TrainingJob(degree, stages, batch, layers=layers)
    options = PolicyOptions("ntp", min_degree=least, packing=packing)  # type: ignore[arg-type]
    groups: list[int] = []
    for lost, number in counts:
        left, found = 8 - lost, []
        for _ in range(8 // degree):
            if min(left, degree) >= least:
                found.append(min(left, degree))
                left -= degree
        groups += found * number
    groups.sort(reverse=True)
    wanted = sum(n for _, n in counts) * (8 // degree) // stages
    formed = min(wanted, len(groups) // stages)
    short = stages - layers % stages if layers % stages else 0
    parts = [(stages, 0)] if packing == "packed" else [(stages - short, 0), (short, stages - short)]
    slowest = max(1, -(-layers // stages))
    total = 0
    at = 0
    times = [Fraction(1)] * formed
    for size, first in parts:
        for replica in range(formed):
            for stage in range(first, first + size):
                length = slowest - (stage >= stages - short)
                times[replica] = max(
                    times[replica], Fraction(length * degree, slowest * groups[at])
                )
                at += 1
    total = sum(int(batch / time) for time in times)
    found_shape = shape(counts, 8, job, options)
    assert found_shape.throughput == pytest.approx(total / (wanted * batch), abs=1e-12)
    assert found_shape.replicas == wanted


# ---------------------------------------------------------------------------- GPUs at work
@settings(max_examples=300, deadline=None)
@given(
    counts=COUNTS,
    stages=st.integers(1, 4),
    layers=st.sampled_from([0, 7, 9]),
    kind=st.sampled_from(["uniform", "dp-drop", "ntp", "ntp-pw"]),
    batch=st.sampled_from(["shrink", "fixed"]),
    grain=st.sampled_from(["sequence", "microbatch", "token"]),
)
def test_nobody_works_more_than_is_there(
    counts: Counts, stages: int, layers: int, kind: str, batch: str, grain: str
) -> None:
    job = TrainingJob(4, stages, 8, layers=layers, microbatch_sequences=2)
    options = PolicyOptions(kind, batch=batch, grain=grain)  # type: ignore[arg-type]
    found = shape(counts, 8, job, options)
    healthy = sum((8 - lost) * number for lost, number in counts)
    whole = found.replicas * stages * 4
    assert 0 <= found.throughput <= 1
    assert 0 <= found.busy_gpus <= min(healthy, whole) + 1e-9
    working = sum(each.number * sum(each.degrees) for each in found.classes)
    assert found.busy_gpus <= working + 1e-9
    if not job.short_stages and kind != "ntp-pw":
        assert found.busy_gpus == pytest.approx(found.throughput * whole)
    assert all(0 < each.speed <= 1 and each.share > 0 for each in found.classes)
    if all(lost == 0 for lost, _ in counts):
        assert found.throughput == 1
        assert found.busy_gpus == pytest.approx(whole)


# -------------------------------------------------------------------------------- uniform
def test_uniform_works_whole_or_not_at_all() -> None:
    job = replace(JOB, replicas=127)
    waits = PolicyOptions("uniform")
    assert shape(hurt(8), 32, job, waits).throughput == 1
    stopped = shape(hurt(9), 32, job, waits)
    assert (stopped.throughput, stopped.busy_gpus, stopped.classes) == (0, 0, ())
    assert stopped.reason == "the job waits: 1015 of 1016 groups whole"
    assert shape(hurt(9), 32, job, replace(waits, on_failure="restart")) == shape(
        hurt(9), 32, job, DROP
    )


# ------------------------------------------------------------------------- at one degree
def test_one_degree_is_the_best_of_all_single_degrees() -> None:
    """Degree 30 for 40 domains and four dead, or 28 for all."""
    counts = ((0, 980), (2, 40), (4, 4))
    at_30, at_28 = (
        shape(
            counts,
            32,
            JOB,
            replace(AS_PUBLISHED, degrees=(d,), min_degree=d, batch_at=((d, sequences),)),
        ).throughput
        for d, sequences in AS_PUBLISHED.batch_at
    )
    one = shape(counts, 32, JOB, replace(AS_PUBLISHED, one_degree=True))
    assert one.throughput == max(at_30, at_28)
    assert len({d for each in one.classes for d in each.degrees if d < 32}) == 1


# ------------------------------------------------------------------------------- at home
@settings(max_examples=200, deadline=None)
@given(
    lost=st.lists(st.integers(0, 8), min_size=4, max_size=12),
    stages=st.integers(1, 4),
    degree=st.sampled_from([3, 4, 8]),
    kind=st.sampled_from(["uniform", "dp-drop", "ntp"]),
)
def test_at_home_each_replica_has_its_own_domains(
    lost: list[int], stages: int, degree: int, kind: str
) -> None:
    job = TrainingJob(degree, stages, 8)
    options = PolicyOptions(kind, packing="none")  # type: ignore[arg-type]
    homes = home_counts(dict(enumerate(lost)), len(lost), 8, job, options)
    per_domain = 8 // degree
    groups = []
    for gone in lost:
        left = [min(degree, max(0, 8 - gone - i * degree)) for i in range(per_domain)]
        groups += [d if d == degree or kind == "ntp" else 0 for d in left]
    replicas = len(groups) // stages
    chunks = [groups[r * stages : (r + 1) * stages] for r in range(replicas)]
    assert Counter(dict(homes)) == Counter(tuple(sorted(c, reverse=True)) for c in chunks)
    shares = [8 * min(chunk) // degree for chunk in chunks]
    found = shape_in_place(homes, 8, job, options)
    if kind == "uniform" and min(shares) < 8:
        assert found.throughput == 0
    else:
        assert found.throughput == pytest.approx(sum(shares) / (8 * replicas))


def test_replicas_at_home_are_not_put_together() -> None:
    with pytest.raises(BadInput, match="replicas keep their own domains"):
        shape(hurt(1), 32, JOB, PolicyOptions("ntp", repack="never"))


# -------------------------------------------------------------------------------- reasons
@pytest.mark.parametrize(
    ("options", "counts", "reason"),
    [
        (ANY, hurt(0), "all 128 replicas at degree 32"),
        (
            AS_PUBLISHED,
            ((0, 1003), (2, 20), (5, 1)),
            "2 of 128 replicas at degree 30, 127 of 128 replicas work, 1 domain dead, "
            "batch 1014 of 1024",
        ),
        (
            replace(ANY, batch="fixed", grain="token"),
            hurt(16, 8),
            "2 of 128 replicas at degree 24, step 0.4% longer",
        ),
        (
            PolicyOptions("ntp-pw"),
            hurt(16),
            "2 of 128 replicas at degree 31, 2 boosted, batch 1024 of 1024",
        ),
        (
            replace(ANY, grain="token"),
            hurt(8),
            "1 of 128 replicas at degree 31, batch 1023.8 of 1024",
        ),
    ],
)
def test_the_reason_says_what_is_hurt_and_what_it_costs(
    options: PolicyOptions, counts: Counts, reason: str
) -> None:
    assert shape(counts, 32, JOB, options).reason == reason
