"""A training step, top to bottom.

In: a session and this replica's share of the batch. Out: a `StepResult` that can be voted on;
`apply_step` does what was committed. DESIGN "Gradient sync" and "The step is a transaction".
Gradients are sums over tokens, divided once by the tokens of the whole step, so shares of any
size weigh right. Knows nothing of votes, stores or failures.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from nonuniform.train.cut import IGNORED
from nonuniform.train.optimizer import clip_factor
from nonuniform.train.session import Session


@dataclass(frozen=True)
class StepResult:
    """Of all replicas together: `loss_sum` over `tokens`, and the norm of the mean gradient."""

    loss_sum: float
    tokens: int
    grad_norm: float

    @property
    def finite(self) -> bool:
        return math.isfinite(self.grad_norm) and math.isfinite(self.loss_sum)


def train_step(session: Session, tokens_BT: Tensor) -> StepResult:
    """Forward, backward and sync of tokens [sequences, length + 1]; nothing is changed yet."""
    inputs_BS, targets_BS = tokens_BT[:, :-1], tokens_BT[:, 1:]
    tokens = int((targets_BS != IGNORED).sum())
    sync, progress = session.sync, session.progress
    sync.begin()
    micros = min(session.job.batch.accumulation, len(tokens_BT))
    loss_sum = torch.zeros((), dtype=torch.float64, device=tokens_BT.device)
    pieces = zip(inputs_BS.tensor_split(micros), targets_BS.tensor_split(micros), strict=True)
    for index, (inputs, targets) in enumerate(pieces):
        progress.at("forward")
        loss = session.model.loss_sum(inputs, targets)
        if index == micros - 1:
            sync.arm()
        progress.at("backward")
        # Exactly 1, or NaN where the loss is not finite: then every rank sees a NaN norm and skips.
        loss.backward(1.0 + 0.0 * loss.detach())
        loss_sum += loss.detach()
    progress.at("gradient sync")
    sync.finish(loss_sum, tokens)
    progress.at("norm")
    norm, total, step_tokens = sync.norm_and_totals(session.job.optimizer.clip_norm)
    return StepResult(total, step_tokens, norm / max(1, step_tokens))


def apply_step(session: Session, step: int, result: StepResult) -> None:
    """The committed step: mean gradient, clipped, into the optimizer; or a counted skip."""
    if not math.isfinite(result.grad_norm):
        session.optimizer.skip(step)
        return
    clip = clip_factor(result.grad_norm, session.job.optimizer.clip)
    session.sync.scale(clip / max(1, result.tokens))
    session.optimizer.apply(step)


@torch.no_grad()
def validation_step(session: Session, tokens_BT: Tensor) -> StepResult:
    """The loss of the held-out text: tokens [sequences, length + 1] are this replica's share of it,
    which may be nothing."""
    loss: Tensor | float = 0.0
    inputs_BS, targets_BS = tokens_BT[:, :-1], tokens_BT[:, 1:]
    if len(tokens_BT):
        loss = session.model.loss_sum(inputs_BS, targets_BS)
    tokens = int((targets_BS != IGNORED).sum())
    return StepResult(*session.sync.totals(loss, tokens), grad_norm=0.0)
