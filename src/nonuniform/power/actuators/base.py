"""The edge to whatever sets the power of a GPU.

In: a GPU's name and watts. Out: what is set there now. `fake.py` is the one for tests. An actuator
decides nothing and remembers nothing that matters: when it was wrong, reading back tells.

A *set point* is the cap that the GPU obeys, not what it draws.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable


class ActuatorRefused(Exception):
    """It did not happen, or nobody can say whether it did; the message is the reason."""


@dataclass(frozen=True)
class LimitsW:
    """The set points that a GPU takes."""

    lowest_w: float
    highest_w: float


class Reading(NamedTuple):
    """A set point that was read, the limits of the GPU, and its coolant where a valve is set."""

    watts: float
    highest_w: float
    lowest_w: float = 0.0
    flow_l_per_min: float | None = None


class Actuator(Protocol):
    """All three may be called from several threads at once, for different GPUs."""

    def read_w(self, gpu: str) -> float:
        """The set point as it is now."""
        ...

    def set_w(self, gpu: str, watts: float) -> None:
        """Returning is no promise: a GPU may clamp what it is told. Read back."""
        ...

    def limits_w(self, gpu: str) -> LimitsW: ...


@runtime_checkable
class Cooled(Protocol):
    """An actuator whose `set_w` opens a valve first, for what raises."""

    def lower_w(self, gpu: str, watts: float) -> None:
        """Set without coolant, for what lowers: a valve must not be in the way."""
        ...

    def read_flow_l_per_min(self, gpu: str) -> float: ...

    def restore_flow(self, gpu: str, l_per_min: float) -> None:
        """Down to what it was; a smaller one stays."""
        ...


def read(actuator: Actuator, gpu: str) -> Reading:
    limits = actuator.limits_w(gpu)
    return Reading(actuator.read_w(gpu), limits.highest_w, limits.lowest_w)


def read_before(actuator: Actuator, gpu: str) -> Reading:
    """All that has to be restored after a boost."""
    flow = actuator.read_flow_l_per_min(gpu) if isinstance(actuator, Cooled) else None
    return read(actuator, gpu)._replace(flow_l_per_min=flow)


def restore(
    actuator: Actuator, gpu: str, watts: float, tolerance_w: float, flow_l_per_min: float | None
) -> Reading:
    """Lower a GPU, and once it is there give its coolant back."""
    found = lower(actuator, gpu, watts, tolerance_w)
    if flow_l_per_min is not None and 0 < found.watts <= watts + tolerance_w:
        if not isinstance(actuator, Cooled):
            raise ActuatorRefused(f"no valve to give {flow_l_per_min:g} l/min of coolant back")
        actuator.restore_flow(gpu, flow_l_per_min)
    return found


def lower(actuator: Actuator, gpu: str, watts: float, tolerance_w: float) -> Reading:
    """Set a GPU to `watts`, and read it back. It is set even where that is what it reads: an older
    order to raise it may still be on its way. One that somebody has lowered further in the meantime
    stays, since nobody may be boosted by what only takes boosts back; unless it reads what no GPU
    can be at, which says nothing."""
    lowest_w = _lowest_w(actuator, gpu)
    try:
        now_w = actuator.read_w(gpu)
        if now_w > 0 and lowest_w - tolerance_w <= now_w < watts:
            if now_w < watts - tolerance_w:
                return Reading(now_w, math.inf, lowest_w)
            watts = now_w
    except ActuatorRefused:
        pass  # it may still obey
    if isinstance(actuator, Cooled):
        actuator.lower_w(gpu, watts)
    else:
        actuator.set_w(gpu, watts)
    return Reading(actuator.read_w(gpu), math.inf, lowest_w)


def _lowest_w(actuator: Actuator, gpu: str) -> float:
    try:
        return actuator.limits_w(gpu).lowest_w
    except ActuatorRefused:
        return 0.0  # not known, and no reason to leave a GPU raised
