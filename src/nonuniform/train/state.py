"""What one rank holds between steps: its shard of weights and optimizer state, unit-major.

In: a plan, a degree and a label. Out: for each tensor a matrix [local rows, row elements] per
slot (weight and both AdamW moments), cut to another layout by `recut`. DESIGN "Nested layouts".
Knows nothing of modules, gradients or groups.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nonuniform.layout.cuts import ModelPlan, TensorCut
from nonuniform.train.initial import initial_rows

SLOTS = ("weight", "exp_avg", "exp_avg_sq")
Matrices = dict[str, tuple[Tensor, ...]]
"""tensor name -> one matrix [local rows, row elements] per slot."""


@dataclass
class ShardState:
    """The shard of `label` at `degree` after `step` committed steps."""

    plan: ModelPlan
    degree: int
    label: int
    step: int
    matrices: Matrices

    def unit_rows(self, tensor: TensorCut) -> dict[int, tuple[int, int]]:
        """unit -> its rows [start, stop) in the shard."""
        spans = self.plan.local_unit_spans(tensor, self.degree, self.label)
        return {unit: (start, stop) for unit, start, stop in spans}

    def unit(self, tensor: TensorCut, unit: int) -> list[Tensor]:
        """The rows of a unit in every slot."""
        start, stop = self.unit_rows(tensor)[unit]
        return [matrix[start:stop] for matrix in self.matrices[tensor.name]]


def initial_state(
    plan: ModelPlan,
    where: tuple[int, int],
    seed: int,
    dtype: torch.dtype,
    device: torch.device,
    working: Callable[[], object] = lambda: None,
) -> ShardState:
    """The shard of `where` = (degree, label) before the first step; `working` is called with every
    tensor."""
    degree, label = where
    layers = 1 + max((_layer(tensor.name) for tensor in plan.tensors), default=0)
    matrices: Matrices = {}
    for tensor in plan.tensors:
        working()
        rows = plan.local_rows(tensor, degree, label)
        values = initial_rows(tensor, rows, seed, layers)
        # Not from_numpy(...).to(...): an empty array's strides are 0, and torch would keep them.
        weight = torch.empty(values.shape, dtype=dtype, device=device)
        weight.copy_(torch.from_numpy(values))
        matrices[tensor.name] = (weight, torch.zeros_like(weight), torch.zeros_like(weight))
    return ShardState(plan, degree, label, 0, matrices)


def _layer(name: str) -> int:
    parts = name.split(".")
    return int(parts[1]) if parts[0] == "layers" else 0


Received = Mapping[tuple[str, int], tuple[Tensor, ...]]
"""(tensor name, unit) -> the unit's rows in every slot."""


def recut(
    held: ShardState | Tensor,
    plan: ModelPlan,
    where: tuple[int, int],
    step: int,
    received: Received,
) -> ShardState:
    """The shard of `where` made of what is held and what was received; `held` stays as it is.

    A rank that holds nothing gives an empty tensor of the right dtype and device instead.
    """
    degree, label = where
    if isinstance(held, ShardState) and (held.degree, held.label) == where:
        return held
    matrices: Matrices = {}
    for tensor in plan.tensors:
        rows = plan.local_rows(tensor, degree, label)
        sources = [_offer(held, plan, tensor)]
        for unit in plan.family(tensor.family).at(degree).held[label]:
            if (tensor.name, unit) in received:
                span = np.arange(*tensor.unit_span(unit), dtype=np.int64)
                sources.append((span, received[tensor.name, unit]))
        matrices[tensor.name] = _gather(tensor, rows, sources)
    return ShardState(plan, degree, label, step, matrices)


Source = tuple[NDArray[np.int64], tuple[Tensor, ...]]
"""Logical rows, and the same rows in every slot."""


def _offer(held: ShardState | Tensor, plan: ModelPlan, tensor: TensorCut) -> Source:
    """What a rank holds of a tensor already."""
    if isinstance(held, ShardState):
        rows = plan.local_rows(tensor, held.degree, held.label)
        return rows, held.matrices[tensor.name]
    nothing = held.new_empty(0, tensor.row_elements)
    return np.empty(0, dtype=np.int64), (nothing,) * len(SLOTS)


def _gather(
    tensor: TensorCut,
    rows: NDArray[np.int64],
    sources: list[Source],
) -> tuple[Tensor, ...]:
    """Rows in the wanted order out of several sources, one matrix per slot."""
    offered = np.concatenate([offer for offer, _ in sources])
    position = np.full(tensor.rows, -1, dtype=np.int64)
    position[offered] = np.arange(len(offered))
    index = position[rows]
    assert (index >= 0).all(), f"{tensor.name}: {int((index < 0).sum())} rows came from nowhere"
    slots = zip(*(matrices for _, matrices in sources), strict=True)
    joined = [torch.cat(list(pieces)) for pieces in slots]
    if np.array_equal(index, np.arange(len(offered))):
        return tuple(joined)  # the prefix stays, what came is appended: the common case
    picked = torch.from_numpy(index).to(joined[0].device)
    return tuple(matrix.index_select(0, picked) for matrix in joined)
