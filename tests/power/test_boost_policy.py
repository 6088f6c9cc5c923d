"""The least boost that keeps up, or a refusal; never too hot, never too much for the rack."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nonuniform.errors import BadInput
from nonuniform.power.catalog import load_curve, load_rack
from nonuniform.power.ceiling import ceiling, max_performance
from nonuniform.power.curve import GpuPower, performance_at
from nonuniform.power.policy import boost, bounds_w
from nonuniform.power.rack import Rack, rack_w
from nonuniform.power.thermal import Cooling, State, at_inlet, hottest, lasts_s, steady, step

GPU = GpuPower(1000.0, 1200.0, 300.0, load_curve())
RACK = Rack(72, GPU, 30_000.0, 118_000.0, 5, 33_000.0, 1)
COOLING = load_rack("gb200_nvl72").cooling
AIR = load_rack("dgx_h100").cooling
needs = st.floats(0.9, 1.1)
inlets = st.floats(20, 60)


@given(needs, st.integers(0, 20), inlets, st.floats(1, 1e5), st.integers(0, 3))
def test_a_granted_boost_keeps_up_within_every_bound(
    need: float, failed: int, inlet_c: float, seconds: float, lost: int
) -> None:
    state = at_inlet(steady(COOLING, 1000.0), inlet_c)
    found = boost(need, RACK, failed, state, seconds, lost)
    if not found.granted:
        assert found.set_point_w <= GPU.nominal_w
        assert "\n" not in found.reason
        return
    assert found.performance >= need * (1 - 1e-12)
    assert found.set_point_w <= min(bounds_w(RACK, failed, state, seconds, lost).values())
    assert rack_w(RACK, failed, found.set_point_w) <= 118_000.0 + 1e-6
    peak = hottest(state, found.set_point_w, seconds)
    assert peak.junction_c <= COOLING.throttle_c + 1e-6
    assert found.lasts_s >= seconds * (1 - 1e-9) or peak.junction_c > COOLING.throttle_c - 1e-6


@given(st.floats(1.001, 1.06), st.integers(1, 20))
def test_the_least_boost_is_least(need: float, failed: int) -> None:
    found = boost(need, RACK, failed, steady(COOLING, 1000.0), 1e4)
    assert found.granted
    assert performance_at(GPU, found.set_point_w * (1 - 1e-6)).value < need


@given(needs, st.integers(0, 20), inlets)
def test_a_refusal_is_right(need: float, failed: int, inlet_c: float) -> None:
    """What would keep up passes the bound that is named."""
    state = at_inlet(steady(COOLING, 1000.0), inlet_c)
    found = boost(need, RACK, failed, state, 600.0)
    if found.granted:
        return
    wanted_w = max(1000.0, found.needed_w.value)
    if found.limit == "gpu ceiling":
        assert wanted_w > GPU.ceiling_w
    elif found.limit == "rack budget":
        assert rack_w(RACK, failed, wanted_w) > 118_000.0
    else:
        assert found.limit in ("temperature", "time")
        assert lasts_s(state, wanted_w, COOLING.throttle_c) < 600.0


@given(st.integers(0, 20), inlets, st.floats(1, 15), st.floats(1.0, 1.1), st.floats(0.001, 0.05))
def test_granting_is_monotone(
    failed: int, inlet_c: float, by_c: float, need: float, more: float
) -> None:
    """Refused stays refused when more is needed, the inlet is warmer, or shelves are gone."""
    state = steady(replace(COOLING, inlet_c=inlet_c), 900.0)
    if boost(need, RACK, failed, state, 600.0).granted:
        return
    assert not boost(need + more, RACK, failed, state, 600.0).granted
    assert not boost(need, RACK, failed, at_inlet(state, inlet_c + by_c), 600.0).granted
    assert not boost(need, RACK, failed, state, 600.0, shelves_lost=3).granted


def test_each_limit_is_named() -> None:
    cool = steady(COOLING, 1000.0)
    assert boost(1.0, RACK, 0, cool, 60.0).limit == "none needed"
    assert boost(1.2, RACK, 4, cool, 60.0).limit == "gpu ceiling"
    tight = replace(RACK, feed_w=103_000.0)
    assert boost(1.05, tight, 1, cool, 60.0).limit == "rack budget"
    row = replace(RACK, row_budget_w=205_000.0, racks_in_row=2, boosted_racks=2)
    assert boost(1.05, row, 1, cool, 60.0).limit == "row"
    assert boost(1.05, RACK, 4, cool, 60.0, shelves_lost=2).limit == "shelf lost"
    warm = steady(replace(COOLING, inlet_c=52.0), 1000.0)
    refused = boost(1.05, RACK, 4, warm, 600.0)
    assert refused.limit == "time"
    assert "87 degC after" in refused.reason
    assert "extrapolated" in refused.reason
    assert boost(1.05, RACK, 4, warm, 0.1).granted
    assert boost(1.05, RACK, 4, replace(warm, junction_c=88.0), 600.0).limit == "temperature"


@pytest.mark.parametrize(("need", "seconds"), [(math.nan, 1.0), (-1.0, 1.0), (1.0, 0.0)])
def test_questions_that_cannot_be(need: float, seconds: float) -> None:
    with pytest.raises(BadInput):
        boost(need, RACK, 0, steady(COOLING, 1000.0), seconds)


def test_the_ceiling_for_the_simulator() -> None:
    assert max_performance(RACK, 0) >= 1
    assert max_performance(RACK, 4) == performance_at(GPU, 1200.0).value
    assert max_performance(load_rack("dgx_h100").rack, 1) == 1.0
    hot = replace(COOLING, inlet_c=50.0)
    assert ceiling(RACK, 4, hot).limit == "temperature"
    assert max_performance(RACK, 4, hot) < max_performance(RACK, 4)


FIRST_INLET_C = 40.0


class Moment(NamedTuple):
    """From one lease to the next: what has failed, what is lost, and the inlet that comes."""

    failed: int
    shelves_lost: int
    inlet_c: float
    unseen: bool  # the inlet changes in the middle of the lease
    lease_s: float
    need: float


def trace(seed: int) -> list[Moment]:
    draw = random.Random(seed)
    moments, failed, inlet_c = [], 0, FIRST_INLET_C
    for _ in range(40):
        failed = min(20, max(0, failed + draw.choice((-1, 0, 0, 1, 3))))
        lost = draw.choice((0, 0, 0, 1, 2, 3))
        # An unseen rise is at most what the cooling says; one that is seen may be any.
        unseen = draw.random() < 0.5
        rise = draw.uniform(-20, 4) if unseen else draw.uniform(-30, 25)
        inlet_c = min(60.0, max(15.0, inlet_c + rise))
        need = 72 / (72 - failed) if draw.random() < 0.8 else draw.uniform(1, 1.3)
        moments.append(Moment(failed, lost, inlet_c, unseen, draw.choice((2.0, 20.0, 300.0)), need))
    return moments


@settings(max_examples=60)
@given(st.integers(0, 10**9), st.sampled_from([COOLING, AIR]))
def test_never_at_shutdown_whatever_fails(seed: int, cooling: Cooling) -> None:
    """Lease by lease: the policy reads temperatures at the start of each, and nothing between."""
    gpu = GPU if cooling.kind == "liquid" else replace(GPU, nominal_w=700.0, ceiling_w=1000.0)
    rack = replace(RACK, gpu=gpu)
    state = steady(replace(cooling, inlet_c=FIRST_INLET_C, inlet_step_c=4.0), gpu.idle_w)
    for moment in trace(seed):
        if not moment.unseen:
            state = at_inlet(state, moment.inlet_c)
        found = boost(moment.need, rack, moment.failed, state, moment.lease_s, moment.shelves_lost)
        assert_carried(rack, moment, found.set_point_w)
        for part in (0.3, 0.7):
            peak = hottest(state, found.set_point_w, part * moment.lease_s)
            assert peak.junction_c < cooling.shutdown_c, moment
            state = step(state, found.set_point_w, part * moment.lease_s)
            state = at_inlet(state, moment.inlet_c)


def assert_carried(rack: Rack, moment: Moment, set_point_w: float) -> None:
    """Unless even idle GPUs are too much, which no set point can help."""
    if set_point_w > rack.gpu.idle_w:
        shelves = rack.shelves - max(rack.spare_shelves, moment.shelves_lost)
        most_w = min(rack.feed_w, shelves * rack.shelf_w)
        assert rack_w(rack, moment.failed, set_point_w) <= most_w + 1e-6


def test_the_trace_is_hard_enough() -> None:
    """Without the policy the same traces pass shutdown: the property is not empty."""
    passed = 0
    for seed in range(20):
        state: State = steady(COOLING, 1000.0)
        for moment in trace(seed):
            state = at_inlet(state, moment.inlet_c)
            peak = hottest(state, 1200.0, moment.lease_s)
            passed += peak.junction_c >= COOLING.shutdown_c
            state = step(state, 1200.0, moment.lease_s)
    assert passed > 20
