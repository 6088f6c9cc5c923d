"""What a rack must have so that its survivors keep up: the answer of `nonuniform rack`.

In: `RackFile`. Out: plain values, ready for JSON: a row for each number of lost GPUs, and what
holds for all of them. None stands for "for good" (seconds), "no flow is enough" (flow), "not known"
(shelves) or "at once" (W/s). Does not know: how it is shown, or what it costs.
"""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from typing import Any

from nonuniform.power.ceiling import Ceiling, ceiling
from nonuniform.power.policy import boost
from nonuniform.power.rack import Rack, budget, rack_w, ramp_s, shed, shelves_for
from nonuniform.power.rack_file import RackFile
from nonuniform.power.thermal import Cooling, flow_for, lasts_s, steady, time_constants_s

NOTE = (
    "extrapolated: no measurement of a GPU above its nominal set point was found; the band is what "
    "the measured curves of other GPUs and one published simulation leave open"
)
SUPERVISOR_S = 1.0  # how often the one that holds boosts looks
Values = dict[str, Any]


def answer(file: RackFile) -> Values:
    entry, rack, cooling = file.entry, file.entry.rack, file.entry.cooling
    rows = [_row(file, failed) for failed in range(file.survive + 1)]
    reachable = [row for row in rows if row["needed_w"]["value"] <= rack.gpu.ceiling_w]
    top = ceiling(rack, file.survive, cooling, file.seconds)
    told = (*rows, {"needed_w": asdict(top.performance)})
    extrapolated = any(row["needed_w"]["extrapolated"] for row in told)
    loss = _shelf_loss(rack, rows)
    return {
        "rack": entry.name,
        "domain_gpus": rack.domain_gpus,
        "survive": file.survive,
        "inlet_c": cooling.inlet_c,
        "inlet_step_c": cooling.inlet_step_c,
        "nominal_w": rack.gpu.nominal_w,
        "ceiling_w": rack.gpu.ceiling_w,
        "rack_nominal_w": rack.nominal_w,
        "feed_w": rack.feed_w,
        "seconds": _or_none(file.seconds),
        "needed": {**_needed(file, reachable), **_ramps(rack, reachable, loss)},
        "boost_ceiling": _ceiling(top),
        "binds_first": _binds_first(rows),
        "shelf_loss": loss,
        "sensors": _sensors(file, min(top.set_point_w, rack.gpu.ceiling_w)),
        "time_constants_s": list(time_constants_s(cooling)),
        "rows": rows,
        "assumed": list(entry.assumed),
        "source": entry.source,
        "note": NOTE if extrapolated else "",
    }


def _row(file: RackFile, failed: int) -> Values:
    rack, cooling = file.entry.rack, file.entry.cooling
    start = steady(cooling, rack.gpu.nominal_w)
    found = boost(file.need[failed], rack, failed, start, file.seconds)
    top = ceiling(rack, failed, cooling, file.seconds)
    needed = found.needed_w
    wanted_w = max(needed.value, rack.gpu.nominal_w)
    return {
        "failed": failed,
        "need": file.need[failed],
        "needed_w": asdict(needed),
        "granted": found.granted,
        "granted_at_high": found.granted_at_high,
        "set_point_w": found.set_point_w,
        "performance": found.performance,
        "batch_share": min(1.0, found.performance / file.need[failed]),
        "lasts_s": _or_none(lasts_s(start, wanted_w, cooling.throttle_c)),
        "limit": found.limit,
        "reason": found.reason,
        "rack_w": rack_w(rack, failed, wanted_w),
        "freed_w": budget(rack, failed).freed_w,
        "headroom_w": _headroom_w(rack, failed, wanted_w),
        "headroom_high_w": _headroom_w(rack, failed, max(needed.high, rack.gpu.nominal_w)),
        "shelves": shelves_for(rack, rack_w(rack, failed, wanted_w)) or None,
        "flow_l_per_min_gpu": _or_none(needed_flow(cooling, wanted_w)),
        "ceiling": _ceiling(top),
    }


def _headroom_w(rack: Rack, failed: int, set_point_w: float) -> float:
    """Above the nominal draw of the healthy rack; below 0 if the lost GPUs free more."""
    return rack_w(rack, failed, set_point_w) - rack.nominal_w


def _needed(file: RackFile, rows: list[Values]) -> Values:
    """For all rows that the GPU's ceiling allows: what supply and cooling must have."""
    rack, cooling = file.entry.rack, file.entry.cooling
    nominal_w = rack.gpu.nominal_w
    most = max(row["needed_w"]["value"] for row in rows)
    high = min(rack.gpu.ceiling_w, max(row["needed_w"]["high"] for row in rows))
    start = steady(cooling, nominal_w)
    lasting, lasting_high = (
        lasts_s(start, max(watts, nominal_w), cooling.throttle_c) for watts in (most, high)
    )
    flow = needed_flow(cooling, max(most, nominal_w))
    flow_high = needed_flow(cooling, max(high, nominal_w))
    peak_w = max(row["rack_w"] for row in rows)
    peak_high_w = max(rack_w(rack, r["failed"], _capped(r, rack)) for r in rows)
    return {
        "losses": max(row["failed"] for row in rows),
        "freed_w": max(row["freed_w"] for row in rows),
        "headroom_w": max(0.0, peak_w - rack.nominal_w),
        "headroom_high_w": max(0.0, peak_high_w - rack.nominal_w),
        "per_gpu_w": max(most, nominal_w) - nominal_w,
        "per_gpu_high_w": max(high, nominal_w) - nominal_w,
        "rack_w": peak_w,
        "rack_high_w": peak_high_w,
        "row": _row_budget(rack, peak_w, peak_high_w),
        "shelves": shelves_for(rack, peak_w) or None,
        "shelves_high": shelves_for(rack, peak_high_w) or None,
        "flow_l_per_min_gpu": _or_none(flow),
        "flow_l_per_min": _or_none(flow * rack.domain_gpus),
        "flow_high_l_per_min": _or_none(flow_high * rack.domain_gpus),
        "lasts_s": _or_none(lasting),
        "lasts_high_s": _or_none(lasting_high),
    }


def _row_budget(rack: Rack, peak_w: float, peak_high_w: float) -> Values:
    """What the racks of a row draw with so many of them boosted."""
    still_w = (rack.racks_in_row - rack.boosted_racks) * rack.nominal_w
    return {
        "racks": rack.racks_in_row,
        "boosted": rack.boosted_racks,
        "budget_w": rack.row_budget_w or None,
        "needed_w": still_w + rack.boosted_racks * max(peak_w, rack.nominal_w),
        "needed_high_w": still_w + rack.boosted_racks * max(peak_high_w, rack.nominal_w),
    }


def _ramps(rack: Rack, rows: list[Values], loss: Values | None) -> Values:
    """How fast the rack must go up for a boost, and down if shelves are lost under one."""
    nominal_w = rack.gpu.nominal_w
    rise_w, rise_high_w = (
        max((rack.domain_gpus - r["failed"]) * (watts(r, rack) - nominal_w) for r in rows)
        for watts in (_wanted, _capped)
    )
    down = (loss["w_per_s"] if loss["needed"] else 0.0) if loss else 0.0
    up, up_high = rise_w / rack.reach_s, rise_high_w / rack.reach_s
    return {
        "ramp_w_per_s": up,
        "ramp_high_w_per_s": up_high,
        "ramp_down_w_per_s": None if down is None else max(up, down),
        "ramp_down_high_w_per_s": None if down is None else max(up_high, down),
        "ramp_s": ramp_s(rack, 0.0, rise_w) if rack.ramp_w_per_s else None,
        "reach_s": rack.reach_s,
    }


def _wanted(row: Values, rack: Rack) -> float:
    return float(max(rack.gpu.nominal_w, row["needed_w"]["value"]))


def _capped(row: Values, rack: Rack) -> float:
    high = float(row["needed_w"]["high"])
    return max(rack.gpu.nominal_w, min(rack.gpu.ceiling_w, high))


def _ceiling(top: Ceiling) -> Values:
    return {
        "set_point_w": top.set_point_w,
        "performance": asdict(top.performance),
        "limit": top.limit,
        "bounds_w": dict(top.bounds_w),
    }


def _binds_first(rows: list[Values]) -> Values:
    """The bound of the first row that is refused; or the one that would come next."""
    refused = [row for row in rows if not row["granted"]]
    row = refused[0] if refused else rows[-1]
    return {
        "limit": row["limit"] if refused else row["ceiling"]["limit"],
        "failed": row["failed"],
        "reached": bool(refused),
        "set_point_w": row["ceiling"]["set_point_w"],
        "performance": row["ceiling"]["performance"],
    }


def _shelf_loss(rack: Rack, rows: list[Values]) -> Values | None:
    """The first loss that the spare shelves do not cover, where it is worst: under the set point
    of a row that is granted, or else under that of the healthy rack."""
    lost = rack.spare_shelves + 1
    if not rack.shelves or lost > rack.shelves:
        return None
    held = [row for row in rows if row["granted"]] or rows[:1]
    row = max(held, key=lambda row: _surplus_w(rack, row, lost))
    after = shed(rack, row["failed"], row["set_point_w"], lost)
    return {
        "shelves_lost": lost,
        "failed": row["failed"],
        "from_w": row["set_point_w"],
        "set_point_w": after.set_point_w,
        "needed": after.needed,
        "within_s": after.within_s if after.needed else None,
        "w_per_s": _or_none(after.w_per_s) if after.needed else 0.0,
        "by_supervisor": not after.needed or after.within_s > SUPERVISOR_S,
        "rack_down": after.set_point_w < rack.gpu.idle_w,
        "idle_w": rack.gpu.idle_w,
    }


def _surplus_w(rack: Rack, row: Values, lost: int) -> float:
    """That the rack draws above what is left; below 0 where all of it is carried."""
    left = budget(rack, row["failed"], lost)
    return float((rack.domain_gpus - row["failed"]) * (row["set_point_w"] - left.per_gpu_w))


def needed_flow(cooling: Cooling, watts: float) -> float:
    """Below throttling for good, and below shutdown if the inlet warms up unseen."""
    warmer = replace(cooling, inlet_c=cooling.inlet_c + cooling.inlet_step_c)
    return max(
        flow_for(cooling, watts, cooling.throttle_c), flow_for(warmer, watts, cooling.shutdown_c)
    )


def react_s(cooling: Cooling, watts: float) -> float:
    """From the temperatures at `watts` until shutdown, with a hundredth of the flow left."""
    dry = replace(cooling, flow_l_per_min=cooling.flow_l_per_min / 100)
    return lasts_s(replace(steady(cooling, watts), cooling=dry), watts, cooling.shutdown_c)


def _sensors(file: RackFile, watts: float) -> list[Values]:
    """Four readings within the time that there is."""
    cooling, rack = file.entry.cooling, file.entry.rack
    react, slow = react_s(cooling, watts), time_constants_s(cooling)[2]
    stopped = f"flow that stops at {watts:.4g} W leads to shutdown in {react:.3g} s"
    if math.isinf(react):
        react, stopped = slow, f"even stopped flow is no danger; slowest time constant {slow:.3g} s"
    shelf = rack.overload_s / 4 if rack.overload_s else 0.0
    carried = (
        f"shelves that are left carry an overload for {rack.overload_s:g} s"
        if rack.overload_s
        else "no overload is carried (overload_s): a line that acts by itself, not a reading"
    )
    return [
        {"what": "GPU junction temperature", "period_s": react / 4, "why": stopped},
        {"what": "coolant or air flow", "period_s": react / 4, "why": stopped},
        {
            "what": "inlet temperature",
            "period_s": slow / 4,
            "why": f"the slowest time constant is {slow:.3g} s",
        },
        {
            "what": "GPU power and set point, read back",
            "period_s": file.entry.rack.reach_s / 4,
            "why": f"a boost must be in place within {file.entry.rack.reach_s:g} s",
        },
        {"what": "power shelves and rack power", "period_s": shelf, "why": carried},
    ]


def _or_none(value: float) -> float | None:
    return value if math.isfinite(value) else None
