"""Shards: the same weights however they are cut, and cut anew without losing a bit."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from standins.shards import (
    CPU,
    KV_GROUPS,
    SHARED_KV,
    Whole,
    cut,
    plan_of,
    same_bits,
    some_whole,
)

from nonuniform.layout.cuts import ModelPlan
from nonuniform.layout.model_plan import ModelShape
from nonuniform.train.state import SLOTS, Received, ShardState, initial_state, recut

SHAPES = {"shared KV": SHARED_KV, "KV groups": KV_GROUPS}
NOTHING = torch.empty(0, dtype=torch.float64)


def lacking(
    plan: ModelPlan, whole: Whole, held: ShardState | None, where: tuple[int, int]
) -> Received:
    """What a rank that holds `held` has to receive to be `where`."""
    received = {}
    for tensor in plan.tensors:
        has = set() if held is None else set(held.unit_rows(tensor))
        for unit in plan.family(tensor.family).at(where[0]).held[where[1]]:
            if unit not in has:
                start, stop = tensor.unit_span(unit)
                received[tensor.name, unit] = tuple(
                    slot[start:stop].clone() for slot in whole[tensor.name]
                )
    return received


def rows_together(plan: ModelPlan, degree: int, seed: int) -> dict[str, torch.Tensor]:
    """The weights of all ranks of a replica, by logical row."""
    found: dict[str, torch.Tensor] = {}
    for label in range(degree):
        state = initial_state(plan, (degree, label), seed, torch.float64, CPU)
        for tensor in plan.tensors:
            whole = found.setdefault(
                tensor.name,
                torch.full((tensor.rows, tensor.row_elements), torch.nan, dtype=torch.float64),
            )
            rows = torch.from_numpy(plan.local_rows(tensor, degree, label).copy())
            weight = state.matrices[tensor.name][0]
            before = whole[rows]
            assert torch.equal(before[~before.isnan()], weight[~before.isnan()])
            whole[rows] = weight
    return found


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_the_logical_weights_do_not_depend_on_the_degree(shape: ModelShape) -> None:
    plan = plan_of(shape, 3)
    first = rows_together(plan, 1, seed=5)
    for degree in (2, 3):
        other = rows_together(plan, degree, seed=5)
        assert all(torch.equal(first[name], other[name]) for name in first)
    assert not any(matrix.isnan().any() for matrix in first.values())
    other = rows_together(plan, 2, seed=6)
    assert not torch.equal(first["embed.weight"], other["embed.weight"])


def test_the_logical_weights_do_not_depend_on_the_units() -> None:
    """Another base degree cuts FFN and vocabulary in other blocks, attention in other units."""
    shape = replace(SHARED_KV, heads=8, kv_heads=4, ffn=256, vocab=256)
    plans = [plan_of(shape, base, least, True) for base, least in ((1, 1), (4, 4), (8, 5))]
    cuts = {tuple((t.family, t.unit_rows) for t in plan.tensors) for plan in plans}
    assert len(cuts) == len(plans)
    wholes = [rows_together(plan, plan.base, seed=5) for plan in plans]
    for other in wholes[1:]:
        assert all(torch.equal(wholes[0][name], other[name]) for name in wholes[0])


def test_moments_start_at_zero_and_the_dtype_is_the_wanted_one() -> None:
    state = initial_state(plan_of(SHARED_KV, 3), (3, 1), 1, torch.float32, CPU)
    assert (state.step, state.degree, state.label) == (0, 3, 1)
    for weight, *moments in state.matrices.values():
        assert weight.dtype == torch.float32
        assert len(moments) == len(SLOTS) - 1
        assert all(torch.equal(moment, torch.zeros_like(weight)) for moment in moments)
    exact = initial_state(plan_of(SHARED_KV, 3), (3, 1), 1, torch.float64, CPU)
    for name, (weight, *_) in state.matrices.items():
        assert torch.equal(weight, exact.matrices[name][0].float())


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("step", [0, 9])
def test_there_and_back_is_the_identity(shape: ModelShape, step: int) -> None:
    plan = plan_of(shape, 3)
    whole = some_whole(plan, seed=3)
    for degree, label in ((3, 0), (3, 1), (2, 0), (2, 1)):
        start = cut(plan, whole, degree, label, step)
        for there in ((1, 0), (2, 1), (3, 2), (3, 0)):
            away = recut(start, plan, there, step, lacking(plan, whole, start, there))
            assert same_bits(away, cut(plan, whole, *there, step))
            back = lacking(plan, whole, away, (degree, label))
            assert same_bits(recut(away, plan, (degree, label), step, back), start)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 3)), min_size=1, max_size=5))
def test_any_walk_over_degrees_and_labels_loses_nothing(walk: list[tuple[int, int]]) -> None:
    plan = plan_of(KV_GROUPS, 4)
    whole = some_whole(plan, seed=4, dtype=torch.float32)
    state = cut(plan, whole, 4, 0)
    for degree, label in walk:
        where = (degree, label % degree)
        state = recut(state, plan, where, 1, lacking(plan, whole, state, where))
        assert same_bits(state, cut(plan, whole, *where))


def test_the_shard_that_was_held_stays_as_it_is() -> None:
    """A regroup that is cut short goes back to it."""
    plan = plan_of(SHARED_KV, 3)
    whole = some_whole(plan, seed=3)
    held = cut(plan, whole, 3, 0)
    for where in ((2, 0), (2, 1), (1, 0)):
        new = recut(held, plan, where, 1, lacking(plan, whole, held, where))
        for slots in new.matrices.values():
            for matrix in slots:
                matrix.zero_()
        assert same_bits(held, cut(plan, whole, 3, 0))
    assert recut(held, plan, (3, 0), 1, {}) is held


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_one_who_joins_with_nothing_gets_everything(dtype: torch.dtype) -> None:
    plan = plan_of(SHARED_KV, 4, empty=True)
    whole = some_whole(plan, seed=3, dtype=dtype)
    like = torch.empty(0, dtype=dtype)
    for label in range(4):  # label 3 has no query head and so no KV head
        received = lacking(plan, whole, None, (4, label))
        joined = recut(like, plan, (4, label), 7, received)
        assert same_bits(joined, cut(plan, whole, 4, label, step=7))
    assert joined.matrices["layers.0.attention.q.weight"][0].shape == (0, 4)


def test_a_row_that_came_from_nowhere_is_noticed() -> None:
    plan = plan_of(SHARED_KV, 3)
    whole = some_whole(plan, seed=3)
    held = cut(plan, whole, 3, 0)
    received = dict(lacking(plan, whole, held, (2, 0)))
    lost = next(key for key in received if key[0] == "head.weight")
    rows = len(received.pop(lost)[0])
    with pytest.raises(AssertionError, match=rf"head\.weight: {rows} rows came from nowhere"):
        recut(held, plan, (2, 0), 1, received)
    with pytest.raises(AssertionError, match="came from nowhere"):
        recut(NOTHING, plan, (2, 0), 1, {})


def test_units_are_views_of_the_shard_in_local_order() -> None:
    plan = plan_of(SHARED_KV, 3)
    whole = some_whole(plan, seed=3)
    state = cut(plan, whole, 2, 1)
    for tensor in plan.tensors:
        rows = state.unit_rows(tensor)
        assert list(rows) == list(plan.family(tensor.family).at(2).held[1])
        for unit in rows:
            start, stop = tensor.unit_span(unit)
            parts = state.unit(tensor, unit)
            for part, slot in zip(parts, whole[tensor.name], strict=True):
                assert torch.equal(part, slot[start:stop])
            assert parts[0].data_ptr() == state.matrices[tensor.name][0][rows[unit][0]].data_ptr()


def test_an_empty_shard_is_laid_out_like_any_other() -> None:
    """torch warns of gradients whose strides are not those of their parameter."""
    plan = plan_of(SHARED_KV, 4, empty=True)
    state = initial_state(plan, (4, 3), 1, torch.float64, CPU)
    for matrix, *_ in state.matrices.values():
        assert matrix.stride() == torch.empty(matrix.shape).stride()
