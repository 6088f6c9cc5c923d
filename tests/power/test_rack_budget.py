"""What a supply leaves to the living GPUs: sums, bounds, and what never helps."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nonuniform.errors import BadInput
from nonuniform.power.catalog import load_curve, load_rack
from nonuniform.power.curve import GpuPower
from nonuniform.power.rack import (
    Rack,
    budget,
    budgets,
    rack_w,
    ramp_bound_w,
    ramp_s,
    shed,
    shelves_for,
)

GPU = GpuPower(1000.0, 1200.0, 300.0, load_curve())
PLAIN = Rack(72, GPU, 30_000.0, 120_000.0, 5, 33_000.0, 1, ramp_w_per_s=2000.0)
supplies = st.builds(
    lambda feed, shelf, row: replace(
        PLAIN,
        feed_w=feed,
        shelf_w=shelf,
        row_budget_w=4 * row,
        racks_in_row=4,
        boosted_racks=2,
    ),
    st.floats(102_000, 140_000),
    st.floats(25_500, 40_000),
    st.floats(102_000, 140_000),
)


@given(supplies, st.integers(0, 40), st.integers(0, 5))
def test_the_budget_is_the_narrowest_supply(rack: Rack, failed: int, lost: int) -> None:
    found = budget(rack, failed, lost)
    draw = rack_w(rack, failed, found.per_gpu_w)
    shelves_w = (5 - max(1, lost)) * rack.shelf_w
    row_w = (rack.row_budget_w - 2 * rack.nominal_w) / 2
    least = min(rack.feed_w, shelves_w, row_w)
    assert draw == pytest.approx(max(least, rack.other_w + failed * GPU.idle_w))
    assert found.per_gpu_w == min(budgets(rack, failed, lost).values())
    assert found.gpus_w == pytest.approx(found.per_gpu_w * (72 - failed))


@given(supplies, st.integers(0, 40), st.integers(0, 4))
def test_lost_shelves_never_help_and_failed_gpus_never_take(
    rack: Rack, failed: int, lost: int
) -> None:
    assert budget(rack, failed, lost + 1).per_gpu_w <= budget(rack, failed, lost).per_gpu_w
    if budget(rack, failed).per_gpu_w >= GPU.idle_w:
        assert budget(rack, failed + 1).per_gpu_w >= budget(rack, failed).per_gpu_w - 1e-9


@given(supplies)
def test_more_boosted_racks_get_less_each(rack: Rack) -> None:
    each = [budgets(replace(rack, boosted_racks=count), 2)["row"] * (72 - 2) for count in (1, 2, 4)]
    assert each == sorted(each, reverse=True)


def test_freed_watts_are_those_above_idle() -> None:
    assert budget(PLAIN, 3).freed_w == 3 * (1000.0 - 300.0)
    assert budget(PLAIN, 3).binding == "feed"
    assert "5 shelves" not in budget(PLAIN, 3).reason


def test_a_shelf_more_than_the_spare_one_is_shed() -> None:
    rack = replace(PLAIN, overload_s=5.0)
    assert shed(rack, 2, 1150.0, 1).needed is False
    after = shed(rack, 2, 1150.0, 2)
    assert after.needed
    assert rack_w(rack, 2, after.set_point_w) == pytest.approx(3 * 33_000.0)
    assert after.within_s == 5.0
    assert after.w_per_s * 5.0 == pytest.approx(70 * (1150.0 - after.set_point_w))
    assert shed(PLAIN, 2, 1150.0, 2).w_per_s == math.inf


def test_ramps_go_both_ways() -> None:
    assert ramp_s(PLAIN, 100_000, 110_000) == ramp_s(PLAIN, 110_000, 100_000) == 5.0
    assert ramp_s(replace(PLAIN, ramp_w_per_s=0.0), 100_000, 110_000) == 0.0


@given(st.floats(1, 1e5), st.floats(0.1, 100), st.integers(0, 71))
def test_what_the_ramp_allows_takes_just_the_time_there_is(
    pace: float, reach_s: float, failed: int
) -> None:
    rack = replace(PLAIN, ramp_w_per_s=pace, reach_s=reach_s)
    rise_w = (72 - failed) * (ramp_bound_w(rack, failed) - GPU.nominal_w)
    assert ramp_s(rack, 0.0, rise_w) == pytest.approx(reach_s, rel=1e-6)
    assert ramp_bound_w(replace(rack, reach_s=0.0), failed) == math.inf


@given(st.floats(1e3, 5e5))
def test_shelves_carry_and_one_less_does_not(watts: float) -> None:
    count = shelves_for(PLAIN, watts)
    assert (count - 1) * PLAIN.shelf_w >= watts * (1 - 1e-6)
    assert (count - 2) * PLAIN.shelf_w < watts


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"domain_gpus": 0}, "domain_gpus = 0"),
        ({"feed_w": 90_000.0}, "feed: 90000 W does not carry the rack at its nominal 102000 W"),
        ({"spare_shelves": 5}, "spare_shelves = 5: must be fewer than shelves = 5"),
        ({"shelf_w": 0.0}, "shelf_w = 0"),
        ({"boosted_racks": 2}, "boosted_racks = 2: more than racks_in_row = 1"),
        ({"other_w": -1.0}, "other_w = -1.0"),
        ({"row_budget_w": 50_000.0}, "row: 50000 W does not carry"),
    ],
)
def test_racks_that_cannot_be(change: dict[str, Any], told: str) -> None:
    with pytest.raises(BadInput, match=told):
        replace(PLAIN, **change)


@pytest.mark.parametrize(("failed", "lost"), [(-1, 0), (72, 0), (0, 6), (0, -1)])
def test_losses_that_cannot_be(failed: int, lost: int) -> None:
    with pytest.raises(BadInput):
        budget(PLAIN, failed, lost)


def test_catalog() -> None:
    assert load_rack("gb200_nvl72").rack.domain_gpus == 72
    full = load_rack("dgx_h100").rack.gpu
    assert full.nominal_w == full.ceiling_w
    with pytest.raises(BadInput, match=r"dgx_b200.*other_w, feed_w are missing"):
        load_rack("dgx_b200")
    own = {"rack": {"other_w": 2000, "feed_w": 10_000}}
    assert load_rack("dgx_b200", own).rack.other_w == 2000
    with pytest.raises(BadInput, match="unknown rack 'dgx', known are dgx_b200"):
        load_rack("dgx")
    with pytest.raises(BadInput, match=r"\[rack\]: unknown key reach_s"):
        load_rack("gb200_nvl72", {"rack": {"reach_s": "x"}})
