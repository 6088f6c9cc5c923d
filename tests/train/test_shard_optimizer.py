"""AdamW on shards: the slice of what it does to the whole, bit for bit, through every change."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from standins.shards import SHARED_KV, Whole, cut, parameters_of, plan_of, same_bits, some_whole
from torch import Tensor, nn

from nonuniform.config import OptimizerConfig
from nonuniform.train.optimizer import ShardOptimizer, clip_factor
from nonuniform.train.schedule import LrSchedule, learning_rate
from nonuniform.train.state import ShardState

SHAPE = replace(SHARED_KV, hidden=6, ffn=21, vocab=37)  # odd widths: tails of vector loops
PLAN = plan_of(SHAPE, 3)
OPTIONS = OptimizerConfig(lr=0.01, warmup=2, weight_decay=0.1)
STEPS = 6


def start_of(dtype: torch.dtype) -> Whole:
    whole = some_whole(PLAN, seed=1, dtype=dtype)
    return {
        name: (weight, torch.zeros_like(weight), torch.zeros_like(weight))
        for name, (weight, *_) in whole.items()
    }


def gradients(step: int, dtype: torch.dtype) -> dict[str, Tensor]:
    return {name: slots[0] for name, slots in some_whole(PLAN, 100 + step, dtype).items()}


class Rank:
    """One shard and its optimizer."""

    def __init__(self, state: ShardState, options: OptimizerConfig = OPTIONS) -> None:
        self.state = state
        self.options = options
        self.renew()

    def renew(self) -> None:
        """What every new generation does."""
        self.parameters = parameters_of(self.state)
        self.optimizer = ShardOptimizer(self.state, self.parameters, self.options, STEPS)

    def give(self, step: int) -> None:
        for tensor in PLAN.tensors:
            rows = PLAN.local_rows(tensor, self.state.degree, self.state.label)
            parameter = self.parameters[tensor.name]
            gradient = gradients(step, parameter.dtype)[tensor.name]
            parameter.grad = gradient[torch.from_numpy(rows.copy())].reshape(parameter.shape)

    def apply(self, step: int) -> None:
        self.give(step)
        self.optimizer.apply(step)


def whole_of(state: ShardState) -> Whole:
    """Of the only rank of a replica, in logical order."""
    whole = {}
    for tensor in PLAN.tensors:
        rows = torch.from_numpy(PLAN.local_rows(tensor, 1, 0).copy())
        slots = []
        for matrix in state.matrices[tensor.name]:
            slot = torch.empty_like(matrix)
            slot[rows] = matrix
            slots.append(slot)
        whole[tensor.name] = tuple(slots)
    return whole


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_slices_are_bit_equal_to_the_whole_through_changes_of_degree(dtype: torch.dtype) -> None:
    whole = Rank(cut(PLAN, start_of(dtype), 1, 0, step=0))
    places = [(3, label) for label in range(3)]
    ranks = [Rank(cut(PLAN, start_of(dtype), *place, step=0)) for place in places]
    for step in range(1, STEPS + 1):
        whole.apply(step)
        for rank in ranks:
            rank.apply(step)
        logical = whole_of(whole.state)
        for rank, place in zip(ranks, places, strict=True):
            assert same_bits(rank.state, cut(PLAN, logical, *place, step=step))
        if step % 2 == 0:  # a GPU is lost, or returns: moments and step go on as they are
            degree = 2 if step == 2 else 3
            places = [(degree, label) for label in range(degree)]
            ranks = [Rank(cut(PLAN, logical, *place, step=step)) for place in places]


def test_it_is_torchs_adamw_with_the_schedule_of_the_job() -> None:
    rank = Rank(cut(PLAN, start_of(torch.float64), 1, 0, step=0))
    copies = {name: nn.Parameter(p.detach().clone()) for name, p in rank.parameters.items()}
    norms = [p for name, p in copies.items() if "norm" in name]
    others = [p for name, p in copies.items() if "norm" not in name]
    groups = [{"params": others, "weight_decay": 0.1}, {"params": norms, "weight_decay": 0.0}]
    adamw = torch.optim.AdamW(groups, lr=OPTIONS.lr, betas=(0.9, 0.95), eps=1e-8)
    schedule = LrSchedule(OPTIONS.lr, 2, STEPS, "cosine", OPTIONS.lr * OPTIONS.min_lr)
    for step in range(1, STEPS + 1):
        rank.apply(step)
        for name, parameter in copies.items():
            parameter.grad = rank.parameters[name].grad
        for group in adamw.param_groups:
            group["lr"] = learning_rate(step, schedule)
        adamw.step()
    for name, parameter in copies.items():
        assert torch.allclose(rank.parameters[name], parameter, rtol=1e-13, atol=1e-15)


def test_weights_decay_and_norms_do_not() -> None:
    options = OptimizerConfig(lr=0.5, warmup=0, schedule="constant", weight_decay=0.1)
    rank = Rank(cut(PLAN, start_of(torch.float64), 2, 1, step=0), options)
    before = {name: p.detach().clone() for name, p in rank.parameters.items()}
    for parameter in rank.parameters.values():
        parameter.grad = torch.zeros_like(parameter)
    rank.optimizer.apply(1)
    for name, parameter in rank.parameters.items():
        decay = 1.0 if "norm" in name else 1.0 - 0.5 * 0.1
        assert torch.allclose(parameter, before[name] * decay, rtol=1e-15)
        assert ("norm" in name) == torch.equal(parameter, before[name])


def test_the_shard_is_what_is_stepped() -> None:
    """No copies: weights, moments and parameters are the shard's own memory."""
    rank = Rank(cut(PLAN, start_of(torch.float64), 3, 0, step=0))
    rank.apply(1)
    assert rank.state.step == 1
    for name, parameter in rank.parameters.items():
        weight, mean, square = rank.state.matrices[name]
        assert parameter.data_ptr() == weight.data_ptr()
        assert parameter.grad is not None
        gradient = parameter.grad.reshape(mean.shape)
        assert torch.allclose(mean, 0.1 * gradient, rtol=1e-12)
        assert torch.allclose(square, 0.05 * gradient**2, rtol=1e-12)


def test_a_new_session_goes_on_where_the_last_one_ended() -> None:
    """Also after a skip: whether a failure came in between must not move the weights."""
    ranks = [Rank(cut(PLAN, start_of(torch.float64), 3, 1, step=0)) for _ in range(2)]
    for rank in ranks:
        rank.apply(1)
        rank.give(2)
        rank.optimizer.skip(2)
    ranks[1].renew()
    for rank in ranks:
        rank.apply(3)
    assert same_bits(ranks[0].state, ranks[1].state)


def test_a_skip_counts_and_changes_nothing() -> None:
    rank = Rank(cut(PLAN, some_whole(PLAN, seed=1), 3, 1, step=4))
    rank.give(5)
    rank.optimizer.skip(5)
    assert same_bits(rank.state, cut(PLAN, some_whole(PLAN, seed=1), 3, 1, step=5))


@pytest.mark.parametrize("step", [3, 5, 6])
def test_no_step_is_applied_twice_or_left_out(step: int) -> None:
    rank = Rank(cut(PLAN, some_whole(PLAN, seed=1), 3, 1, step=4))
    rank.give(5)
    if step != 5:
        with pytest.raises(AssertionError, match=f"step {step} after 4"):
            rank.optimizer.apply(step)
        with pytest.raises(AssertionError, match=f"step {step} after 4"):
            rank.optimizer.skip(step)
        step = 5
    rank.optimizer.apply(step)
    with pytest.raises(AssertionError, match="step 5 after 5"):
        rank.optimizer.apply(5)


def test_a_rank_without_a_single_row_of_some_tensor_steps_too() -> None:
    plan = plan_of(SHAPE, 4, empty=True)
    state = cut(plan, some_whole(plan, seed=1), 4, 3, step=0)
    parameters = parameters_of(state)
    optimizer = ShardOptimizer(state, parameters, OPTIONS, STEPS)
    for parameter in parameters.values():
        parameter.grad = torch.ones_like(parameter)
    optimizer.apply(1)
    assert state.step == 1
    assert parameters["layers.0.attention.q.weight"].numel() == 0


@given(st.floats(0, 1e300), st.floats(0, 1e6))
def test_clipping_brings_a_norm_down_to_its_limit(norm: float, limit: float) -> None:
    factor = clip_factor(norm, limit)
    assert 0 <= factor <= 1.0
    if limit == 0.0 or norm <= limit:
        assert factor == 1.0
    else:
        assert norm * factor == pytest.approx(limit, rel=1e-12)


@pytest.mark.parametrize("norm", [math.nan, math.inf])
def test_what_is_not_finite_is_not_clipped(norm: float) -> None:
    assert clip_factor(norm, 1.0) == 1.0
    assert clip_factor(norm, 0.0) == 1.0
