"""Labels after losses and returns."""

from __future__ import annotations

from itertools import permutations
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nonuniform.errors import BadInput
from nonuniform.layout import ModelPlan, ModelShape, plan_llama
from nonuniform.reshard import assign_labels

PLAN = plan_llama(ModelShape(2, 6, 12, 4, 2, 120, 100, tied=True), 8, 2)


def _kept(plan: ModelPlan, before: tuple[int, int], after: tuple[int, int]) -> int:
    """Elements that (degree, label) before and after both hold, counted one by one."""
    total = 0
    for tensor in plan.tensors:
        old = set(plan.local_rows(tensor, *before).tolist())
        total += len(old & set(plan.local_rows(tensor, *after).tolist())) * tensor.row_elements
    return total


def test_when_the_last_label_dies_everyone_keeps_its_own() -> None:
    survivors = {f"0/{i}": i for i in range(7)}
    assert assign_labels(PLAN, 8, survivors, ()) == survivors


@pytest.mark.parametrize("lost", range(7))
def test_when_another_label_dies_the_last_takes_it_over(lost: int) -> None:
    survivors = {f"0/{i}": i for i in range(8) if i != lost}
    assert assign_labels(PLAN, 8, survivors, ()) == survivors | {"0/7": lost}


@settings(max_examples=30, deadline=None)
@given(st.permutations(range(8)), st.integers(2, 7))
def test_after_several_losses_most_elements_stay(order: list[int], degree: int) -> None:
    survivors = {f"0/{label}": label for label in order[:degree]}
    labels = assign_labels(PLAN, 8, survivors, ())
    assert sorted(labels.values()) == list(range(degree))
    assert all(labels[gpu] == old for gpu, old in survivors.items() if old < degree)
    moving = [gpu for gpu, old in survivors.items() if old >= degree]
    free = [labels[gpu] for gpu in moving]
    if len(moving) > 4:  # brute force below
        return
    keep = {
        (gpu, label): _kept(PLAN, (8, survivors[gpu]), (degree, label))
        for gpu in moving
        for label in free
    }
    best = max(
        (
            sum(keep[pair] for pair in zip(moving, taken, strict=True))
            for taken in permutations(free)
        ),
        default=0,
    )
    assert sum(keep[gpu, labels[gpu]] for gpu in moving) == best


@settings(max_examples=30, deadline=None)
@given(st.permutations(range(8)), st.integers(0, 6), st.integers(0, 6), st.randoms())
def test_the_order_of_the_input_does_not_matter(
    order: list[int], alive: int, joining: int, random: Random
) -> None:
    survivors = [(f"0/{label}", label) for label in order[:alive]]
    joiners = [f"9/{i}" for i in range(min(joining, 8 - alive))]
    if not survivors and not joiners:
        return
    expected = assign_labels(PLAN, 8, dict(survivors), joiners)
    random.shuffle(survivors)
    random.shuffle(joiners)
    assert assign_labels(PLAN, 8, dict(survivors), joiners) == expected
    assert sorted(expected.values()) == list(range(len(expected)))


def test_who_joins_gets_what_is_left_in_order_of_names() -> None:
    labels = assign_labels(PLAN, 4, {"a": 0, "c": 2, "d": 3}, ["z", "y", "x"])
    assert labels == {"a": 0, "c": 2, "d": 3, "x": 1, "y": 4, "z": 5}


def test_who_returns_gets_the_old_label_back() -> None:
    degraded = assign_labels(PLAN, 8, {f"0/{i}": i for i in range(7)}, ())
    assert assign_labels(PLAN, 7, degraded, ["0/7"]) == {f"0/{i}": i for i in range(8)}


@pytest.mark.parametrize(
    ("survivors", "joiners", "words"),
    [
        ({}, [], "0 GPUs"),
        ({f"0/{i}": i for i in range(8)}, ["0/8"], "9 GPUs"),
        ({"a": 0, "b": 0}, [], "not distinct"),
        ({"a": 8}, [], "label 8 at degree 8"),
        ({"a": 0}, ["a"], "both survives and joins"),
    ],
)
def test_contradictions_are_refused(
    survivors: dict[str, int], joiners: list[str], words: str
) -> None:
    with pytest.raises(BadInput, match=words):
        assign_labels(PLAN, 8, survivors, joiners)
