"""Layers cut over real processes against the same layers in one: values and both gradients."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 (the name torch's own documentation uses)
from loopback.pieces import CutOrder, cross_entropy, row_parallel
from loopback.pool import Pool
from torch import Tensor, nn

from nonuniform.layout.nested import nested_layout
from nonuniform.train.cut import IGNORED

WITHIN = 1e-13


def random(*shape: int) -> Tensor:
    source = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, dtype=torch.float64, generator=source)


def furthest(one: Tensor, other: Tensor) -> float:
    assert one.shape == other.shape
    return float((one - other).abs().max()) if one.numel() else 0.0


def orders(
    layout: Sequence[tuple[int, ...]], values: Tensor, weight: Tensor, factor: Tensor
) -> list[CutOrder]:
    return [
        CutOrder(label, len(layout), held, values, weight, factor)
        for label, held in enumerate(layout)
    ]


@pytest.mark.parametrize(("base", "degree"), [(6, 6), (6, 5), (6, 4), (18, 17)])
def test_a_row_parallel_layer_of_uneven_inputs(pool: Pool, base: int, degree: int) -> None:
    layout = nested_layout(16, base, degree).held
    whole = nn.Linear(16, 10, bias=False, dtype=torch.float64)
    whole.weight.data = random(10, 16)
    inputs, factor = random(9, 16).requires_grad_(), random(9, 10)
    output = whole(inputs)
    (output * factor).sum().backward()
    assert inputs.grad is not None
    assert whole.weight.grad is not None
    answers = pool.run(row_parallel, orders(layout, inputs.detach(), whole.weight.detach(), factor))
    for held, (local_output, grad_inputs, grad_weight) in zip(layout, answers, strict=True):
        assert furthest(local_output, output.detach()) <= WITHIN
        assert furthest(grad_inputs, inputs.grad[:, list(held)]) <= WITHIN
        assert furthest(grad_weight, whole.weight.grad[:, list(held)].t()) <= WITHIN
        assert torch.equal(local_output, answers[0][0])


@pytest.mark.parametrize(
    ("vocab", "base", "degree"), [(11, 4, 4), (11, 4, 3), (257, 5, 4), (2, 3, 3)]
)
@pytest.mark.parametrize("spread", [1.0, 1e4])
def test_the_loss_over_a_cut_vocabulary(
    pool: Pool, vocab: int, base: int, degree: int, spread: float
) -> None:
    layout = nested_layout(vocab, base, degree).held
    logits = (random(13, vocab) * spread).requires_grad_()
    targets = torch.arange(13) * 3 % vocab
    targets[[0, 5, 12]] = IGNORED
    loss = F.cross_entropy(logits, targets, ignore_index=IGNORED, reduction="sum")
    (loss * 0.5).backward()
    assert logits.grad is not None
    factor = torch.tensor(0.5, dtype=torch.float64)
    answers = pool.run(cross_entropy, orders(layout, logits.detach(), targets, factor))
    for held, (local_loss, grad_logits) in zip(layout, answers, strict=True):
        assert abs(float(local_loss - loss.detach())) <= WITHIN * float(loss.detach())
        assert furthest(grad_logits, logits.grad[:, list(held)]) <= WITHIN
        assert torch.equal(local_loss, answers[0][0])


def test_where_no_target_counts_loss_and_gradient_are_zero(pool: Pool) -> None:
    layout = nested_layout(11, 2, 2).held
    targets = torch.full((4,), IGNORED)
    factor = torch.ones((), dtype=torch.float64)
    for loss, grad in pool.run(cross_entropy, orders(layout, random(4, 11), targets, factor)):
        assert float(loss) == 0.0
        assert not grad.any()
