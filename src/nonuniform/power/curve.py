"""What a GPU draws at which performance.

In: a GPU's set point and ceiling, and the shape of the curve. Out: watts or performance with a
band. Performance counts from the nominal set point (1.0). The law is `static + dynamic * x **
exponent`, where the static part is a share of the GPU's ceiling: the ceiling stands for its highest
clock, as in the measured curves, and a set point below it lies further down the same curve. DESIGN
"Words" (boost).

Does not know: clocks, voltages, or any measurement above a nominal set point. None was found, so
what lies above carries the band of all shapes and is told to be extrapolated.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from nonuniform.errors import BadInput


@dataclass(frozen=True)
class Estimate:
    """`low` and `high`: what the measured GPUs, and the published figures, leave open."""

    value: float
    low: float
    high: float
    extrapolated: bool


@dataclass(frozen=True)
class Shape:
    """Relative to the highest clock: `static_share + (1 - static_share) * y ** exponent`."""

    static_share: float
    exponent: float

    def __post_init__(self) -> None:
        if not 0 <= self.static_share < 1:
            raise BadInput(f"static_share = {self.static_share}: must be from 0 to below 1")
        if not 1 <= self.exponent <= 20:
            raise BadInput(f"exponent = {self.exponent}: must be from 1 to 20")

    def power(self, performance: float) -> float:
        return self.static_share + (1 - self.static_share) * float(performance**self.exponent)

    def performance(self, power: float) -> float:
        dynamic = (power - self.static_share) / (1 - self.static_share)
        return float(max(0.0, dynamic) ** (1 / self.exponent))


@dataclass(frozen=True)
class Curve:
    """`middle` answers, `flat` and `steep` are the edges of the band. `measured_from`: lowest
    performance, of that at the highest clock, that the curves of `middle` were fitted on."""

    middle: Shape
    flat: Shape
    steep: Shape
    measured_from: float

    @property
    def shapes(self) -> tuple[Shape, Shape, Shape]:
        return self.middle, self.flat, self.steep


@dataclass(frozen=True)
class GpuPower:
    """`idle_w`: what a failed GPU is reckoned to draw still, and the least set point."""

    nominal_w: float
    ceiling_w: float
    idle_w: float
    curve: Curve

    def __post_init__(self) -> None:
        for key in ("nominal_w", "ceiling_w", "idle_w"):
            value = getattr(self, key)
            if not (math.isfinite(value) and value > 0):
                raise BadInput(f"{key} = {value}: must be above 0 W and finite")
        if self.nominal_w > self.ceiling_w:
            raise BadInput(
                f"nominal_w = {self.nominal_w:g} is above ceiling_w = {self.ceiling_w:g}: "
                "a set point cannot be"
            )
        if self.idle_w >= self.nominal_w:
            raise BadInput(f"idle_w = {self.idle_w:g} is not below nominal_w = {self.nominal_w:g}")
        least = self.least_nominal_w
        if self.nominal_w < least:
            raise BadInput(
                f"nominal_w = {self.nominal_w:g}: no curve was measured below {least:.4g} W of a "
                f"ceiling_w = {self.ceiling_w:g}"
            )

    @property
    def least_nominal_w(self) -> float:
        middle = self.curve.middle.power(self.curve.measured_from)
        return self.ceiling_w * max(middle, self.curve.steep.static_share + 0.01)


def watts_for(gpu: GpuPower, performance: float) -> Estimate:
    """What one GPU draws at `performance`. It may lie above the ceiling: others judge that."""
    if not (math.isfinite(performance) and performance >= 0):
        raise BadInput(f"performance = {performance}: must be 0 or more and finite")
    try:
        return _estimate(gpu, lambda shape: _watts(gpu, shape, performance), performance)
    except OverflowError:
        raise BadInput(f"performance = {performance}: no GPU draws so much") from None


def performance_at(gpu: GpuPower, watts: float) -> Estimate:
    if not (math.isfinite(watts) and watts >= 0):
        raise BadInput(f"watts = {watts}: must be 0 or more and finite")
    middle = _performance(gpu, gpu.curve.middle, watts)
    return _estimate(gpu, lambda shape: _performance(gpu, shape, watts), middle)


def _estimate(gpu: GpuPower, law: Callable[[Shape], float], performance: float) -> Estimate:
    values = [law(shape) for shape in gpu.curve.shapes]
    lowest = gpu.curve.measured_from / gpu.curve.middle.performance(gpu.nominal_w / gpu.ceiling_w)
    # The inverse of the law may miss the set point itself by the last digit.
    beyond = performance > 1 + 1e-12 or performance < lowest * (1 - 1e-12)
    return Estimate(values[0], min(values), max(values), beyond)


def _static_w(gpu: GpuPower, shape: Shape) -> float:
    return shape.static_share * gpu.ceiling_w


def _watts(gpu: GpuPower, shape: Shape, performance: float) -> float:
    static_w = _static_w(gpu, shape)
    return static_w + (gpu.nominal_w - static_w) * float(performance**shape.exponent)


def _performance(gpu: GpuPower, shape: Shape, watts: float) -> float:
    static_w = _static_w(gpu, shape)
    dynamic = max(0.0, watts - static_w) / (gpu.nominal_w - static_w)
    return float(dynamic ** (1 / shape.exponent))
