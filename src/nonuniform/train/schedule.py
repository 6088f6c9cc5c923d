"""The learning rate as a function of the step.

In: a step (1 is the first) and the options. Out: the rate. DESIGN "The step is a transaction": the
step is part of the commit, so every rank, and a rank that joins later, computes the same rate.
Knows nothing of the optimizer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from nonuniform.errors import BadInput

ScheduleKind = Literal["cosine", "linear", "constant"]


@dataclass(frozen=True)
class LrSchedule:
    """`warmup` steps up to `peak`, then by `kind` down to `floor` at step `total`.

    `constant` stays at the peak. A run that is shorter than the warm-up ends below the peak.
    """

    peak: float
    warmup: int
    total: int
    kind: ScheduleKind = "cosine"
    floor: float = 0.0

    def __post_init__(self) -> None:
        if self.kind not in get_args(ScheduleKind):
            raise BadInput(
                f'learning rate schedule "{self.kind}": '
                f"expected one of {', '.join(get_args(ScheduleKind))}"
            )
        if not (math.isfinite(self.peak) and 0 <= self.floor <= self.peak):
            raise BadInput(
                f"learning rate: the floor {self.floor} must be between 0 and the peak {self.peak}"
            )
        if self.warmup < 0 or self.total < 1:
            raise BadInput(
                f"learning rate: warmup of {self.warmup} steps in {self.total} steps: "
                "needs warmup >= 0 and at least one step"
            )


def learning_rate(step: int, options: LrSchedule) -> float:
    """The rate of one step; after `total` it stays where it ended."""
    if step < options.warmup:
        return options.peak * step / options.warmup
    if options.kind == "constant":
        return options.peak
    done = min(1.0, (step - options.warmup) / max(1, options.total - options.warmup))
    left = 0.5 * (1.0 + math.cos(math.pi * done)) if options.kind == "cosine" else 1.0 - done
    return options.peak * left + options.floor * (1.0 - left)
