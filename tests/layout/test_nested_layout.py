"""Properties of nested layouts, for any number of units and any degree."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nonuniform.errors import BadInput
from nonuniform.layout import Family, Layout, Ownership, nested_layout, shared_layout

PROPERTY = settings(max_examples=40, deadline=None)


@st.composite
def units_and_degrees(draw: st.DrawFn) -> tuple[int, int, int, int]:
    """(units, base, n, m) with m <= n <= base; also fewer units than ranks."""
    units = draw(st.integers(1, 4096))
    base = draw(st.integers(1, 72))
    n = draw(st.integers(1, base))
    return units, base, n, draw(st.integers(1, n))


@PROPERTY
@given(st.integers(1, 4096), st.integers(1, 72))
def test_balanced_within_one_at_every_degree(units: int, base: int) -> None:
    for degree in range(1, base + 1):
        sizes = nested_layout(units, base, degree).sizes
        assert len(sizes) == degree
        assert sum(sizes) == units
        assert max(sizes) - min(sizes) <= 1
        assert list(sizes) == sorted(sizes, reverse=True)


@PROPERTY
@given(units_and_degrees())
def test_covering_and_disjoint(numbers: tuple[int, int, int, int]) -> None:
    units, base, n, _ = numbers
    held = nested_layout(units, base, n).held
    assert sorted(unit for run in held for unit in run) == list(range(units))


@PROPERTY
@given(units_and_degrees())
def test_prefix_is_kept_and_received_units_differ_by_one(
    numbers: tuple[int, int, int, int],
) -> None:
    units, base, n, m = numbers
    before, after = nested_layout(units, base, n), nested_layout(units, base, m)
    for label in range(m):
        assert after.held[label][: before.sizes[label]] == before.held[label]
    gained = [after.sizes[label] - before.sizes[label] for label in range(m)]
    assert max(gained) - min(gained) <= 1


@PROPERTY
@given(units_and_degrees())
def test_only_units_of_extra_ranks_move_each_once(numbers: tuple[int, int, int, int]) -> None:
    units, base, n, m = numbers
    before, after = nested_layout(units, base, n), nested_layout(units, base, m)
    moved = before.primaries != after.primaries
    assert np.array_equal(moved, before.primaries >= m)
    assert int(moved.sum()) == sum(before.sizes[m:])


@PROPERTY
@given(st.integers(1, 400), st.integers(1, 24))
def test_every_step_deals_to_the_rank_that_holds_fewest(units: int, base: int) -> None:
    for degree in range(base, 1, -1):
        expected = [list(run) for run in nested_layout(units, base, degree).held]
        for unit in expected.pop():
            min(expected, key=len).append(unit)  # min takes the lowest label among equals
        held = nested_layout(units, base, degree - 1).held
        assert [list(run) for run in held] == expected


@pytest.mark.parametrize(
    ("units", "base", "degree", "sizes"),
    [
        (8, 8, 7, (2, 1, 1, 1, 1, 1, 1)),
        (6, 6, 4, (2, 2, 1, 1)),
        (6, 4, 4, (2, 2, 1, 1)),
        (2, 4, 4, (1, 1, 0, 0)),
    ],
)
def test_no_rank_idles_while_another_holds_two_more(
    units: int, base: int, degree: int, sizes: tuple[int, ...]
) -> None:
    assert nested_layout(units, base, degree).sizes == sizes


def test_base_layout_is_contiguous_with_larger_runs_first() -> None:
    assert nested_layout(10, 4, 4).held == ((0, 1, 2), (3, 4, 5), (6, 7), (8, 9))
    assert nested_layout(10, 4, 3).held == ((0, 1, 2, 9), (3, 4, 5), (6, 7, 8))


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ((0, 4, 4), "units = 0"),
        ((8, 0, 0), "base = 0"),
        ((8, 4, 5), "degree = 5.*base degree 4"),
        ((8, 4, 0), "degree = 0"),
        ((8, 4, -1), "degree = -1"),
    ],
)
def test_impossible_numbers_are_refused_by_name(numbers: tuple[int, int, int], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        nested_layout(*numbers)


def test_custom_uneven_pieces_come_back_as_themselves() -> None:
    whole = np.arange(10)
    layout = Layout(4, ((0, 1), (2, 3, 4), (5, 6), (7, 8, 9)))
    pieces = [whole[order] for order in layout.orders]
    back = np.full(10, -1)
    for order, piece in zip(layout.orders, pieces, strict=True):
        back[order] = piece
    assert [len(piece) for piece in pieces] == [2, 3, 2, 3]
    assert np.array_equal(back, whole)


@PROPERTY
@given(units_and_degrees(), st.integers(1, 64))
def test_shared_units_keep_the_prefix_in_order_of_first_use(
    numbers: tuple[int, int, int, int], shared: int
) -> None:
    units, base, n, m = numbers
    shared = min(shared, units)
    uses = tuple(unit * shared // units for unit in range(units))
    users = nested_layout(units, base, m)
    before = shared_layout(nested_layout(units, base, n), uses)
    after = shared_layout(users, uses)
    for label in range(m):
        assert after.held[label][: before.sizes[label]] == before.held[label]
        first_use: list[int] = []
        for unit in users.held[label]:
            if uses[unit] not in first_use:
                first_use.append(uses[unit])
        assert list(after.held[label]) == first_use


def test_owners_and_primary_of_shared_and_replicated_units() -> None:
    query = Family("query", 4, 4, Ownership.SHARDED)
    kv = Family("kv", 1, 4, Ownership.SHARED, query, (0, 0, 0, 0))
    norm = Family("norm", 1, 4, Ownership.REPLICATED)
    assert kv.at(3).owners(0) == (0, 1, 2)
    assert norm.at(3).owners(0) == (0, 1, 2)
    assert query.at(3).owners(3) == (0,)
    assert [family.primary(0, 2) for family in (query, kv, norm)] == [0, 0, 0]
    assert query.primary(2, 2) == nested_layout(4, 4, 2).owners(2)[0]


def test_the_primary_may_hold_no_copy_at_its_own_degree() -> None:
    query = Family("query", 4, 4, Ownership.SHARDED)
    kv = Family("kv", 2, 4, Ownership.SHARED, query, (0, 0, 1, 1))
    assert kv.primary(1, 2) == 0
    assert kv.at(4).owners(1) == (2, 3)


def test_families_that_contradict_themselves_are_refused() -> None:
    query = Family("query", 4, 4, Ownership.SHARDED)
    with pytest.raises(BadInput, match="3 uses for 4 users"):
        Family("kv", 1, 4, Ownership.SHARED, query, (0, 0, 0))
    with pytest.raises(BadInput, match="1 units are used of 2"):
        Family("kv", 2, 4, Ownership.SHARED, query, (0, 0, 0, 0))
    with pytest.raises(BadInput, match="not 2"):
        Family("norm", 2, 4, Ownership.REPLICATED)
    with pytest.raises(BadInput, match="degree = 5"):
        query.at(5)
