"""Closed forms against the figures that are known, and against each other."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nonuniform.cluster import availability
from nonuniform.cluster.fleet import Fleet
from nonuniform.cluster.sources.rates import Cause, observed
from nonuniform.cluster.sources.repair import fixed
from nonuniform.errors import BadInput

RATE = observed(419, units_seen=16384, days=54)
HARDWARE = Cause("hardware", 0.78 * RATE, fixed(120))
SOFTWARE = Cause("software", 0.22 * RATE, fixed(3))


@pytest.mark.parametrize(
    ("domain", "binomial", "hypergeometric"),
    [
        (8, 99.20, 99.20),
        (16, 98.41, 98.40),
        (32, 96.85, 96.83),
        (64, 93.80, 93.75),
        (72, 93.05, 92.99),
    ],
)
def test_domains_healthy_at_a_failed_share_of_a_thousandth(
    domain: int, binomial: float, hypergeometric: float
) -> None:
    """A thousandth of 32,768 GPUs is 32.8: 33 failed ones give the published reference values."""
    share = availability.healthy_domain_share(domain, 0.001)
    exact = availability.healthy_domain_share_of(domain, 32768, 33)
    assert round(100 * share, 2) == binomial
    assert round(100 * exact, 2) == hypergeometric


@given(st.integers(1, 60), st.integers(0, 60), st.integers(0, 60))
def test_the_hypergeometric_share_counts_choices(domain: int, failed: int, others: int) -> None:
    gpus = max(domain, failed) + others
    expected = Fraction(math.comb(gpus - domain, failed), math.comb(gpus, failed))
    share = availability.healthy_domain_share_of(domain, gpus, failed)
    assert share == pytest.approx(float(expected), rel=1e-12)


def test_the_two_shares_meet_in_a_large_fleet() -> None:
    large = availability.healthy_domain_share_of(72, 10_000_000, 10_000)
    assert large == pytest.approx(availability.healthy_domain_share(72, 0.001), abs=1e-6)


def test_gpus_under_repair_in_the_long_run() -> None:
    fleet = Fleet(32768, 32)
    gpus = availability.steady_gpus(fleet, [HARDWARE, SOFTWARE])
    assert gpus == pytest.approx(32768 * RATE * (0.78 * 5 + 0.22 / 8), rel=1e-12)
    assert round(gpus, 2) == 60.95
    assert round(100 * gpus / fleet.gpus, 3) == 0.186
    assert availability.steady_share(RATE, fixed(120)) == pytest.approx(5 * RATE, rel=1e-15)


@pytest.mark.parametrize(("gpus", "hours", "places"), [(16384, 1.8, 1), (131072, 0.23, 2)])
def test_time_to_failure_as_projected_for_rsc_1(gpus: int, hours: float, places: int) -> None:
    assert round(availability.mttf_h(gpus // 8, 6.50), places) == hours


def test_nothing_fails_at_rate_zero() -> None:
    assert availability.mttf_h(1, 0.0) == math.inf
    assert availability.steady_share(0.0, fixed(120)) == 0.0
    assert availability.healthy_domain_share(576, 0.0) == 1.0
    assert availability.healthy_domain_share_of(576, 576, 0) == 1.0
    assert availability.healthy_domain_share_of(72, 576, 505) == 0.0


@pytest.mark.parametrize(
    ("gpus", "node", "blast"), [(64, 8, 8), (60, 8, 8), (61, 8, 5), (61, 4, 7)]
)
@pytest.mark.parametrize("per", ["gpu", "node", "domain"])
def test_the_mean_block_is_the_mean_over_struck_gpus(
    gpus: int, node: int, blast: int, per: str
) -> None:
    fleet = Fleet(gpus, 20, node)
    cause = Cause("any", 1.0, fixed(1), per=per, blast_gpus=blast)  # type: ignore[arg-type]
    total, chance = 0.0, 0.0
    for gpu in range(gpus):
        in_node = min(node, gpus - gpu // node * node)
        struck = {
            "gpu": 1 / gpus,
            "node": 1 / fleet.nodes / in_node,
            "domain": (gpu < fleet.in_domains) / fleet.in_domains,
        }[per]
        total += struck * min(blast, gpus - gpu // blast * blast)
        chance += struck
    assert chance == pytest.approx(1.0)
    assert cause.mean_block(fleet) == pytest.approx(total)


def test_overlapping_repairs_count_once() -> None:
    """Against a draw: 200,000 GPUs with 0.5 repairs under way each; sd of the share 0.0011."""
    drawn = np.random.default_rng(1).poisson(0.5, 200_000)
    assert availability.down_share(0.5) == pytest.approx(float((drawn > 0).mean()), abs=0.0044)
    assert availability.down_share(1e-12) == pytest.approx(1e-12)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: availability.mttf_h(0, 1.0),
        lambda: availability.mttf_h(1, -1.0),
        lambda: availability.healthy_domain_share(0, 0.1),
        lambda: availability.healthy_domain_share(8, 1.1),
        lambda: availability.healthy_domain_share_of(8, 7, 0),
        lambda: availability.healthy_domain_share_of(8, 16, 17),
        lambda: availability.steady_share(-1.0, fixed(1)),
    ],
)
def test_what_has_no_answer_is_refused(wrong: object) -> None:
    assert callable(wrong)
    with pytest.raises(BadInput, match="expected"):
        wrong()
