"""Tensor parallelism as autograd functions and the few modules that use them.

For column-parallel Y_i = X W_i^T and row-parallel Z = sum_i Y_i V_i over the ranks i of a group:
forward of a region copies X to every rank (`copy_in`) and sums Z (`reduce_out`); backward is the
mirror image, so the gradient of X is summed in `copy_in` and that of Z passes `reduce_out` as it
is. Nothing here assumes equal shards: a rank may hold any rows, in any order, or none.

In: local shards, a group. Knows nothing of layouts, of which model it serves, or of replicas.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 (the name torch's own documentation uses)
from torch import Tensor, nn
from torch.autograd import Function

from nonuniform.train.groups import Group


class _CopyIn(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Group) -> Tensor:
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        total = grads[0].clone(memory_format=torch.contiguous_format)
        ctx.group.all_reduce(total)
        return total, None


class _ReduceOut(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Group) -> Tensor:
        total = x.clone(memory_format=torch.contiguous_format)
        group.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return grads[0], None


def copy_in(x: Tensor, group: Group) -> Tensor:
    """Enter a region: identity forward, sum of gradients backward."""
    return x if group.size == 1 else _CopyIn.apply(x, group)


def reduce_out(x: Tensor, group: Group) -> Tensor:
    """Leave a region: sum forward, identity backward."""
    return x if group.size == 1 else _ReduceOut.apply(x, group)


class Region(nn.Module):
    """A module that was cut inside: every rank gets the input, the outputs are summed."""

    def __init__(self, inner: nn.Module, group: Group) -> None:
        super().__init__()
        self.inner = inner
        self.group = group

    def forward(self, x: Tensor) -> Tensor:
        return reduce_out(self.inner(copy_in(x, self.group)), self.group)


class RowLinear(nn.Module):
    """The local part of a row-parallel layer; the weight is stored [local inputs, outputs]."""

    def __init__(self, weight: nn.Parameter) -> None:
        super().__init__()
        self.weight = weight

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight


class VocabEmbedding(nn.Module):
    """Rows of an embedding: tokens that live elsewhere contribute zeros to the sum."""

    def __init__(self, weight: nn.Parameter, row_of_token: Tensor, group: Group) -> None:
        super().__init__()
        self.weight = weight
        self.row_of_token = row_of_token
        self.group = group

    def forward(self, tokens_BS: Tensor) -> Tensor:
        if self.weight.shape[0] == 0:
            local = self.weight.new_zeros(*tokens_BS.shape, self.weight.shape[1])
        else:
            row_BS = self.row_of_token[tokens_BS]
            local = F.embedding(row_BS.clamp(min=0), self.weight)
            local = local.masked_fill((row_BS < 0).unsqueeze(-1), 0.0)
        return reduce_out(local, self.group)


class VocabHead(nn.Module):
    """Logits of the local rows of the vocabulary."""

    def __init__(self, weight: nn.Parameter, group: Group) -> None:
        super().__init__()
        self.weight = weight
        self.group = group

    def forward(self, x_BSH: Tensor) -> Tensor:
        return F.linear(copy_in(x_BSH, self.group), self.weight)


class _VocabCrossEntropy(Function):
    """Sum over tokens of -log softmax(logits)[target], the logits cut over the vocabulary."""

    @staticmethod
    def forward(
        ctx: Any, logits_NV: Tensor, row_N: Tensor, valid_N: Tensor, group: Group
    ) -> Tensor:
        if logits_NV.shape[1]:
            peak_N = logits_NV.amax(dim=1)
        else:
            peak_N = logits_NV.new_full((logits_NV.shape[0],), float("-inf"))
        group.all_reduce(peak_N, "max")
        exp_NV = (logits_NV - peak_N.unsqueeze(1)).exp()
        here_N = row_N >= 0
        sums_2N = logits_NV.new_zeros(2, logits_NV.shape[0])
        sums_2N[0] = exp_NV.sum(dim=1)
        if logits_NV.shape[1]:
            picked_N = logits_NV.gather(1, row_N.clamp(min=0).unsqueeze(1)).squeeze(1) - peak_N
            sums_2N[1] = picked_N.masked_fill(~here_N, 0.0)
        group.all_reduce(sums_2N)
        ctx.save_for_backward(exp_NV, sums_2N[0], row_N, valid_N)
        loss_N = sums_2N[0].log() - sums_2N[1]
        return loss_N.masked_fill(~valid_N, 0.0).sum()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        exp_NV, sum_N, row_N, valid_N = ctx.saved_tensors
        grad_NV = exp_NV / sum_N.unsqueeze(1)
        here_N = (row_N >= 0).nonzero().squeeze(1)
        grad_NV[here_N, row_N[here_N]] -= 1.0
        return grad_NV * (valid_N.unsqueeze(1) * grads[0]), None, None, None


def vocab_cross_entropy(logits_NV: Tensor, row_N: Tensor, valid_N: Tensor, group: Group) -> Tensor:
    """Loss summed over valid tokens; `row_N` is the local row of the target, -1 if elsewhere."""
    return _VocabCrossEntropy.apply(logits_NV, row_N, valid_N, group)
