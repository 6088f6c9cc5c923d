"""Single parts of the runtime on real groups: a row-parallel layer, the loss, the gradient sync.

In: hand-made values. Out: what one rank made of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from loopback.pool import Seat
from loopback.ranks import Floats, Matrices, degree_of
from nonuniform.layout.cuts import ModelPlan
from nonuniform.placement.placement import Placement
from nonuniform.reshard.sync_plan import assign_buckets, bucket_plans
from nonuniform.train.cut import IGNORED
from nonuniform.train.parallel import RowLinear, reduce_out, vocab_cross_entropy
from nonuniform.train.session import open_groups
from nonuniform.train.sync import GradientSync, lane_for, make_buckets

CPU = torch.device("cpu")


@dataclass(frozen=True)
class CutOrder:
    """`held`: the columns that this rank holds; `values`, `factor`: the whole input and what the
    output is multiplied by to make it a number; `weight`: the whole weight, or the targets."""

    label: int
    degree: int
    held: tuple[int, ...]
    values: Tensor
    weight: Tensor
    factor: Tensor


def row_parallel(seat: Seat, order: CutOrder) -> tuple[Tensor, Tensor, Tensor]:
    """(output, gradient of the local inputs, gradient of the local weight [inputs, outputs])."""
    group = seat.open("row", order.label, order.degree)
    held = list(order.held)
    local = order.values[:, held].clone().requires_grad_()
    weight = nn.Parameter(order.weight[:, held].t().contiguous())
    output = reduce_out(RowLinear(weight)(local), group)
    (output * order.factor).sum().backward()
    assert local.grad is not None
    assert weight.grad is not None
    return output.detach(), local.grad, weight.grad


def cross_entropy(seat: Seat, order: CutOrder) -> tuple[Tensor, Tensor]:
    """(loss summed over valid tokens, gradient of the local logits)."""
    group = seat.open("loss", order.label, order.degree)
    local = order.values[:, list(order.held)].clone().requires_grad_()
    row_of_token = torch.full((order.values.shape[1],), -1)
    row_of_token[list(order.held)] = torch.arange(len(order.held))
    valid_N = order.weight != IGNORED
    row_N = row_of_token[order.weight.clamp(min=0)].masked_fill(~valid_N, -1)
    loss = vocab_cross_entropy(local, row_N, valid_N, group)
    (loss * order.factor).backward()
    assert local.grad is not None
    return loss.detach(), local.grad


Micro = Matrices
"""name -> gradient [logical rows, row elements] of one micro-batch; a name may be left out."""


@dataclass(frozen=True)
class SyncOrder:
    """`steps[i]`: the tokens of this rank's replica and their micro-batches."""

    plan: ModelPlan
    placement: Placement
    gpu: str
    steps: Sequence[tuple[int, Sequence[Micro]]]
    p: float = 2.0


@dataclass(frozen=True)
class SyncStep:
    norm: float
    tokens: float
    gradients: Matrices


def sync_by_hand(seat: Seat, order: SyncOrder) -> list[SyncStep]:
    """Backward passes that leave the given gradients, each step followed by a sync."""
    plan, placement = order.plan, order.placement
    member = placement.where(order.gpu)
    assert member is not None
    degree, label = degree_of(placement, member), member.label
    rows = {t.name: plan.local_rows(t, degree, label) for t in plan.tensors}
    parameters = {
        t.name: nn.Parameter(torch.zeros(len(rows[t.name]), t.row_elements, dtype=torch.float64))
        for t in plan.tensors
    }
    plans = bucket_plans(plan, degree, label, placement.sync_degree, assign_buckets(plan, 1))
    buckets = make_buckets(plans, torch.float64, CPU)
    groups = open_groups(placement, member, seat.open)
    sync = GradientSync(buckets, parameters, groups.reshard, groups.across, lane_for(CPU))
    done = []
    for tokens, micros in order.steps:
        sync.begin()
        for index, micro in enumerate(micros):
            if index == len(micros) - 1:
                sync.arm()
            parts = [
                (parameters[name] * torch.from_numpy(grad[rows[name]])).sum()
                for name, grad in micro.items()
            ]
            torch.stack(parts).sum().backward()
        sync.finish(0.0, tokens)
        norm, _, step_tokens = sync.norm_and_totals(order.p)
        grads = {name: _copy(parameter.grad) for name, parameter in parameters.items()}
        done.append(SyncStep(norm, step_tokens, grads))
    sync.close()
    return done


def _copy(grad: Tensor | None) -> Floats:
    assert grad is not None
    return grad.numpy().copy()
