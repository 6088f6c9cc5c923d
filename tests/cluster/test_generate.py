"""Drawn failures have the rates, places and durations that were asked for. Seeds are fixed; what is
random is held to 4 standard deviations, which are stated."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nonuniform.cluster import availability
from nonuniform.cluster.fleet import Fleet
from nonuniform.cluster.sources.catalog import load_catalog
from nonuniform.cluster.sources.generate import generate
from nonuniform.cluster.sources.rates import Bursts, Cause, Lemons
from nonuniform.cluster.sources.repair import fixed, lognormal, weibull
from nonuniform.cluster.trace import Trace, empty
from nonuniform.errors import BadInput

FLEET = Fleet(32768, 32)
PAPER = load_catalog("ntp-paper").causes
YEAR_H = 8760.0


def down_gpus(trace: Trace, at_h: float) -> int:
    """Rows under way at a moment, in GPUs."""
    return int(trace.gpus[(trace.start_h <= at_h) & (trace.end_h > at_h)].sum())


def test_failures_a_year_by_cause() -> None:
    """Poisson: 5,664 a year (sd 75), 78 % of them hardware."""
    per_year = 365 * 32768 * 419 / 54 / 16384
    trace = generate(FLEET, PAPER, YEAR_H, seed=1)
    counts = np.bincount(trace.cause, minlength=2)
    for count, share in zip(counts, (0.78, 0.22), strict=True):
        assert abs(count - share * per_year) < 4 * math.sqrt(share * per_year)
    assert trace.causes == ("hardware", "software")
    lasts_h = trace.end_h - trace.start_h
    assert lasts_h == pytest.approx(np.where(trace.cause == 0, 120.0, 3.0))


def test_the_number_of_failures_is_poisson() -> None:
    """400 half days with 7.76 failures in the mean: sd of the mean 0.139; variance / mean is 1 with
    sd sqrt(2 / 399) = 0.071."""
    counts = np.array([len(generate(FLEET, PAPER, 12, seed)) for seed in range(400)])
    mean = 32768 * 419 / 54 / 16384 / 2
    assert abs(counts.mean() - mean) < 4 * math.sqrt(mean / 400)
    assert abs(counts.var(ddof=1) / counts.mean() - 1) < 4 * 0.071


def test_failures_fall_anywhere_at_any_time() -> None:
    """Chi-square over 64 places and 64 times: 63 degrees of freedom, sd sqrt(126) = 11.2."""
    trace = generate(FLEET, PAPER, YEAR_H, seed=2)
    for values, end in ((trace.first_gpu, FLEET.gpus), (trace.start_h, YEAR_H)):
        counts = np.histogram(values, 64, (0, end))[0]
        chi_square = float(((counts - counts.mean()) ** 2 / counts.mean()).sum())
        assert abs(chi_square - 63) < 4 * 11.2


@pytest.mark.parametrize("repair", [fixed(120), lognormal(median_h=40, sigma=1.2)], ids=repr)
def test_a_steady_start_is_steady(repair: Any) -> None:
    """60.95 GPUs under repair in the paper's model at every time (Poisson, sd 7.8), over 200 seeds
    sd of the mean 0.55. From an empty start none at first."""
    causes = [replace(cause, repair=repair) for cause in PAPER]
    expected = availability.steady_gpus(FLEET, causes)
    steady = [generate(FLEET, causes, 100, seed, steady_start=True) for seed in range(200)]
    for at_h in (0.0, 50.0, 99.0):
        drawn = np.array([down_gpus(trace, at_h) for trace in steady])
        assert abs(drawn.mean() - expected) < 4 * math.sqrt(expected / 200)
        assert abs(drawn.var(ddof=1) / expected - 1) < 4 * math.sqrt(2 / 199)
    assert down_gpus(generate(FLEET, causes, 100, 0), 0.0) == 0


def test_the_steady_state_of_the_paper_is_61_gpus() -> None:
    """Mean over 20 years from a steady start: sd of one year below 1.0, of all 0.22."""
    shares = []
    for seed in range(20):
        trace = generate(FLEET, PAPER, YEAR_H, seed, steady_start=True)
        within_h = np.minimum(trace.end_h, YEAR_H) - trace.start_h
        shares.append(within_h.sum() / YEAR_H)
    assert abs(np.mean(shares) - 60.95) < 4 * 0.22


def share_of_time_above(trace: Trace, gpus: float) -> float:
    """How long more than so many GPUs are down, overlaps on one GPU counted twice."""
    time_h = np.concatenate([trace.start_h, trace.end_h])
    order = np.argsort(time_h, kind="stable")
    down = np.cumsum(np.concatenate([trace.gpus, -trace.gpus])[order])
    bounds_h = np.append(np.minimum(time_h[order], trace.hours), trace.hours)
    return float(np.diff(bounds_h)[down > gpus].sum() / trace.hours)


@pytest.mark.parametrize(
    ("repair_h", "steady_start", "share", "sd"),
    [
        (120, False, 0.821, 0.032),
        (72, False, 0.635, 0.148),
        (120, True, 1.00, 0.01),
        (72, True, 0.76, 0.2),
    ],
)
def test_share_of_15_days_with_more_than_a_thousandth_failed(
    repair_h: float, steady_start: bool, share: float, sd: float
) -> None:
    """Against an independent prototype, whose sd over traces is given; over 100 seeds a tenth of
    it, and as much for the prototype's own figure."""
    causes = load_catalog("ntp-paper").with_repair("hardware", fixed(repair_h)).causes
    traces = [generate(FLEET, causes, 360, seed, steady_start=steady_start) for seed in range(100)]
    shares = [share_of_time_above(trace, 1e-3 * FLEET.gpus) for trace in traces]
    assert abs(np.mean(shares) - share) < 4 * math.hypot(sd, sd) / 10


@pytest.mark.parametrize("per", ["gpu", "node"])
def test_lemons_fail_more_often_and_the_fleet_does_not(per: Any) -> None:
    """A tenth of the nodes at 6.25 times the rate has 41 % of about 28,000 failures (sd 0.3 %)."""
    rate = 5e-3 if per == "gpu" else 4e-2
    cause = Cause("any", rate, fixed(3), per=per)
    fleet = Fleet(16384, 32)
    trace = generate(fleet, [cause], YEAR_H, 3, Lemons(0.1, 6.25))
    expected = rate * (16384 if per == "gpu" else 2048) * 365
    assert abs(len(trace) - expected) < 4 * math.sqrt(expected)
    counts = np.sort(np.bincount(trace.first_gpu // 8, minlength=fleet.nodes))[::-1]
    lemons = round(0.1 * fleet.nodes)
    factor = 0.1 * 6.25 + 0.9
    # 90 failures a lemon and 14 another node: the two do not overlap.
    assert counts[lemons - 1] > counts[lemons] + 5
    assert counts[:lemons].sum() / counts.sum() == pytest.approx(0.625 / factor, abs=4 * 0.003)
    other = generate(fleet, [cause], YEAR_H, 4, Lemons(0.1, 6.25))
    chosen = [set(np.argsort(-np.bincount(t.first_gpu // 8))[:lemons]) for t in (trace, other)]
    assert len(chosen[0] & chosen[1]) < 60  # 20 of 205 by chance: other seed, other lemons


def test_bursts_bunch_the_failures_and_keep_their_number() -> None:
    """All failures in bursts of 1 + Poisson(4) within 2 h: the count of a year has the variance of
    its bursts, 5.8 times as large (E[size**2] / E[size] = 29 / 5); so have days, almost."""
    bursts = Bursts(share=1.0, failures=5.0, within_h=2.0)
    expected = 365 * 32768 * 419 / 54 / 16384
    counts = np.array([len(generate(FLEET, PAPER, YEAR_H, s, None, bursts)) for s in range(100)])
    assert abs(counts.mean() - expected) < 4 * math.sqrt(5.8 * expected / 100)
    assert abs(counts.var(ddof=1) / (5.8 * expected) - 1) < 4 * math.sqrt(2 / 99)
    days = np.histogram(generate(FLEET, PAPER, YEAR_H, 1, None, bursts).start_h, 365)[0]
    assert days.var() / days.mean() > 4
    first_hours = [generate(FLEET, PAPER, 1.0, s, None, bursts) for s in range(2000)]
    mean = expected / YEAR_H
    assert abs(np.mean([len(t) for t in first_hours]) - mean) < 4 * math.sqrt(5.8 * mean / 2000)


@pytest.mark.parametrize("per", ["gpu", "node", "domain"])
def test_each_unit_is_struck_as_often(per: Any) -> None:
    """100 GPUs in domains of 24 and nodes of 8: the last node has 4 GPUs, 4 GPUs have no domain."""
    fleet = Fleet(100, 24)
    cause = Cause("any", 1000.0, fixed(1), per=per)
    trace = generate(fleet, [cause], 24, seed=5)
    counts = np.bincount(trace.first_gpu, minlength=100)
    assert (counts[96:].sum() == 0) == (per == "domain")
    units = {"gpu": 1, "node": 8, "domain": 24}[per]
    of_units = np.add.reduceat(counts, np.arange(0, 100, units))[: 4 if per == "domain" else None]
    assert np.abs(of_units - 1000).max() < 4 * math.sqrt(1000)


@pytest.mark.parametrize(
    ("blast", "gpus"), [("gpu", 1), ("board", 2), ("node", 8), ("domain", 24), ("tray", 24)]
)
def test_a_block_goes_down_as_a_whole(blast: Any, gpus: int) -> None:
    fleet = Fleet(100, 24)
    trace = generate(fleet, [Cause("any", 1.0, fixed(1), blast=blast)], 240, seed=6)
    assert (trace.first_gpu % gpus == 0).all()
    short = trace.first_gpu + gpus > 100
    assert (trace.gpus[~short] == gpus).all()
    assert (trace.gpus[short] == 100 % gpus).all()
    assert trace.gpus.mean() == pytest.approx(
        Cause("any", 1.0, fixed(1), blast=blast).mean_block(fleet), rel=0.1
    )


def test_a_seed_is_a_history_and_a_change_changes_only_itself() -> None:
    hardware, software = PAPER
    trace = generate(FLEET, PAPER, YEAR_H, seed=7)
    assert trace == generate(FLEET, PAPER, YEAR_H, seed=7)
    assert trace != generate(FLEET, PAPER, YEAR_H, seed=8)
    sooner = generate(FLEET, [replace(hardware, repair=fixed(72)), software], YEAR_H, seed=7)
    for name in ("start_h", "first_gpu", "cause"):
        assert np.array_equal(getattr(trace, name), getattr(sooner, name))
    alone = generate(FLEET, [hardware], YEAR_H, seed=7)
    assert np.array_equal(alone.start_h, trace.start_h[trace.cause == 0])


causes_of = st.lists(
    st.builds(
        Cause,
        name=st.sampled_from("abcdef"),
        rate_per_day=st.floats(0, 0.5),
        repair=st.one_of(
            st.builds(fixed, st.floats(1e-12, 500)),
            st.builds(
                lambda m, s: lognormal(median_h=m, sigma=s), st.floats(0.1, 90), st.just(1.0)
            ),
            st.builds(
                lambda m, k: weibull(mean_h=m, shape=k), st.floats(0.1, 90), st.floats(0.3, 3)
            ),
        ),
        per=st.sampled_from(["gpu", "node", "domain"]),
        blast=st.sampled_from(["gpu", "board", "node", "domain", "tray"]),
        blast_gpus=st.sampled_from([0, 0, 1, 5, 600]),
    ),
    max_size=3,
    unique_by=lambda cause: cause.name,
)


@given(
    st.integers(1, 300),
    st.integers(1, 80),
    st.integers(1, 16),
    causes_of,
    st.integers(0, 2**70),
    st.sampled_from([None, Lemons(0.3, 5.0)]),
    st.sampled_from([None, Bursts(0.5, 3.0, 30.0)]),
    st.booleans(),
)
@settings(max_examples=150)
def test_whatever_is_asked_for_is_a_good_trace(
    gpus: int,
    domain: int,
    node: int,
    causes: Sequence[Cause],
    seed: int,
    lemons: Lemons | None,
    bursts: Bursts | None,
    steady_start: bool,
) -> None:
    fleet = Fleet(gpus, min(domain, gpus), node)
    trace = generate(fleet, causes, 100.0, seed, lemons, bursts, steady_start)
    trace.check(fleet)
    assert trace.causes == tuple(cause.name for cause in causes)
    for number, cause in enumerate(causes):
        first, size = trace.first_gpu[trace.cause == number], trace.gpus[trace.cause == number]
        assert (first % cause.block(fleet) == 0).all()
        assert (size == np.minimum(cause.block(fleet), gpus - first)).all()


def test_nothing_fails_without_causes_or_rates() -> None:
    assert generate(FLEET, [], 24, seed=1) == empty(24)
    assert len(generate(FLEET, [Cause("any", 0.0, fixed(1))], 24, 1, steady_start=True)) == 0


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"hours": 0.0}, "hours = 0, expected a finite number above 0"),
        ({"seed": -1}, "seed = -1, expected 0 or more"),
        ({"causes": [Cause("fan", 1e4, fixed(1))]}, "fan: 10000 a day per gpu means 1.2e"),
        ({"causes": [PAPER[0], PAPER[0]]}, 'two causes are called "hardware"'),
    ],
)
def test_what_cannot_be_drawn_is_named(change: dict[str, Any], text: str) -> None:
    with pytest.raises(BadInput, match=text):
        generate(**{"fleet": FLEET, "causes": PAPER, "hours": YEAR_H, "seed": 1, **change})


def test_a_year_of_32768_gpus_takes_less_than_3_ms() -> None:
    """The best of 30, in processor time, so that others on the machine do not count."""
    times = []
    for seed in range(30):
        begin = time.process_time()
        generate(FLEET, PAPER, YEAR_H, seed)
        times.append(time.process_time() - begin)
    assert min(times) < 3e-3
