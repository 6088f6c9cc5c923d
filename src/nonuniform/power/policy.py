"""How much power the survivors of a hurt domain get, and why.

In: the performance that each living GPU needs (1.0 is that at its nominal set point), the rack, its
failed GPUs and lost shelves, the temperatures of the hottest GPU, for how many seconds. Out: the
least set point that keeps up, or a refusal with its numbers and the set point to fall back to. A
pure function of its arguments: called again for each lease, it gives back what became too much.
DESIGN "Policies" (ntp-pw).

Does not know: who sets the power, or whether a GPU obeys; the middle of the curve's band is used.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from nonuniform.errors import BadInput
from nonuniform.power.curve import Estimate, performance_at, watts_for
from nonuniform.power.rack import Rack, budget, budgets
from nonuniform.power.thermal import State, at_inlet, lasts_s, safe_watts

Limit = Literal[
    "none needed", "gpu ceiling", "rack budget", "row", "temperature", "time", "shelf lost"
]


@dataclass(frozen=True)
class Boost:
    """`granted`: the domain keeps up with `set_point_w` on every living GPU; `limit` is then the
    bound that comes next. If not, `limit` is the narrowest bound, the set point is the nominal one
    or less, and the replica carries a smaller share (`ntp`). `lasts_s`: until the GPU would slow
    itself down. `needed_w`: what the need asks of each GPU, with its band."""

    granted: bool
    set_point_w: float
    performance: float
    lasts_s: float
    limit: Limit
    reason: str
    needed_w: Estimate


def boost(
    need: float, rack: Rack, failed: int, state: State, seconds: float, shelves_lost: int = 0
) -> Boost:
    """The least boost that keeps up for `seconds`, which may be infinite."""
    if not (math.isfinite(need) and need >= 0):
        raise BadInput(f"need = {need}: must be a performance, 0 or more and finite")
    if not seconds > 0:
        raise BadInput(f"seconds = {seconds}: must be above 0")
    gpu = rack.gpu
    caps = bounds_w(rack, failed, state, seconds, shelves_lost)
    narrowest = min(caps, key=lambda name: caps[name])
    needed_w = watts_for(gpu, need)
    wanted_w = max(gpu.nominal_w, needed_w.value)
    if wanted_w <= caps[narrowest]:
        limit: Limit = "none needed" if wanted_w == gpu.nominal_w else narrowest
        set_point_w = wanted_w
        reason = _granted(need, needed_w, wanted_w, narrowest, caps[narrowest])
    else:
        limit = narrowest
        set_point_w = max(gpu.idle_w, min(gpu.nominal_w, caps[narrowest]))
        lasts = lasts_s(state, wanted_w, state.cooling.throttle_c)
        if limit == "temperature" and 0 < lasts < seconds < math.inf:
            limit = "time"
        if limit in ("temperature", "time"):
            numbers = _too_warm(state, wanted_w, caps["temperature"], seconds)
        elif limit == "gpu ceiling":
            numbers = f"the GPU's ceiling is {gpu.ceiling_w:.4g} W"
        else:
            numbers = budget(rack, failed, shelves_lost).reason
        reason = f"{limit}: {need:.4g} of nominal performance needs {_band(needed_w)}, {numbers}"
    return Boost(
        wanted_w <= caps[narrowest],
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
    caps["temperature"] = _cool_enough_w(state, seconds)
    return caps


def _cool_enough_w(state: State, seconds: float) -> float:
    """Below where the GPU slows itself, and below where it stops if the inlet warms up unseen."""
    cooling = state.cooling
    steady_w = safe_watts(state, seconds, cooling.throttle_c)
    if not cooling.inlet_step_c:
        return steady_w
    warmer = at_inlet(state, cooling.inlet_c + cooling.inlet_step_c)
    return min(steady_w, safe_watts(warmer, seconds, cooling.shutdown_c))


def _band(watts: Estimate) -> str:
    said = f"{watts.value:.4g} W [{watts.low:.4g}, {watts.high:.4g}]"
    return f"{said} (extrapolated)" if watts.extrapolated else said


def _granted(need: float, needed: Estimate, wanted_w: float, next_: Limit, cap_w: float) -> str:
    if needed.value <= wanted_w and need <= 1:
        return f"none needed: the nominal {wanted_w:.4g} W give {need:.4g} of nominal performance"
    return (
        f"{need:.4g} of nominal performance needs {_band(needed)}; the next bound is {next_} "
        f"at {cap_w:.4g} W"
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
