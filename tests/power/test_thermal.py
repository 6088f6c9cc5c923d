"""Temperatures against an independent solver; energy; limits."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import solve_ivp

from nonuniform.errors import BadInput
from nonuniform.power.catalog import load_rack
from nonuniform.power.exponentials import zeros
from nonuniform.power.thermal import (
    JOULES_PER_L_C,
    Cooling,
    State,
    at_inlet,
    carried_j,
    cooled_watts,
    flow_for,
    hottest,
    lasts_s,
    safe_watts,
    steady,
    step,
    stored_j,
)

LIQUID = load_rack("gb200_nvl72").cooling
coolings = st.builds(
    lambda kind, inlet, flow, short, r_j, r_p, heats: Cooling(
        kind,
        inlet,
        flow * (1.0 if kind == "liquid" else 1500.0),
        flow * short * (1.0 if kind == "liquid" else 1500.0),
        r_j,
        r_p,
        *heats,
        87.0,
        92.0,
    ),
    st.sampled_from(["liquid", "air"]),
    st.floats(10, 50),
    st.floats(0.3, 4),
    st.floats(0.3, 3),
    st.floats(0.003, 0.05),
    st.floats(0.003, 0.05),
    st.tuples(st.floats(10, 200), st.floats(50, 2000), st.floats(10, 1000)),
)
warm = st.floats(10, 90)
watts = st.floats(0, 1500)


def states(cooling: Cooling, temperatures: tuple[float, float, float]) -> State:
    return State(cooling, *temperatures)


def independent(state: State, power: float, dt_s: float) -> list[float]:
    """The three equations as the docstring has them, by a solver of its own."""
    c = state.cooling
    short = max(1.0, c.rated_flow_l_per_min / c.flow_l_per_min)
    r_p = c.r_plate_c_per_w * short**0.8
    flow = c.flow_l_per_min / 60 * JOULES_PER_L_C[c.kind]

    def slopes(_: float, t: np.ndarray) -> list[float]:
        up, out = (t[0] - t[1]) / c.r_junction_c_per_w, (t[1] - t[2]) / r_p
        return [
            (power - up) / c.junction_j_per_c,
            (up - out) / c.plate_j_per_c,
            (out - flow * (t[2] - c.inlet_c)) / c.coolant_j_per_c,
        ]

    start = [state.junction_c, state.plate_c, state.coolant_c]
    found = solve_ivp(slopes, (0, dt_s), start, method="LSODA", rtol=1e-11, atol=1e-11)
    return [float(row[-1]) for row in found.y]


@settings(max_examples=40)
@given(coolings, st.tuples(warm, warm, warm), watts, st.floats(0.01, 100))
def test_steps_agree_with_an_independent_solver(
    cooling: Cooling, start: tuple[float, float, float], power: float, dt_s: float
) -> None:
    after = step(states(cooling, start), power, dt_s)
    theirs = independent(states(cooling, start), power, dt_s)
    assert [after.junction_c, after.plate_c, after.coolant_c] == pytest.approx(theirs, abs=1e-6)


@given(coolings, st.tuples(warm, warm, warm), watts, st.floats(0.001, 1e4))
def test_energy_is_conserved(
    cooling: Cooling, start: tuple[float, float, float], power: float, dt_s: float
) -> None:
    before = states(cooling, start)
    after = step(before, power, dt_s)
    left = power * dt_s - carried_j(before, power, dt_s) - (stored_j(after) - stored_j(before))
    assert abs(left) <= 1e-9 * (power * dt_s + stored_j(before) + stored_j(after) + 1)


@given(coolings, st.tuples(warm, warm, warm), watts, st.floats(0.01, 50), st.floats(0.01, 50))
def test_two_steps_are_one(
    cooling: Cooling, start: tuple[float, float, float], power: float, a_s: float, b_s: float
) -> None:
    twice = step(step(states(cooling, start), power, a_s), power, b_s)
    once = step(states(cooling, start), power, a_s + b_s)
    assert twice.junction_c == pytest.approx(once.junction_c, abs=1e-8)


@given(coolings, watts)
def test_steady_stays_and_is_the_inlet_plus_resistances(cooling: Cooling, power: float) -> None:
    rest = steady(cooling, power)
    assert step(rest, power, 100.0).junction_c == pytest.approx(rest.junction_c, abs=1e-8)
    above = power * cooling.total_c_per_w
    assert rest.junction_c == pytest.approx(cooling.inlet_c + above)


@given(coolings, st.tuples(warm, warm, warm), watts, st.floats(40, 95))
def test_a_limit_is_reached_when_told_and_not_before(
    cooling: Cooling, start: tuple[float, float, float], power: float, limit_c: float
) -> None:
    state = states(cooling, start)
    lasts = lasts_s(state, power, limit_c)
    moments = np.geomspace(1e-3, 1e5, 60)
    course = [step(state, power, float(t)).junction_c for t in moments]
    if lasts == 0:
        assert state.junction_c >= limit_c
        return
    assert all(c <= limit_c + 1e-6 for c, t in zip(course, moments, strict=True) if t < lasts)
    if math.isfinite(lasts):
        assert step(state, power, lasts).junction_c == pytest.approx(limit_c, abs=1e-6)


@given(coolings, st.tuples(warm, warm, warm), st.floats(1, 1e4), st.floats(60, 90))
def test_safe_watts_touch_the_limit_and_do_not_pass_it(
    cooling: Cooling, start: tuple[float, float, float], seconds: float, limit_c: float
) -> None:
    state = states(cooling, start)
    most = safe_watts(state, seconds, limit_c)
    if most == 0:
        assert hottest(state, 1e-3, seconds).junction_c > limit_c - 1e-3
        return
    assert hottest(state, most, seconds).junction_c == pytest.approx(limit_c, abs=1e-6)


@given(coolings, st.tuples(warm, warm, warm), st.floats(1, 1e4), st.floats(60, 90))
def test_cooled_watts_end_at_the_limit(
    cooling: Cooling, start: tuple[float, float, float], seconds: float, limit_c: float
) -> None:
    state = states(cooling, start)
    most = cooled_watts(state, seconds, limit_c)
    if most == 0:
        assert step(state, 0.0, seconds).junction_c >= limit_c - 1e-6
        return
    assert step(state, most, seconds).junction_c == pytest.approx(limit_c, abs=1e-6)
    for_good = cooled_watts(state, math.inf, limit_c)
    assert steady(cooling, for_good).junction_c == pytest.approx(limit_c, abs=1e-6)


@given(coolings, st.floats(50, 1500))
def test_least_flow_is_least(cooling: Cooling, power: float) -> None:
    flow = flow_for(cooling, power, 87.0)
    if math.isinf(flow):
        assert steady(replace(cooling, flow_l_per_min=1e8), power).junction_c > 87.0 - 1e-3
        return
    enough, less = (replace(cooling, flow_l_per_min=flow * f) for f in (1.0, 0.99))
    assert steady(enough, power).junction_c <= 87.0 + 1e-6
    assert steady(less, power).junction_c > 87.0


@given(coolings, watts, st.floats(0.1, 20))
def test_warmer_inlet_never_helps(cooling: Cooling, power: float, by_c: float) -> None:
    state = steady(cooling, power)
    warmer = at_inlet(state, cooling.inlet_c + by_c)
    assert lasts_s(warmer, power, 87.0) <= lasts_s(state, power, 87.0)
    assert safe_watts(warmer, 60.0, 87.0) <= safe_watts(state, 60.0, 87.0) + 1e-6


def test_zeros_finds_two_that_are_close() -> None:
    """(e^-t - 0.5)(e^-t - 0.499) has two, 0.002 s apart."""
    found = zeros([(1.0, 2.0), (-0.999, 1.0), (0.2495, 0.0)], 100.0)
    assert found == pytest.approx([math.log(2), -math.log(0.499)])


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"kind": "oil"}, "kind = 'oil'"),
        ({"flow_l_per_min": 0.0}, "flow_l_per_min = 0.0"),
        ({"shutdown_c": 80.0}, "throttle_c = 87.0, shutdown_c = 80.0"),
        ({"inlet_c": math.inf}, "inlet_c = inf"),
        ({"inlet_step_c": -1.0}, "inlet_step_c = -1.0"),
    ],
)
def test_values_that_cannot_be(change: dict[str, float], told: str) -> None:
    with pytest.raises(BadInput, match=told):
        replace(LIQUID, **change)
