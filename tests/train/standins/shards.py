"""Small models and the shards of a whole that is known.

In: a plan. Out: states cut from matrices in logical row order, and the way back.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from nonuniform.layout.model_plan import ModelPlan, ModelShape, plan_llama
from nonuniform.train.state import SLOTS, Matrices, ShardState

CPU = torch.device("cpu")
Whole = dict[str, tuple[Tensor, ...]]
"""tensor name -> [all logical rows, row elements] per slot."""

# Query heads as units, KV heads shared by ranks; the last FFN and vocabulary blocks are short.
SHARED_KV = ModelShape(
    layers=2, hidden=4, heads=3, kv_heads=2, head_dim=2, ffn=7, vocab=11, tied=False
)
KV_GROUPS = ModelShape(
    layers=1, hidden=4, heads=8, kv_heads=4, head_dim=2, ffn=10, vocab=9, tied=True
)


def plan_of(shape: ModelShape, base: int, min_degree: int = 1, empty: bool = False) -> ModelPlan:
    return plan_llama(shape, base, min_degree, empty)


def some_whole(plan: ModelPlan, seed: int, dtype: torch.dtype = torch.float64) -> Whole:
    random = torch.Generator().manual_seed(seed)
    return {
        tensor.name: tuple(
            torch.randn(tensor.rows, tensor.row_elements, generator=random, dtype=dtype)
            for _ in SLOTS
        )
        for tensor in plan.tensors
    }


def cut(plan: ModelPlan, whole: Whole, degree: int, label: int, step: int = 1) -> ShardState:
    matrices: Matrices = {}
    for tensor in plan.tensors:
        rows = torch.from_numpy(plan.local_rows(tensor, degree, label).copy())
        matrices[tensor.name] = tuple(slot[rows].clone() for slot in whole[tensor.name])
    return ShardState(plan, degree, label, step, matrices)


def same_bits(one: ShardState, other: ShardState) -> bool:
    """Also the places agree, and the dtypes."""
    if (one.degree, one.label, one.step) != (other.degree, other.label, other.step):
        return False
    return all(
        a.dtype == b.dtype and torch.equal(a, b)
        for name, slots in one.matrices.items()
        for a, b in zip(slots, other.matrices[name], strict=True)
    )


def parameters_of(state: ShardState) -> dict[str, nn.Parameter]:
    """As a cut model has them: sharing memory with the shard."""
    parameters = {}
    for tensor in state.plan.tensors:
        matrix = state.matrices[tensor.name][0]
        weight = matrix.view(tensor.shape) if tensor.axis is None else matrix
        parameters[tensor.name] = nn.Parameter(weight)
    return parameters
