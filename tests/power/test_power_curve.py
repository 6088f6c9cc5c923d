"""Watts against performance: its own inverse, monotone, and what the measured curves say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nonuniform.errors import BadInput
from nonuniform.power.catalog import RACKS, load_curve
from nonuniform.power.curve import GpuPower, performance_at, watts_for
from nonuniform.power.fit import fit, main, read_series, to_toml
from nonuniform.toml_file import read_toml

DATA = Path(__file__).parents[2].parent / "shared" / "data"
needs_data = pytest.mark.skipif(
    not (DATA / "hardware").is_dir(), reason="the measured curves are not beside the checkout"
)
CURVE = load_curve()
gpus = st.builds(
    lambda ceiling, share: GpuPower(ceiling * share, ceiling, ceiling * 0.1, CURVE),
    st.floats(300, 2000),
    st.floats(0.55, 1.0),
)


@given(gpus, st.floats(0.7, 1.4))
def test_performance_and_watts_are_inverse(gpu: GpuPower, performance: float) -> None:
    watts = watts_for(gpu, performance).value
    assert performance_at(gpu, watts).value == pytest.approx(performance, rel=1e-9)


@given(gpus, st.floats(0.0, 1.5), st.floats(0.001, 0.5))
def test_more_performance_needs_more_watts(gpu: GpuPower, least: float, more: float) -> None:
    a, b = watts_for(gpu, least), watts_for(gpu, least + more)
    assert a.value <= b.value
    assert a.low <= a.value <= a.high
    assert a.low <= b.low
    assert a.high <= b.high


@given(gpus)
def test_the_nominal_set_point_is_the_unit(gpu: GpuPower) -> None:
    watts = watts_for(gpu, 1.0)
    assert (watts.low, watts.value, watts.high) == pytest.approx([gpu.nominal_w] * 3)
    assert not watts.extrapolated
    assert not performance_at(gpu, gpu.nominal_w).extrapolated


@given(gpus, st.floats(1.001, 1.4))
def test_above_nominal_is_extrapolated_and_has_a_band(gpu: GpuPower, performance: float) -> None:
    watts = watts_for(gpu, performance)
    assert watts.extrapolated
    assert watts.low <= watts.value <= watts.high
    assert watts.low < watts.high


def test_a_lower_set_point_makes_the_same_gain_cheaper() -> None:
    """Further down the curve voltage rises less: what a designer buys by capping."""
    gains = [
        watts_for(GpuPower(nominal, 1200.0, 343.0, CURVE), 32 / 30).value / nominal
        for nominal in (700.0, 900.0, 1200.0)
    ]
    assert gains == sorted(gains)


@pytest.mark.parametrize(
    ("nominal", "ceiling", "idle", "told"),
    [
        (1300.0, 1200.0, 300.0, "nominal_w = 1300 is above ceiling_w = 1200"),
        (500.0, 1200.0, 300.0, "no curve was measured below"),
        (1000.0, 1200.0, 1000.0, "idle_w = 1000 is not below nominal_w"),
        (0.0, 1200.0, 300.0, "nominal_w = 0.0: must be above 0 W"),
        (float("nan"), 1200.0, 300.0, "nominal_w = nan"),
    ],
)
def test_values_that_cannot_be(nominal: float, ceiling: float, idle: float, told: str) -> None:
    with pytest.raises(BadInput, match=told):
        GpuPower(nominal, ceiling, idle, CURVE)


def test_a_performance_beyond_all_numbers_is_refused() -> None:
    gpu = GpuPower(1000.0, 1200.0, 300.0, CURVE)
    with pytest.raises(BadInput, match=r"performance = 1e\+300: no GPU draws so much"):
        watts_for(gpu, 1e300)


@needs_data
def test_the_catalog_has_what_a_fit_gives() -> None:
    found = fit(DATA)
    for ours, theirs in zip(CURVE.shapes, found.curve.shapes, strict=True):
        assert ours.static_share == pytest.approx(theirs.static_share, rel=1e-3, abs=1e-4)
        assert ours.exponent == pytest.approx(theirs.exponent, rel=1e-3)
    assert CURVE.measured_from == found.curve.measured_from
    for key, interval in read_toml(RACKS / "calibration" / "curve.toml")["intervals"].items():
        assert interval == pytest.approx(found.intervals[key], rel=1e-3)
        assert interval[0] > 0
    assert "exponent" in to_toml(found)


@needs_data
def test_every_measured_curve_is_near_the_law() -> None:
    for one in read_series(DATA / "hardware"):
        inside = one.performance >= CURVE.measured_from
        law = np.array([CURVE.middle.power(float(x)) for x in one.performance[inside]])
        assert np.sqrt(np.mean((law - one.power[inside]) ** 2)) < 0.07, one.name


def test_a_folder_without_curves_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--tables", str(tmp_path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
