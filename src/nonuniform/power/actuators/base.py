"""The edge to whatever sets the power of a GPU.

In: a GPU's name and watts. Out: what is set there now. `fake.py` is the one for tests. An actuator
decides nothing and remembers nothing that matters: when it was wrong, reading back tells.

A *set point* is the cap that the GPU obeys, not what it draws.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class ActuatorRefused(Exception):
    """It did not happen, or nobody can say whether it did; the message is the reason."""


@dataclass(frozen=True)
class LimitsW:
    """The set points that a GPU takes."""

    lowest_w: float
    highest_w: float


class Actuator(Protocol):
    """All three may be called from several threads at once, for different GPUs."""

    def read_w(self, gpu: str) -> float:
        """The set point as it is now."""
        ...

    def set_w(self, gpu: str, watts: float) -> None:
        """Returning is no promise: a GPU may clamp what it is told. Read back."""
        ...

    def limits_w(self, gpu: str) -> LimitsW: ...


def lower_w(actuator: Actuator, gpu: str, watts: float, tolerance_w: float) -> float:
    """Take a set point down to `watts`, and read it back. One that somebody has lowered further
    in the meantime stays, since nobody may be boosted by what only takes boosts back."""
    try:
        now_w = actuator.read_w(gpu)
        if now_w <= watts + tolerance_w:
            return now_w
    except ActuatorRefused:
        pass  # it may still obey
    actuator.set_w(gpu, watts)
    return actuator.read_w(gpu)
