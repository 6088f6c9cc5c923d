"""Gradients that are known: small whole numbers, so that sums are exact in any order.

In: a plan, a seed. Out: what each rank contributes to each parameter, and the sum over all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from nonuniform.layout.cuts import ModelPlan, TensorCut
from nonuniform.layout.units import Ownership


@dataclass(frozen=True)
class Known:
    """`degrees` by replica; tensors in `missing` get no gradient in the replicas named."""

    plan: ModelPlan
    degrees: Sequence[int]
    missing: frozenset[tuple[int, str]] = frozenset()

    def of_rank(self, tensor: TensorCut, replica: int, label: int) -> Tensor | None:
        """[local rows, row elements]: a share for each owner where a unit has several that add
        up, the same for all where they are copies."""
        if (replica, tensor.name) in self.missing:
            return None
        rows = self.plan.local_rows(tensor, self.degrees[replica], label)
        shared = self.plan.family(tensor.family).ownership is Ownership.SHARED
        drawn = _draw(tensor, replica, label if shared else 0)
        return drawn[torch.from_numpy(rows.copy())]

    def total(self, tensor: TensorCut) -> Tensor:
        """[all rows, row elements]: the sum over replicas, and over owners that add up."""
        family = self.plan.family(tensor.family)
        total = torch.zeros(tensor.rows, tensor.row_elements, dtype=torch.float64)
        for replica, degree in enumerate(self.degrees):
            if (replica, tensor.name) in self.missing:
                continue
            if family.ownership is not Ownership.SHARED:
                total += _draw(tensor, replica, 0)
                continue
            for label in range(degree):
                rows = torch.from_numpy(self.plan.local_rows(tensor, degree, label).copy())
                total[rows] += _draw(tensor, replica, label)[rows]
        return total

    def norm(self, p: float) -> float:
        parts = [self.total(tensor).ravel() for tensor in self.plan.tensors]
        return float(torch.linalg.vector_norm(torch.cat(parts), p))


def _draw(tensor: TensorCut, replica: int, owner: int) -> Tensor:
    seed = [*tensor.name.encode(), replica, owner]
    shape = (tensor.rows, tensor.row_elements)
    whole = np.random.default_rng(seed).integers(-9, 10, shape)
    return torch.from_numpy(whole).to(torch.float64)
