"""A boosted rack over time: watts and the temperature of the hottest part.

In: a subject whose rack is known. Out: data of a chart, or None. DESIGN "Plan and
report". All physics is `power`'s; here one hour is played: at nominal, boosted, and back.
"""

from __future__ import annotations

from typing import Any

from nonuniform.planner.boostpower import rack_of
from nonuniform.planner.subject import Subject, mean_block
from nonuniform.power.curve import watts_for
from nonuniform.power.policy import boost
from nonuniform.power.rack import budget, rack_w
from nonuniform.power.thermal import steady, step

STEP_S, BEFORE_S, BOOSTED_S, AFTER_S = 10.0, 300.0, 2400.0, 900.0


def rack_chart(subject: Subject) -> dict[str, Any] | None:
    """Of a domain that has lost what a failure takes in the mean. None where no rack is known, or
    where it does not allow the boost that would keep up."""
    entry = rack_of(subject)
    if entry is None:
        return None
    rack, cooling = entry.rack, entry.cooling
    failed = max(1, round(mean_block(subject.source.causes, subject.fleet)))
    if subject.job.degree > rack.domain_gpus or failed >= subject.job.degree:
        return None
    nominal_w = rack.gpu.nominal_w
    state = steady(cooling, nominal_w)
    need = subject.job.degree / (subject.job.degree - failed)
    granted = boost(need, rack, failed, state, BOOSTED_S)
    if not granted.granted:
        return None
    allowed = budget(rack, failed)
    time_s, power_w, temperature_c = [], [], []
    now = 0.0
    while now < BEFORE_S + BOOSTED_S + AFTER_S:
        boosted = BEFORE_S <= now < BEFORE_S + BOOSTED_S
        lost = 0 if now < BEFORE_S else failed
        watts = granted.set_point_w if boosted else nominal_w
        time_s.append(now)
        power_w.append(rack_w(rack, lost, watts))
        temperature_c.append(state.junction_c)
        state = step(state, watts, STEP_S)
        now += STEP_S
    return {
        "time_s": time_s,
        "power_w": power_w,
        "budget_w": allowed.gpus_w + rack.other_w + failed * rack.gpu.idle_w,
        "temperature_c": temperature_c,
        "limit_c": cooling.throttle_c,
        "kind": "simulated",
        "reason": granted.reason,
        "extrapolated": watts_for(rack.gpu, need).extrapolated,
        "failed": failed,
        "name": entry.name,
    }
