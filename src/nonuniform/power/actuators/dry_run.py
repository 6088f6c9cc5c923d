"""Sets nothing, and says what it would have set.

In: what a GPU's set point is taken to be. Out: lines of text; what was "set" is read back, so that
all else happens as it would.
"""

from __future__ import annotations

from collections.abc import Callable

from nonuniform.power.actuators.base import LimitsW


class DryRun:
    def __init__(self, nominal_w: float, limits: LimitsW, say: Callable[[str], None]) -> None:
        self._nominal_w = nominal_w
        self._limits = limits
        self._say = say
        self._set_w: dict[str, float] = {}

    def read_w(self, gpu: str) -> float:
        return self._set_w.get(gpu, self._nominal_w)

    def set_w(self, gpu: str, watts: float) -> None:
        self._say(f"dry run: GPU {gpu} would be set to {watts:g} W")
        self._set_w[gpu] = watts

    def limits_w(self, gpu: str) -> LimitsW:
        return self._limits
