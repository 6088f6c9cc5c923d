"""Repair times have the mean they claim, and what remains of one under way is drawn right."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nonuniform.cluster.sources.repair import Repair, empirical, fixed, lognormal, weibull
from nonuniform.errors import BadInput

NUMBER = 200_000
REPAIRS = [
    fixed(120.0),
    lognormal(median_h=33.6, sigma=1.0),
    weibull(scale_h=50.0, shape=0.7),
    weibull(mean_h=50.0, shape=1.0),
    empirical([1.0, 2.0, 30.0]),
]


@pytest.mark.parametrize("repair", REPAIRS, ids=repr)
def test_drawn_repairs_have_the_mean(repair: Repair) -> None:
    """Within 4 standard errors."""
    drawn = repair.draw_h(np.random.default_rng(1), NUMBER)
    error = drawn.std() / math.sqrt(NUMBER)
    assert drawn.min() > 0
    assert drawn.mean() == pytest.approx(repair.mean_h, abs=4 * error + 1e-9)


@pytest.mark.parametrize("repair", REPAIRS, ids=repr)
def test_what_remains_has_the_mean_and_the_distribution_of_renewal_theory(repair: Repair) -> None:
    """Mean E[x**2] / (2 E[x]); P(remaining > t) = E[max(x - t, 0)] / E[x]. Both expectations are
    taken over whole repairs drawn apart. Within 4 standard errors of the two draws together."""
    whole = repair.draw_h(np.random.default_rng(2), NUMBER)
    remaining = repair.draw_remaining_h(np.random.default_rng(3), NUMBER)
    assert remaining.min() > 0
    for of_whole, of_remaining in [
        (whole**2 / 2 / repair.mean_h, remaining),
        *(
            (np.maximum(whole - t, 0) / repair.mean_h, (remaining > t).astype(float))
            for t in repair.mean_h * np.array([0.1, 0.5, 1.0, 3.0])
        ),
    ]:
        error = math.hypot(of_whole.std(), of_remaining.std()) / math.sqrt(NUMBER)
        assert of_remaining.mean() == pytest.approx(of_whole.mean(), abs=4 * error + 1e-9)


def test_an_exponential_repair_forgets_how_long_it_took() -> None:
    remaining = weibull(mean_h=10.0, shape=1.0).draw_remaining_h(np.random.default_rng(4), NUMBER)
    assert remaining.mean() == pytest.approx(10.0, abs=4 * 10 / math.sqrt(NUMBER))
    assert (remaining > 10).mean() == pytest.approx(math.exp(-1), abs=0.0043)


@given(st.floats(0.1, 1e4), st.floats(0.05, 3))
def test_a_log_normal_is_the_same_by_any_two_of_its_numbers(median_h: float, sigma: float) -> None:
    one = lognormal(median_h=median_h, sigma=sigma)
    by_mean = lognormal(mean_h=one.mean_h, sigma=sigma)
    by_both = lognormal(median_h=median_h, mean_h=one.mean_h)
    assert by_mean.median_h == pytest.approx(median_h)
    assert by_both.sigma == pytest.approx(sigma, rel=1e-6)


@given(st.floats(0.1, 1e4), st.floats(0.1, 10))
def test_a_weibull_has_the_mean_asked_for(mean_h: float, shape: float) -> None:
    assert weibull(mean_h=mean_h, shape=shape).mean_h == pytest.approx(mean_h)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: fixed(0.0), "hours = 0, expected a finite number above 0"),
        (lambda: fixed(math.nan), "hours = nan"),
        (lambda: lognormal(median_h=1.0), "needs two of median_h, mean_h and sigma"),
        (lambda: lognormal(median_h=1.0, mean_h=2.0, sigma=1.0), "needs two of"),
        (lambda: lognormal(median_h=3.0, mean_h=2.0), "mean_h = 2 .* median_h = 3"),
        (lambda: lognormal(median_h=3.0, sigma=50.0), "sigma = 50, expected 5 or less"),
        (lambda: lognormal(mean_h=-3.0, sigma=1.0), "mean_h = -3"),
        (lambda: weibull(shape=1.0), "one of scale_h and mean_h"),
        (lambda: weibull(shape=0.01, scale_h=1.0), "shape = 0.01, expected 0.1 or more"),
        (lambda: empirical([]), "no observed durations"),
        (lambda: empirical([1.0, -2.0]), "observed duration = -2"),
    ],
)
def test_wrong_parameters_are_named(make: object, text: str) -> None:
    assert callable(make)
    with pytest.raises(BadInput, match=text):
        make()
