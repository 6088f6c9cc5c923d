"""More watts need more coolant: a valve that opens before the power and closes after it.

In: an actuator of watts, the commands of the valve, and the flow that a watt needs. Out: the same
interface, so that nobody can raise a GPU and forget its coolant. A valve that will not open means
that the power is not raised. One that will not close is only told: it costs pump power, no heat.

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
    """What share of the flow may be missing."""

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
        flow = self.valve.flow_for(watts)
        if self._lowers(gpu, watts):
            self.power.set_w(gpu, watts)
            self.valve.set_l_per_min(gpu, flow)
            return
        self.valve.set_l_per_min(gpu, flow)
        came = self.valve.read_l_per_min(gpu)
        if came < flow * (1 - self.valve.tolerance):
            raise ActuatorRefused(
                f"coolant of GPU {gpu}: {came:g} l/min flow, {watts:g} W need {flow:g}"
            )
        self.power.set_w(gpu, watts)

    def _lowers(self, gpu: str, watts: float) -> bool:
        try:
            return watts <= self.power.read_w(gpu)
        except ActuatorRefused:
            return False  # nobody knows: coolant first

    def limits_w(self, gpu: str) -> LimitsW:
        return self.power.limits_w(gpu)
