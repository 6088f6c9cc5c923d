"""AdamW on a rank's shard: torch's optimizer over matrices that belong to the shard's state.

In: the shard, its parameters, options. Out: one step on summed gradients, scaled once. AdamW is
element-wise, so stepping a shard is stepping the slice of the whole, bit for bit, and the moments
move between ranks as rows like the weights. Knows nothing of where gradients came from.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

from nonuniform.config import OptimizerConfig
from nonuniform.train.schedule import LrSchedule, learning_rate
from nonuniform.train.state import ShardState


class ShardOptimizer:
    """`apply` advances weights, moments and the step count of `state` together."""

    def __init__(
        self,
        state: ShardState,
        parameters: dict[str, nn.Parameter],
        options: OptimizerConfig,
        steps: int,
    ) -> None:
        self.state = state
        self._schedule = LrSchedule(
            peak=options.lr,
            warmup=options.warmup,
            total=steps,
            kind=options.schedule,
            floor=options.lr * options.min_lr,
        )
        decayed = {t.name for t in state.plan.tensors if t.axis is not None}
        groups: list[dict[str, Any]] = [
            {
                "params": [p for name, p in parameters.items() if (name in decayed) == decay],
                "weight_decay": options.weight_decay if decay else 0.0,
            }
            for decay in (True, False)
        ]
        self._adamw = torch.optim.AdamW(
            [group for group in groups if group["params"]],
            lr=options.lr,
            betas=(options.beta1, options.beta2),
            eps=options.eps,
            foreach=True,
        )
        for name, parameter in parameters.items():
            _, mean, square = state.matrices[name]
            self._adamw.state[parameter] = {
                "step": torch.tensor(float(state.step)),
                "exp_avg": mean.view(parameter.shape),
                "exp_avg_sq": square.view(parameter.shape),
            }

    def apply(self, step: int) -> None:
        """Step number `step` (from 1), with what is in the parameters' `.grad`."""
        assert step == self.state.step + 1, f"step {step} after {self.state.step}"
        for group in self._adamw.param_groups:
            group["lr"] = learning_rate(step, self._schedule)
        self._adamw.step()
        self.state.step = step

    def skip(self, step: int) -> None:
        """A committed step whose gradients were not finite: counted, nothing changes."""
        assert step == self.state.step + 1, f"step {step} after {self.state.step}"
        for slots in self._adamw.state.values():
            slots["step"] += 1  # as a rank that starts from `state.step` would count
        self.state.step = step


def clip_factor(norm: float, limit: float) -> float:
    """What to multiply gradients by so that their norm is at most `limit` (0: no limit)."""
    if limit == 0.0 or not math.isfinite(norm) or norm <= limit:
        return 1.0
    return limit / norm
