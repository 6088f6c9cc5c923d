"""What outcomes come to over seeds."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from nonuniform.errors import BadInput
from nonuniform.sim.outcome import (
    GpuHours,
    Hours,
    Outcome,
    pool,
    quantile,
    spread,
    summarize,
)

ONE = Outcome(
    hours=10.0,
    throughput_mean=0.9,
    throughput_worst=0.5,
    throughput_owned=0.8,
    failed_share_mean=0.02,
    boosted_share_mean=0.25,
    transitions=3,
    gpu_hours=GpuHours(70.0, 2.0, 6.0, 1.0, 0.5, 0.5, 20.0),
    spares_hours=((0, 6.0), (2, 4.0)),
)
OTHER = replace(
    ONE,
    throughput_mean=0.8,
    throughput_worst=0.4,
    failed_share_mean=0.03,
    transitions=4,
    spares_hours=((0, 5.0), (1, 4.5), (7, 0.5)),
)

hours = st.dictionaries(st.integers(0, 9), st.floats(0.01, 50.0), min_size=1).map(
    lambda d: tuple(sorted(d.items()))
)


def test_ratios_of_one() -> None:
    assert ONE.loss_mean == pytest.approx(0.1)
    assert ONE.amplification == pytest.approx(5.0)
    assert ONE.gpu_hours.total == 100.0
    assert [ONE.spares(share) for share in (0.5, 0.6, 0.61, 1.0)] == [0, 0, 2, 2]
    assert math.isnan(replace(ONE, failed_share_mean=0.0).amplification)


def test_a_record_is_flat() -> None:
    record = ONE.record()
    assert all(isinstance(value, (int, float)) for value in record.values())
    assert record["gpu_hours_idled"] == 6.0
    assert record["spares_domains_p95"] == 2
    assert record["transitions"] == 3


def test_two_seeds() -> None:
    result = summarize([ONE, OTHER])
    assert result.throughput.mean == pytest.approx(0.85)
    assert result.loss.mean == pytest.approx(0.15)
    assert result.loss.sd == pytest.approx(0.1 / math.sqrt(2))
    assert result.loss.ci95 is not None
    # Student's t with one degree of freedom: 12.706.
    assert result.loss.ci95[1] - 0.15 == pytest.approx(12.7062047 * 0.05)
    assert result.throughput_worst == 0.4
    assert result.amplification == pytest.approx(0.15 / 0.025)
    assert result.transitions_mean == 3.5
    assert result.spares_domains == {"p50": 0, "p95": 2, "p100": 7}
    summary = result.summary()
    contract = {"throughput_mean", "throughput_worst", "loss_mean", "loss_ci95", "amplification"}
    assert contract < summary.keys()
    assert {"failed", "idled", "transition", "redone"} < summary["gpu_hours"].keys()
    assert summary["spares_domains"].keys() == {"p50", "p95", "p100"}


def test_one_seed_has_no_spread() -> None:
    result = summarize([ONE])
    assert (result.loss.sd, result.loss.ci95) == (None, None)
    assert result.summary()["loss_ci95"] is None


def test_nothing_failed() -> None:
    assert summarize([replace(ONE, failed_share_mean=0.0)]).amplification is None


def test_no_seed() -> None:
    with pytest.raises(BadInput, match="no seed"):
        summarize([])


@given(st.lists(st.floats(-5.0, 5.0), min_size=2, max_size=20))
def test_confidence_is_that_of_students_t(values: list[float]) -> None:
    found = spread(values)
    assert found.ci95 is not None
    if found.sd:
        low, high = stats.t.interval(0.95, len(values) - 1, found.mean, stats.sem(values))
        assert found.ci95 == pytest.approx((low, high), abs=1e-9)


@given(hours, st.floats(0.0, 1.0))
def test_a_quantile_is_the_least_that_is_enough(rows: Hours, share: float) -> None:
    value = quantile(rows, share)
    total = sum(h for _, h in rows)
    assert sum(h for v, h in rows if v <= value) >= share * total * (1 - 1e-9)
    assert sum(h for v, h in rows if v < value) <= share * total


@given(st.lists(hours, min_size=1, max_size=5))
def test_pooling_loses_no_hour(parts: list[Hours]) -> None:
    pooled = pool(parts)
    assert sum(h for _, h in pooled) == pytest.approx(sum(h for part in parts for _, h in part))
    assert [v for v, _ in pooled] == sorted({v for part in parts for v, _ in part})
    assert quantile(pooled, 1.0) == max(v for v, _ in pooled)
