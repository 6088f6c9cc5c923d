"""How far the survivors of a domain can be boosted at most.

In: a rack, the number of failed GPUs, optionally how it is cooled. Out: the highest performance of
each living GPU, and the bound that sets it: what a simulator needs for each number of failures.
Does not know: how long a failure lasts; what is answered can be kept up for good.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from nonuniform.power.curve import Estimate, performance_at
from nonuniform.power.policy import Limit, bounds_w
from nonuniform.power.rack import Rack, budget, ramp_bound_w
from nonuniform.power.thermal import Cooling, steady


class Ceiling(NamedTuple):
    set_point_w: float
    performance: Estimate
    limit: Limit
    bounds_w: dict[Limit, float]


def ceiling(rack: Rack, failed: int, cooling: Cooling, seconds: float = math.inf) -> Ceiling:
    """From the temperatures of the nominal set point, for `seconds`."""
    start = steady(cooling, rack.gpu.nominal_w)
    caps = bounds_w(rack, failed, start, seconds)
    limit = min(caps, key=lambda name: caps[name])
    set_point_w = max(rack.gpu.idle_w, caps[limit])
    return Ceiling(set_point_w, performance_at(rack.gpu, set_point_w), limit, caps)


def max_performance(rack: Rack, failed: int, cooling: Cooling | None = None) -> Estimate:
    """Of each living GPU; without `cooling`, by power alone."""
    if cooling is not None:
        return ceiling(rack, failed, cooling).performance
    watts = min(rack.gpu.ceiling_w, budget(rack, failed).per_gpu_w, ramp_bound_w(rack, failed))
    return performance_at(rack.gpu, watts)
