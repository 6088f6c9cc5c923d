"""The same job in one process: the plain model, torch's AdamW, the mean loss over all tokens.

Written on its own: from the runtime it takes only the model, the initial weights by logical row,
and the names and axes of the tensors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 (the name torch's own documentation uses)
from numpy.typing import NDArray
from torch import Tensor

from loopback.ranks import Floats, Matrices
from nonuniform.config import JobConfig, OptimizerConfig
from nonuniform.layout.cuts import ModelPlan, TensorCut
from nonuniform.train.initial import initial_rows
from nonuniform.train.model import Llama
from nonuniform.train.session import job_plan

IGNORED = -100


@dataclass
class Reference:
    """What the steps gave; matrices are [logical rows, row elements], by name."""

    losses: list[float] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)
    clips: dict[int, float] = field(default_factory=dict)
    gradients: dict[int, Matrices] = field(default_factory=dict)
    slots: dict[str, tuple[Floats, ...]] = field(default_factory=dict)


class OneProcess:
    """Trains on whole batches, one step after the other."""

    def __init__(self, job: JobConfig) -> None:
        self.job = job
        self.plan: ModelPlan = job_plan(job)
        self.model = Llama(job.model.shape(), job.model.rope_base, job.model.norm_eps).double()
        self.named = dict(self.model.named_parameters())
        self._load_initial_weights()
        options = job.optimizer
        matrices = [p for p in self.named.values() if p.ndim == 2]
        vectors = [p for p in self.named.values() if p.ndim == 1]
        self.optimizer = torch.optim.AdamW(
            [
                {"params": matrices, "weight_decay": options.weight_decay},
                {"params": vectors, "weight_decay": 0.0},
            ],
            betas=(options.beta1, options.beta2),
            eps=options.eps,
        )
        self.steps = 0

    def _load_initial_weights(self) -> None:
        assert set(self.named) == {tensor.name for tensor in self.plan.tensors}
        for tensor in self.plan.tensors:
            every = np.arange(tensor.rows, dtype=np.int64)
            rows = initial_rows(tensor, every, self.job.run.seed, self.job.model.layers)
            weight = torch.from_numpy(rows)
            self.named[tensor.name].data = _shaped(tensor, weight).contiguous()

    def train(self, batches: Sequence[NDArray[np.int64]]) -> Reference:
        """Go on with these batches, one a step; what happened on the way."""
        record = Reference()
        threads = torch.get_num_threads()
        torch.set_num_threads(1)  # matrices this small only make threads wait for each other
        try:
            for tokens_BT in batches:
                self._step(tokens_BT, record)
        finally:
            torch.set_num_threads(threads)
        record.slots = self._slots()
        return record

    def _step(self, tokens_BT: NDArray[np.int64], record: Reference) -> None:
        tokens = torch.from_numpy(tokens_BT)
        self.optimizer.zero_grad()
        logits_NV = self.model(tokens[:, :-1]).flatten(0, 1)
        loss = F.cross_entropy(logits_NV, tokens[:, 1:].flatten(), ignore_index=IGNORED)
        loss.backward()
        self.steps += 1
        options = self.job.optimizer
        record.losses.append(loss.item())
        grads = {name: _grad(parameter) for name, parameter in self.named.items()}
        record.gradients[self.steps] = self._matrices(grads)
        every = torch.cat([grad.flatten() for grad in grads.values()])
        norm = torch.linalg.vector_norm(every, options.clip_norm).item()
        record.norms.append(norm)
        record.clips[self.steps] = min(1.0, options.clip / norm) if options.clip else 1.0
        for grad in grads.values():
            grad.mul_(record.clips[self.steps])
        for group in self.optimizer.param_groups:
            group["lr"] = cosine_rate(self.steps, options, self.job.run.steps)
        self.optimizer.step()

    def _matrices(self, values: dict[str, Tensor]) -> Matrices:
        return {t.name: _matrix(t, values[t.name]).numpy().copy() for t in self.plan.tensors}

    def _slots(self) -> dict[str, tuple[Floats, ...]]:
        state = self.optimizer.state
        slots = [{name: parameter.detach() for name, parameter in self.named.items()}]
        slots += [
            {name: state[parameter][moment] for name, parameter in self.named.items()}
            for moment in ("exp_avg", "exp_avg_sq")
        ]
        by_slot = [self._matrices(values) for values in slots]
        return {t.name: tuple(values[t.name] for values in by_slot) for t in self.plan.tensors}


def cosine_rate(step: int, options: OptimizerConfig, steps: int) -> float:
    """A straight line up, then half a cosine down to a share of the peak."""
    if step < options.warmup:
        return options.lr * step / options.warmup
    angle = math.pi * (step - options.warmup) / (steps - options.warmup)
    share = options.min_lr + (1.0 - options.min_lr) * (1.0 + math.cos(angle)) / 2.0
    return options.lr * share


def _grad(parameter: Tensor) -> Tensor:
    assert parameter.grad is not None
    return parameter.grad


def _matrix(tensor: TensorCut, value: Tensor) -> Tensor:
    """[logical rows, row elements] of a parameter in torch's shape."""
    value = value.t() if tensor.axis == 1 else value
    return value.reshape(tensor.rows, tensor.row_elements)


def _shaped(tensor: TensorCut, rows: Tensor) -> Tensor:
    """The way back."""
    return rows.t() if tensor.axis == 1 else rows.reshape(tensor.shape)
