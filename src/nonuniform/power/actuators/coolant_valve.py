"""More watts need more coolant: a valve that opens before the power and closes after it.

In: an actuator of watts, the commands of the valve, and the flow that a watt needs. Out: the same
interface, so that nobody can raise a GPU and forget its coolant. A valve that is open wide enough
is left alone; one that will not open means that the power is not raised. What the flow was is read
before and restored after, when the GPU is down; a valve that will not close is told, and tried
again.

Which GPUs share a valve is known to the command, which is told the flow of one GPU.
"""

from __future__ import annotations

from dataclasses import dataclass

from nonuniform.power.actuators.base import Actuator, ActuatorRefused, LimitsW
from nonuniform.power.actuators.command_line import Template, number, run


@dataclass(frozen=True)
class Valve:
    """`setting` has `{gpu}` and `{flow}`, `reading` has `{gpu}` and answers in l/min."""

    setting: Template
    reading: Template
    l_per_min_per_w: float
    timeout_s: float
    tolerance: float = 0.02
    """What share of the flow may be missing, or be left over."""

    def flow_for(self, watts: float) -> float:
        return watts * self.l_per_min_per_w

    def read_l_per_min(self, gpu: str) -> float:
        return number(run(self.reading.filled({"gpu": gpu}), self.timeout_s), "l/min")

    def set_l_per_min(self, gpu: str, flow: float) -> None:
        run(self.setting.filled({"gpu": gpu, "flow": f"{flow:g}"}), self.timeout_s)


@dataclass(frozen=True)
class CooledGpus:
    power: Actuator
    valve: Valve

    def read_w(self, gpu: str) -> float:
        return self.power.read_w(gpu)

    def set_w(self, gpu: str, watts: float) -> None:
        """Coolant first, and never less than there is. Whatever becomes of it, the flow stays up:
        the order may still be obeyed, and only who has lowered the GPU knows that it was not."""
        needed = self.valve.flow_for(watts)
        if self.read_flow_l_per_min(gpu) < needed:
            self.valve.set_l_per_min(gpu, needed)
            came = self.valve.read_l_per_min(gpu)
            if came < needed * (1 - self.valve.tolerance):
                raise ActuatorRefused(
                    f"coolant of GPU {gpu}: {came:g} l/min flow, {watts:g} W need {needed:g}"
                )
        self.power.set_w(gpu, watts)

    def lower_w(self, gpu: str, watts: float) -> None:
        self.power.set_w(gpu, watts)

    def read_flow_l_per_min(self, gpu: str) -> float:
        flow = self.valve.read_l_per_min(gpu)
        if not flow > 0:
            raise ActuatorRefused(f"coolant of GPU {gpu}: {flow:g} l/min flow, which is none")
        return flow

    def restore_flow(self, gpu: str, l_per_min: float) -> None:
        most = l_per_min * (1 + self.valve.tolerance)
        if self.valve.read_l_per_min(gpu) <= most:
            return
        self.valve.set_l_per_min(gpu, l_per_min)
        came = self.valve.read_l_per_min(gpu)
        if came > most:
            raise ActuatorRefused(
                f"coolant of GPU {gpu}: {came:g} l/min flow, it was to go back to {l_per_min:g}"
            )

    def limits_w(self, gpu: str) -> LimitsW:
        return self.power.limits_w(gpu)
