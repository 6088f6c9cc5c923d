"""How much power the survivors of a hurt domain get, and why.

In: the performance that each living GPU needs (1.0 is that at its nominal set point), the rack, its
failed GPUs and lost shelves, the temperatures of the hottest GPU, for how many seconds. Out: the
least set point that keeps up, or a refusal with its numbers and the set point to fall back to. A
pure function of its arguments, without a memory: whoever has newer temperatures may ask again.
DESIGN "Policies" (ntp-pw).

Does not know: who sets the power, whether a GPU obeys, or what changes while a boost is held; the
middle of the curve's band is used.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

from nonuniform.errors import BadInput
from nonuniform.power.curve import Estimate, performance_at, watts_for
from nonuniform.power.rack import Rack, budget, budgets, living_gpus, ramp_bound_w, ramp_s
from nonuniform.power.thermal import State, at_inlet, cooled_watts, lasts_s, safe_watts

Limit = Literal[
    "none needed", "gpu ceiling", "rack budget", "row", "ramp", "temperature", "time", "shelf lost"
]


@dataclass(frozen=True)
class Boost:
    """`granted`: the domain keeps up with `set_point_w` on every living GPU; `limit` is then the
    bound that comes next. If not, `limit` is the narrowest bound, the set point is the nominal one
    or less, and the replica carries a smaller share (`ntp`). `granted_at_high`: the upper edge of
    the band of `needed_w`, which is what the need asks of each GPU, fits too. `lasts_s`: until the
    GPU would slow itself down."""

    granted: bool
    granted_at_high: bool
    set_point_w: float
    performance: float
    lasts_s: float
    limit: Limit
    reason: str
    needed_w: Estimate


class _Case(NamedTuple):
    rack: Rack
    failed: int
    state: State
    seconds: float
    shelves_lost: int


def boost(
    need: float, rack: Rack, failed: int, state: State, seconds: float, shelves_lost: int = 0
) -> Boost:
    """The least boost that keeps up for `seconds`, which may be infinite. A GPU that is too hot
    already gets none."""
    if not (math.isfinite(need) and need >= 0):
        raise BadInput(f"need = {need}: must be a performance, 0 or more and finite")
    if not seconds > 0:
        raise BadInput(f"seconds = {seconds}: must be above 0")
    gpu = rack.gpu
    caps = bounds_w(rack, failed, state, seconds, shelves_lost)
    most_w = min(caps.values())
    needed_w = watts_for(gpu, need)
    wanted_w = max(gpu.nominal_w, needed_w.value)
    granted = wanted_w <= most_w and not _too_hot(state)
    if granted:
        limit, reason = _granted(need, needed_w, wanted_w, caps)
        set_point_w = wanted_w
    else:
        case = _Case(rack, failed, state, seconds, shelves_lost)
        limit, numbers = _refused(case, wanted_w, caps)
        set_point_w = max(gpu.idle_w, min(gpu.nominal_w, most_w))
        reason = f"{limit}: {need:.4g} of nominal performance needs {_band(needed_w)}, {numbers}"
    return Boost(
        granted,
        granted and needed_w.high <= most_w,
        set_point_w,
        performance_at(gpu, set_point_w).value,
        lasts_s(state, set_point_w, state.cooling.throttle_c),
        limit,
        reason,
        needed_w,
    )


def bounds_w(
    rack: Rack, failed: int, state: State, seconds: float, shelves_lost: int = 0
) -> dict[Limit, float]:
    """Watts of each living GPU by every bound."""
    caps: dict[Limit, float] = {"gpu ceiling": rack.gpu.ceiling_w}
    supplies = budgets(rack, failed, shelves_lost)
    row_w = supplies.pop("row", math.inf)
    caps["rack budget"] = min(supplies.values())
    if math.isfinite(row_w):
        caps["row"] = row_w
    # A lost shelf is the reason only where one more would have been enough.
    if shelves_lost and caps["rack budget"] < min(
        watts for name, watts in budgets(rack, failed).items() if name != "row"
    ):
        caps["shelf lost"] = caps.pop("rack budget")
    ramp_w = ramp_bound_w(rack, failed)
    if math.isfinite(ramp_w):
        caps["ramp"] = ramp_w
    caps["temperature"] = _cool_enough_w(state, seconds)
    return caps


def _cool_enough_w(state: State, seconds: float) -> float:
    """Below where the GPU slows itself, and below where it stops if the inlet warms up unseen."""
    cooling = state.cooling
    steady_w = _stays_below_w(state, seconds, cooling.throttle_c)
    if not cooling.inlet_step_c:
        return steady_w
    warmer = at_inlet(state, cooling.inlet_c + cooling.inlet_step_c)
    return min(steady_w, _stays_below_w(warmer, seconds, cooling.shutdown_c))


def _stays_below_w(state: State, seconds: float, limit_c: float) -> float:
    """For all of `seconds`; from above the limit, by their end."""
    if state.junction_c > limit_c:
        return cooled_watts(state, seconds, limit_c)
    return safe_watts(state, seconds, limit_c)


def _too_hot(state: State) -> bool:
    return state.junction_c > state.cooling.throttle_c


def _band(watts: Estimate) -> str:
    said = f"{watts.value:.4g} W [{watts.low:.4g}, {watts.high:.4g}]"
    return f"{said} (extrapolated)" if watts.extrapolated else said


def _granted(
    need: float, needed: Estimate, wanted_w: float, caps: dict[Limit, float]
) -> tuple[Limit, str]:
    next_ = min(caps, key=lambda name: caps[name])
    if need <= 1:
        said = f"none needed: the nominal {wanted_w:.4g} W give {need:.4g} of nominal performance"
        return "none needed", said
    said = (
        f"{need:.4g} of nominal performance needs {_band(needed)}; the next bound is {next_} "
        f"at {caps[next_]:.4g} W"
    )
    if needed.high > caps[next_]:
        said += ", which the upper edge of the band is above"
    return next_, said


def _refused(case: _Case, wanted_w: float, caps: dict[Limit, float]) -> tuple[Limit, str]:
    """(the bound, its numbers)"""
    limit = min(caps, key=lambda name: caps[name])
    state, rack = case.state, case.rack
    if _too_hot(state):
        return "temperature", _already_too_hot(state, caps["temperature"])
    if limit == "temperature":
        lasts = lasts_s(state, wanted_w, state.cooling.throttle_c)
        named: Limit = "time" if 0 < lasts < case.seconds < math.inf else limit
        return named, _too_warm(state, wanted_w, caps[limit], case.seconds)
    if limit == "gpu ceiling":
        return limit, f"the GPU's ceiling is {rack.gpu.ceiling_w:.4g} W"
    if limit == "ramp":
        return limit, _too_slow(rack, case.failed, wanted_w, caps[limit])
    return limit, budget(rack, case.failed, case.shelves_lost).reason


def _already_too_hot(state: State, allowed_w: float) -> str:
    cooling = state.cooling
    return (
        f"and the GPU is too hot already: {state.junction_c:.4g} degC, above "
        f"{cooling.throttle_c:g} degC, at an inlet of {cooling.inlet_c:g} degC; "
        f"{allowed_w:.4g} W end below"
    )


def _too_slow(rack: Rack, failed: int, wanted_w: float, allowed_w: float) -> str:
    rise_w = living_gpus(rack, failed) * (wanted_w - rack.gpu.nominal_w)
    return (
        f"which takes {ramp_s(rack, 0.0, rise_w):.4g} s of {rack.reach_s:g} s at "
        f"{rack.ramp_w_per_s:g} W/s; {allowed_w:.4g} W are there in time"
    )


def _too_warm(state: State, wanted_w: float, allowed_w: float, seconds: float) -> str:
    cooling = state.cooling
    lasts = lasts_s(state, wanted_w, cooling.throttle_c)
    if lasts >= seconds:
        return (
            f"{allowed_w:.4g} W stay below shutdown at {cooling.shutdown_c:g} degC if the inlet "
            f"rises by {cooling.inlet_step_c:g} degC unseen"
        )
    return (
        f"which reaches {cooling.throttle_c:g} degC after {lasts:.4g} s{_of(seconds)} at an "
        f"inlet of {cooling.inlet_c:g} degC; {allowed_w:.4g} W last"
    )


def _of(seconds: float) -> str:
    return f" of {seconds:.4g} s" if math.isfinite(seconds) else ""
