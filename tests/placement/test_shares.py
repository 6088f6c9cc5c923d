"""Batch shares: exactly optimal, deterministic, every sequence given out."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nonuniform.errors import BadInput
from nonuniform.placement.shares import batch_shares, share_grain_cost


def compositions(total: int, parts: int) -> Iterator[tuple[int, ...]]:
    """All ways to write `total` as a sum of `parts` numbers of at least 1."""
    if parts == 1:
        yield (total,)
        return
    for first in range(1, total - parts + 2):
        for rest in compositions(total - first, parts - 1):
            yield (first, *rest)


def slowest(shares: tuple[int, ...], speeds: list[float]) -> Fraction:
    return max(Fraction(s) / Fraction(v) for s, v in zip(shares, speeds, strict=True))


SPEED = st.one_of(
    st.integers(1, 9).map(float),
    st.integers(1, 12).map(lambda degree: degree / 12),
    st.floats(1e-3, 1e3, allow_nan=False),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(SPEED, min_size=1, max_size=4), st.integers(0, 9))
def test_no_other_shares_finish_earlier(speeds: list[float], more: int) -> None:
    sequences = len(speeds) + more
    shares = batch_shares(speeds, sequences)
    assert sum(shares) == sequences
    assert min(shares) >= 1
    best = min(slowest(other, speeds) for other in compositions(sequences, len(speeds)))
    assert slowest(shares, speeds) == best


@settings(max_examples=100, deadline=None)
@given(st.lists(SPEED, min_size=1, max_size=6), st.integers(0, 60))
def test_the_start_in_bulk_ends_where_dealing_one_by_one_ends(
    speeds: list[float], more: int
) -> None:
    dealt = [1] * len(speeds)
    for _ in range(more):
        times = [(Fraction(dealt[i] + 1) / Fraction(v), i) for i, v in enumerate(speeds)]
        dealt[min(times)[1]] += 1
    assert batch_shares(speeds, len(speeds) + more) == tuple(dealt)


@pytest.mark.parametrize(
    ("speeds", "sequences", "shares"),
    [
        ([1.0], 7, (7,)),
        ([1.0, 1.0, 1.0], 10, (4, 3, 3)),  # equal replicas: the lowest gets the odd one
        ([4.0, 3.0], 12, (7, 5)),
        ([3.0, 4.0], 12, (5, 7)),
        ([1.0, 0.75], 14, (8, 6)),
        ([1.0, 1e-6], 5, (4, 1)),  # hopelessly slow, and still one
        ([30.0, 32.0, 32.0], 24, (8, 8, 8)),  # the grain: no whole share is better than equal
    ],
)
def test_known_shares(speeds: list[float], sequences: int, shares: tuple[int, ...]) -> None:
    assert batch_shares(speeds, sequences) == shares


def test_a_batch_in_tokens_is_cheap_and_as_even_as_it_gets() -> None:
    speeds = [32.0] * 127 + [30.0]
    shares = batch_shares(speeds, 4_000_000)
    assert sum(shares) == 4_000_000
    assert share_grain_cost(speeds, shares) < 1e-4


def test_grain_cost() -> None:
    assert share_grain_cost([4.0, 3.0], (8, 6)) == pytest.approx(0.0)
    assert share_grain_cost([32.0, 30.0], (8, 8)) == pytest.approx(8 / 30 / (16 / 62) - 1)
    with pytest.raises(BadInput, match="1 batch shares for 2 replicas"):
        share_grain_cost([1.0, 1.0], (4,))


def test_bad_input_names_the_numbers() -> None:
    with pytest.raises(BadInput, match=r"sequences = 2 is fewer than the 3 replicas"):
        batch_shares([1.0] * 3, 2)
    for wrong in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(BadInput, match=f"got {wrong}"):
            batch_shares([1.0, wrong], 4)
    with pytest.raises(BadInput, match="no replica"):
        batch_shares([], 4)
