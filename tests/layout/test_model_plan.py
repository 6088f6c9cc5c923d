"""Plans of models: which units are chosen, what a rank holds, what is refused before launch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nonuniform.errors import BadInput
from nonuniform.layout import (
    Family,
    ModelPlan,
    ModelShape,
    Ownership,
    TensorCut,
    kv_of_query,
    local_kv_index,
    nested_layout,
    plan_llama,
)
from nonuniform.layout.granularity import block_load, row_block

SHAPE = ModelShape(
    layers=2, hidden=6, heads=8, kv_heads=2, head_dim=2, ffn=37, vocab=41, tied=False
)


@st.composite
def plans(draw: st.DrawFn) -> ModelPlan:
    heads = draw(st.integers(1, 40))
    shape = ModelShape(
        layers=1,
        hidden=draw(st.integers(1, 5)),
        heads=heads,
        kv_heads=draw(st.integers(1, heads)),
        head_dim=draw(st.integers(1, 3)),
        ffn=draw(st.integers(1, 700)),
        vocab=draw(st.integers(1, 700)),
        tied=draw(st.booleans()),
    )
    base = draw(st.integers(1, 9))
    return plan_llama(shape, base, draw(st.integers(1, base)), allow_empty=True)


@settings(max_examples=40, deadline=None)
@given(plans())
def test_shards_put_back_by_local_rows_are_the_tensor_itself(plan: ModelPlan) -> None:
    for tensor in plan.tensors:
        for degree in range(plan.min_degree, plan.base + 1):
            back = np.full(tensor.rows, -1)
            for label in range(degree):
                rows = plan.local_rows(tensor, degree, label)
                assert plan.local_elements(tensor, degree, label) == len(rows) * tensor.row_elements
                back[rows] = np.arange(tensor.rows)[rows]
            assert np.array_equal(back, np.arange(tensor.rows))


@settings(max_examples=40, deadline=None)
@given(plans())
def test_what_a_rank_holds_starts_with_what_it_held_at_a_higher_degree(plan: ModelPlan) -> None:
    for tensor in plan.tensors:
        for label in range(plan.min_degree):
            before = np.zeros(0, dtype=np.int64)
            for degree in range(plan.base, plan.min_degree - 1, -1):
                rows = plan.local_rows(tensor, degree, label)
                assert np.array_equal(rows[: len(before)], before)
                before = rows


@settings(max_examples=40, deadline=None)
@given(plans())
def test_unit_spans_and_elements_agree_with_local_rows(plan: ModelPlan) -> None:
    for tensor in plan.tensors:
        rows = plan.local_rows(tensor, plan.base, 0)
        for unit, start, stop in plan.local_unit_spans(tensor, plan.base, 0):
            assert list(rows[start:stop]) == list(range(*tensor.unit_span(unit)))
    for family in plan.families:
        counted = [
            sum(tensor.unit_elements(unit) for tensor in plan.tensors_of(family.name))
            for unit in range(family.count)
        ]
        assert plan.unit_elements(family.name).tolist() == counted


@settings(max_examples=60, deadline=None)
@given(plans())
def test_every_local_query_head_meets_exactly_its_own_kv_head(plan: ModelPlan) -> None:
    _check_kv_heads(plan)


@pytest.mark.parametrize(
    ("heads", "kv_heads", "base"),
    [(33, 2, 8), (12, 4, 4), (8, 2, 3), (5, 5, 4), (4, 1, 3), (28, 4, 8), (64, 8, 8)],
)
def test_kv_heads_of_models_in_the_field(heads: int, kv_heads: int, base: int) -> None:
    shape = replace(SHAPE, heads=heads, kv_heads=kv_heads)
    _check_kv_heads(plan_llama(shape, base, 1))


def _check_kv_heads(plan: ModelPlan) -> None:
    q, k = plan.tensors_of("query")[0], plan.tensors_of("kv")[0]
    head_dim = k.unit_rows
    heads, kv_heads = q.rows // head_dim, k.rows // head_dim
    for degree in range(plan.min_degree, plan.base + 1):
        for label in range(degree):
            local_queries = plan.local_rows(q, degree, label)[::head_dim] // head_dim
            local_kv = plan.local_rows(k, degree, label)[::head_dim] // head_dim
            index = local_kv_index(plan, degree, label)
            assert len(index) == len(local_queries)
            assert [local_kv[i] for i in index] == [
                kv_of_query(head, heads, kv_heads) for head in local_queries
            ]


def test_attention_of_64_query_and_8_kv_heads_is_cut_in_query_heads_for_8_and_7() -> None:
    plan = plan_llama(replace(SHAPE, heads=64, kv_heads=8, ffn=64, vocab=64), 8, 7)
    query = plan.family("query")
    assert query.count == 64
    assert plan.family("kv").ownership is Ownership.SHARED
    assert [max(query.at(degree).sizes) for degree in (8, 7)] == [8, 10]
    groups = [max(nested_layout(8, 8, degree).sizes) * 64 // 8 for degree in (8, 7)]
    assert groups == [8, 16]


def test_attention_is_cut_in_kv_groups_where_that_costs_nothing() -> None:
    plan = plan_llama(replace(SHAPE, heads=32, kv_heads=8), 8, 8)
    assert plan.family("query").count == plan.family("kv").count == 8
    assert plan.family("kv").ownership is Ownership.SHARDED
    assert plan.tensor("layers.0.attention.q.weight").unit_rows == 4 * SHAPE.head_dim
    assert local_kv_index(plan, 8, 3) == (0, 0, 0, 0)


def test_equal_loads_do_not_choose_groups_that_leave_a_rank_empty() -> None:
    shape = replace(SHAPE, heads=6, kv_heads=3)
    assert plan_llama(shape, 4, 3).family("query").count == 6
    assert plan_llama(shape, 4, 3, allow_empty=True).family("query").count == 3


@settings(max_examples=40, deadline=None)
@example(rows=5, base=4, floor=4)
@given(rows=st.integers(1, 3000), base=st.integers(1, 16), floor=st.integers(1, 16))
def test_row_block_is_the_largest_that_costs_two_percent(rows: int, base: int, floor: int) -> None:
    degrees = range(min(floor, base), base + 1)
    block = row_block(rows, base, degrees[0])
    cost = {
        size: sum(_largest_load(rows, size, base, degree) for degree in degrees)
        for size in (128, 64, 32, 16, 8, 4, 2, 1)
    }
    assert cost[block] <= 1.02 * cost[1]
    assert block == 1 or -(-rows // block) >= base, "a rank would be empty for nothing"
    larger = [size for size in cost if size > block and -(-rows // size) >= base]
    assert all(cost[size] > 1.02 * cost[1] for size in larger)


def _largest_load(rows: int, block: int, base: int, degree: int) -> int:
    layout = nested_layout(-(-rows // block), base, degree)
    return max(sum(min(block, rows - unit * block) for unit in units) for units in layout.held)


@pytest.mark.parametrize(("rows", "base", "floor"), [(257, 8, 5), (11008, 8, 6), (128256, 72, 64)])
def test_row_blocks_of_models_in_the_field(rows: int, base: int, floor: int) -> None:
    block = row_block(rows, base, floor)
    for degree in range(floor, base + 1):
        # 2% holds for the sum over the degrees; a single one may cost a little more.
        assert block_load(rows, block, base, degree) <= 1.06 * -(-rows // degree)


def test_gate_column_up_column_and_down_row_stay_together() -> None:
    plan = plan_llama(SHAPE, 4, 2)
    names = [f"layers.1.ffn.{part}.weight" for part in ("gate", "up", "down")]
    for degree in (4, 3, 2):
        for label in range(degree):
            gate, up, down = (plan.local_rows(plan.tensor(n), degree, label) for n in names)
            assert np.array_equal(gate, up)
            assert np.array_equal(gate, down)


def test_fused_gate_and_up_are_cut_as_sub_blocks_also_where_ffn_is_odd() -> None:
    ffn = Family("ffn", 3, 2, Ownership.SHARDED)
    gate = TensorCut("gate", (3, 4), 0, "ffn")
    up = TensorCut("up", (3, 4), 0, "ffn")
    plan = ModelPlan(2, 1, (ffn,), (gate, up))
    fused = np.arange(6 * 4).reshape(6, 4)  # rows [gate; up], as a checkpoint has them
    shards = [
        np.concatenate(
            [fused[plan.local_rows(gate, 2, label)], fused[3 + plan.local_rows(up, 2, label)]]
        )
        for label in range(2)
    ]
    assert np.array_equal(shards[0], fused[[0, 1, 3, 4]])
    assert np.array_equal(shards[1], fused[[2, 5]])


def test_row_parallel_units_are_columns_of_the_logical_weight() -> None:
    plan = ModelPlan(
        6, 1, (Family("in", 16, 6, Ownership.SHARDED),), (TensorCut("w", (10, 16), 1, "in"),)
    )
    weight = np.arange(160).reshape(10, 16)
    x = np.arange(9 * 16).reshape(9, 16)
    for degree in range(1, 7):
        total = np.zeros((9, 10), dtype=np.int64)
        for label in range(degree):
            columns = plan.local_rows(plan.tensors[0], degree, label)
            shard = weight.T[columns]
            assert shard.size == plan.local_elements(plan.tensors[0], degree, label)
            total += x[:, columns] @ shard
        assert np.array_equal(total, x @ weight.T)


def test_tensors_come_in_model_order_and_tied_embeddings_are_one() -> None:
    names = [tensor.name for tensor in plan_llama(SHAPE, 2, 1).tensors]
    assert names[0] == "embed.weight"
    assert names[1:10] == [
        f"layers.0.{part}.weight"
        for part in (
            *("attention_norm", "attention.q", "attention.k", "attention.v", "attention.o"),
            *("ffn_norm", "ffn.gate", "ffn.up", "ffn.down"),
        )
    ]
    assert names[-2:] == ["norm.weight", "head.weight"]
    tied = [tensor.name for tensor in plan_llama(replace(SHAPE, tied=True), 2, 1).tensors]
    assert tied == names[:-1]


@pytest.mark.parametrize(
    ("shape", "base", "words"),
    [
        (replace(SHAPE, heads=4), 8, ["model.heads = 4", "parallel.degree = 8", ": 1, 2, 3, 4"]),
        (replace(SHAPE, ffn=3), 4, ["model.ffn = 3", "parallel.degree = 4", ": 1, 2, 3"]),
        (replace(SHAPE, vocab=2), 4, ["model.vocab = 2", "legal degrees: 1, 2"]),
        (replace(SHAPE, kv_heads=9), 4, ["model.kv_heads = 9", "model.heads = 8"]),
        (replace(SHAPE, layers=0), 4, ["model.layers = 0"]),
    ],
)
def test_a_model_that_cannot_be_cut_is_refused(
    shape: ModelShape, base: int, words: list[str]
) -> None:
    with pytest.raises(BadInput) as refused:
        plan_llama(shape, base, 1)
    for word in words:
        assert word in str(refused.value)


@pytest.mark.parametrize(("heads", "base"), [(28, 8), (32, 5)])
def test_heads_that_do_not_divide_are_legal(heads: int, base: int) -> None:
    plan = plan_llama(replace(SHAPE, heads=heads, kv_heads=4), base, 1)
    sizes = plan.family("query").at(base).sizes
    assert sum(sizes) == heads
    assert max(sizes) - min(sizes) <= 1


def test_min_degree_above_the_degree_is_refused() -> None:
    with pytest.raises(BadInput, match=r"min_degree = 5.*parallel.degree = 4"):
        plan_llama(SHAPE, 4, 5)


def test_plans_that_contradict_themselves_are_refused() -> None:
    ffn = Family("ffn", 3, 2, Ownership.SHARDED)
    with pytest.raises(BadInput, match=r"4 rows in units of 1 are 4 units, family ffn has 3"):
        ModelPlan(2, 1, (ffn,), (TensorCut("gate", (4, 4), 0, "ffn"),))
    with pytest.raises(BadInput, match="no family up"):
        ModelPlan(2, 1, (ffn,), (TensorCut("gate", (3, 4), 0, "up"),))
    with pytest.raises(BadInput, match="2 tensors with 1 names"):
        ModelPlan(2, 1, (ffn,), (TensorCut("gate", (3, 4), 0, "ffn"),) * 2)


def test_fingerprint_is_the_same_for_equal_plans_only() -> None:
    prints = {
        plan_llama(SHAPE, 4, 2).fingerprint(),
        plan_llama(replace(SHAPE, tied=True), 4, 2).fingerprint(),
        plan_llama(SHAPE, 4, 3).fingerprint(),
        plan_llama(SHAPE, 5, 2).fingerprint(),
        plan_llama(replace(SHAPE, ffn=38), 4, 2).fingerprint(),
    }
    assert len(prints) == 5
    assert plan_llama(SHAPE, 4, 2).fingerprint() in prints
    assert all(len(text) == 64 for text in prints)
