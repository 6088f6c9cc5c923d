"""Who writes which unit: each once, by one who holds it, evenly, whoever asks in which order."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nonuniform.errors import BadInput
from nonuniform.layout.model_plan import ModelPlan, ModelShape, plan_llama
from nonuniform.reshard.save_plan import plan_save
from nonuniform.reshard.transfer import Holding

SHARED_KV = ModelShape(
    layers=2, hidden=8, heads=6, kv_heads=4, head_dim=2, ffn=70, vocab=99, tied=False
)
KV_GROUPS = ModelShape(
    layers=1, hidden=4, heads=16, kv_heads=8, head_dim=2, ffn=100, vocab=90, tied=True
)
PLANS = {
    "shared KV": plan_llama(SHARED_KV, 4, 1, True),
    "KV groups": plan_llama(KV_GROUPS, 8, 1, True),
}


def every_unit(plan: ModelPlan) -> set[tuple[str, int]]:
    return {(family.name, unit) for family in plan.families for unit in range(family.count)}


def held(plan: ModelPlan, holding: Holding) -> set[tuple[str, int]]:
    return {
        (family.name, unit)
        for family in plan.families
        for unit in family.at(holding.degree).held[holding.label]
    }


def replicas(*degrees: int) -> list[Holding]:
    return [
        Holding(f"{replica}/{label}", degree, label)
        for replica, degree in enumerate(degrees)
        for label in range(degree)
    ]


@st.composite
def some_holdings(draw: st.DrawFn) -> tuple[str, list[Holding]]:
    """Any living ranks of replicas of any degrees: also such that units are lost."""
    name = draw(st.sampled_from(sorted(PLANS)))
    degrees = draw(st.lists(st.integers(1, PLANS[name].base), min_size=1, max_size=4))
    alive = [holding for holding in replicas(*degrees) if draw(st.booleans())]
    return name, alive


@settings(max_examples=80, deadline=None)
@given(some_holdings(), st.randoms(use_true_random=False))
def test_each_unit_that_is_held_is_written_once_by_one_who_holds_it(
    drawn: tuple[str, list[Holding]], shuffle: random.Random
) -> None:
    name, holdings = drawn
    plan = PLANS[name]
    saved = plan_save(plan, holdings)
    assert set(saved.units) == {holding.gpu for holding in holdings}
    by_gpu = {holding.gpu: held(plan, holding) for holding in holdings}
    for gpu, units in saved.units.items():
        assert set(units) <= by_gpu[gpu]
    times = Counter(unit for units in saved.units.values() for unit in units)
    assert set(times.values()) <= {1}
    there = set().union(*by_gpu.values())
    assert set(times) == there
    assert set(saved.missing) == every_unit(plan) - there
    assert list(saved.missing) == sorted(saved.missing)
    again = list(holdings)
    shuffle.shuffle(again)
    assert plan_save(plan, again) == saved


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("degrees", [(4,), (4, 4), (4, 3), (4, 4, 4, 4), (3, 2), (4, 1)])
def test_loads_are_even(name: str, degrees: tuple[int, ...]) -> None:
    """No rank writes more than its fair share by more than the largest unit that could move."""
    plan = PLANS[name]
    loads = plan_save(plan, replicas(*degrees)).elements(plan)
    total = sum(tensor.elements for tensor in plan.tensors)
    assert sum(loads.values()) == total
    largest = max(int(plan.unit_elements(family.name).max()) for family in plan.families)
    assert max(loads.values()) <= total / len(loads) + 2 * largest


def test_neighbours_stay_together() -> None:
    """They become one piece of a file: dealing units singly would tear every run apart."""
    plan = PLANS["KV groups"]
    for units in plan_save(plan, replicas(8, 8)).units.values():
        vocab = [unit for family, unit in units if family == "vocab"]
        assert vocab == list(range(min(vocab), max(vocab) + 1))


def test_one_gpu_twice_is_refused() -> None:
    with pytest.raises(BadInput, match="holdings: 2 for 1 GPUs"):
        plan_save(PLANS["KV groups"], [Holding("0/0", 2, 0), Holding("0/0", 2, 1)])


def test_nobody_holds_anything() -> None:
    plan = PLANS["shared KV"]
    saved = plan_save(plan, [])
    assert dict(saved.units) == {}
    assert set(saved.missing) == every_unit(plan)
