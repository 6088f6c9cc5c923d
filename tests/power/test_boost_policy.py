"""The least boost that keeps up, or a refusal; never too hot, never too much for the rack."""

from __future__ import annotations

import itertools
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
    assert max_performance(RACK, 0).value >= 1
    assert max_performance(RACK, 4) == performance_at(GPU, 1200.0)
    assert max_performance(RACK, 4).extrapolated
    assert max_performance(load_rack("dgx_h100").rack, 1).value == 1.0
    slow = replace(RACK, ramp_w_per_s=100.0, reach_s=10.0)
    assert max_performance(slow, 4) == performance_at(GPU, 1000.0 + 1000 / 68)
    assert max_performance(slow, 4, COOLING) == max_performance(slow, 4)
    hot = replace(COOLING, inlet_c=50.0)
    assert ceiling(RACK, 4, hot).limit == "temperature"
    assert max_performance(RACK, 4, hot).value < max_performance(RACK, 4).value


@pytest.mark.parametrize("seconds", [math.inf, 600.0])
@pytest.mark.parametrize("unseen_c", [0.0, 3.0, 8.0])
def test_a_nominal_that_is_too_hot_has_no_cliff(seconds: float, unseen_c: float) -> None:
    """A tenth of a degree more of inlet is a few watts less, at throttling and at shutdown."""
    inlets = [48.0 + 0.1 * step for step in range(150)]
    cooled = [replace(COOLING, inlet_c=c, inlet_step_c=unseen_c) for c in inlets]
    found = [ceiling(RACK, 4, one, seconds) for one in cooled]
    watts = [top.bounds_w["temperature"] for top in found]
    steps = [before - after for before, after in itertools.pairwise(watts)]
    assert all(0 <= step <= 4 for step in steps)
    assert watts[0] > GPU.nominal_w > watts[-1]
    room_c = min(87 - inlets[-1], 92 - inlets[-1] - unseen_c)
    assert watts[-1] == pytest.approx(room_c / COOLING.total_c_per_w, rel=1e-6)
    assert found[-1].performance.value > 0.7


def test_a_nominal_that_is_too_hot_is_told() -> None:
    hot = replace(COOLING, inlet_c=54.9)
    refused = boost(1.0, RACK, 0, steady(hot, GPU.nominal_w), math.inf)
    assert (refused.granted, refused.limit) == (False, "temperature")
    assert "too hot already" in refused.reason
    assert steady(hot, refused.set_point_w).junction_c == pytest.approx(87.0)


def test_a_hot_gpu_gets_no_boost_however_cold_the_inlet_is() -> None:
    hot = State(replace(COOLING, inlet_c=10.0), 88.0, 40.0, 12.0)
    for seconds in (2.0, math.inf):
        found = boost(1.0, RACK, 2, hot, seconds)
        assert not found.granted
        assert found.set_point_w == GPU.nominal_w
        assert step(hot, found.set_point_w, min(seconds, 1e6)).junction_c < 87.0


def test_a_ramp_that_is_too_slow_is_the_bound() -> None:
    slow = replace(RACK, ramp_w_per_s=100.0, reach_s=10.0)
    cool = steady(COOLING, 1000.0)
    refused = boost(72 / 68, slow, 4, cool, math.inf)
    assert (refused.granted, refused.limit) == (False, "ramp")
    assert "which takes 130.7 s of 10 s at 100 W/s; 1015 W are there in time" in refused.reason
    assert boost(72 / 68, replace(slow, reach_s=131.0), 4, cool, math.inf).granted


def test_the_upper_edge_of_the_band_is_told() -> None:
    cool = steady(COOLING, 1000.0)
    inside, above = boost(72 / 70, RACK, 2, cool, 60.0), boost(72 / 68, RACK, 4, cool, 60.0)
    assert inside.granted_at_high
    assert above.granted
    assert not above.granted_at_high
    assert "which the upper edge of the band is above" in above.reason


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
        failed = min(12, max(0, failed + draw.choice((-2, -1, 0, 0, 1, 2))))
        lost = draw.choice((0, 0, 0, 0, 0, 1, 1, 2, 3))
        # An unseen rise is at most what the cooling says; one that is seen may be any.
        unseen = draw.random() < 0.5
        rise = draw.uniform(-20, 4) if unseen else draw.uniform(-30, 25)
        inlet_c = min(60.0, max(15.0, inlet_c + rise))
        need = draw.uniform(1.0, 1.06) if draw.random() < 0.7 else 72 / (72 - failed)
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
        state = carried_out(state, moment, found.set_point_w)


def carried_out(state: State, moment: Moment, set_point_w: float) -> State:
    """To the end of a lease; the inlet that was not seen comes after a third of it."""
    for part in (0.3, 0.7):
        peak = hottest(state, set_point_w, part * moment.lease_s)
        assert peak.junction_c < state.cooling.shutdown_c, moment
        state = step(state, set_point_w, part * moment.lease_s)
        state = at_inlet(state, moment.inlet_c)
    return state


def assert_carried(rack: Rack, moment: Moment, set_point_w: float) -> None:
    """Unless even idle GPUs are too much, which no set point can help."""
    if set_point_w > rack.gpu.idle_w:
        shelves = rack.shelves - max(rack.spare_shelves, moment.shelves_lost)
        most_w = min(rack.feed_w, shelves * rack.shelf_w)
        assert rack_w(rack, moment.failed, set_point_w) <= most_w + 1e-6


@pytest.mark.parametrize("kind", ["liquid", "air"])
def test_the_trace_has_many_boosts(kind: str) -> None:
    """Of 800 leases; some of them begin with a GPU above throttling."""
    cooling = COOLING if kind == "liquid" else AIR
    gpu = GPU if kind == "liquid" else replace(GPU, nominal_w=700.0, ceiling_w=1000.0)
    rack, boosted, hot = replace(RACK, gpu=gpu), 0, 0
    for seed in range(20):
        state = steady(replace(cooling, inlet_c=FIRST_INLET_C, inlet_step_c=4.0), gpu.idle_w)
        for moment in trace(seed):
            if not moment.unseen:
                state = at_inlet(state, moment.inlet_c)
            about = (moment.failed, state, moment.lease_s, moment.shelves_lost)
            found = boost(moment.need, rack, *about)
            boosted += found.granted and found.set_point_w > gpu.nominal_w
            hot += state.junction_c > cooling.throttle_c
            state = carried_out(state, moment, found.set_point_w)
    assert boosted > 400
    assert hot > 0


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
