"""Initial weights: a function of (seed, name, row), normal, and independent of who asks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from nonuniform.layout.cuts import TensorCut
from nonuniform.train import initial
from nonuniform.train.initial import STD, initial_rows

LAYERS = 8
COLUMN = TensorCut("layers.0.ffn.up.weight", (400, 250), 0, "ffn", 4)
ROW = TensorCut("layers.0.ffn.down.weight", (250, 400), 1, "ffn", 4)
NORM = TensorCut("norm.weight", (250,), None, "replicated")


def everything(tensor: TensorCut, seed: int = 1) -> NDArray[np.float64]:
    return initial_rows(tensor, np.arange(tensor.rows), seed, LAYERS)


def test_norms_start_at_one() -> None:
    assert np.array_equal(everything(NORM), np.ones((1, 250)))


@pytest.mark.parametrize(
    ("tensor", "std"), [(COLUMN, STD), (ROW, STD / math.sqrt(2 * LAYERS))], ids=["column", "row"]
)
def test_what_is_cut_is_normal(tensor: TensorCut, std: float) -> None:
    drawn = everything(tensor) / std
    count = drawn.size
    assert drawn.shape == (400, 250)
    assert abs(drawn.mean()) < 5 / math.sqrt(count)
    assert abs(drawn.std() - 1) < 5 / math.sqrt(2 * count)
    for bound, share in ((1.0, 0.682689), (2.0, 0.954500), (3.0, 0.997300)):
        spread = math.sqrt(share * (1 - share) / count)
        assert abs((np.abs(drawn) < bound).mean() - share) < 5 * spread
    assert abs((drawn**3).mean()) < 5 * math.sqrt(15 / count)
    assert 4 < np.abs(drawn).max() < 6
    # neither along a row nor from row to row is anything repeated
    assert abs(np.mean(drawn[:, 1:] * drawn[:, :-1])) < 5 / math.sqrt(count)
    assert abs(np.mean(drawn[1:] * drawn[:-1])) < 5 / math.sqrt(count)
    assert len(np.unique(drawn)) == count


def test_seeds_and_names_have_streams_of_their_own() -> None:
    one = everything(COLUMN)
    others = [
        everything(COLUMN, seed=2),
        everything(TensorCut("layers.1.ffn.up.weight", (400, 250), 0, "ffn", 4)),
        everything(TensorCut("layers.0.ffn.gate.weight", (400, 250), 0, "ffn", 4)),
    ]
    for other in others:
        assert abs(np.corrcoef(one.ravel(), other.ravel())[0, 1]) < 5 / math.sqrt(one.size)
    assert np.array_equal(one, everything(COLUMN))
    # a seed that ends as another name begins is not the same stream
    parts = [("a/b", 1), ("b", 1), ("1/a", 1), ("a", 11), ("a", 1)]
    firsts = {
        initial_rows(TensorCut(n, (1, 1), 0, "f"), np.arange(1), s, 1).item() for n, s in parts
    }
    assert len(firsts) == len(parts)


@given(st.lists(st.integers(0, 399), max_size=20))
def test_a_row_does_not_depend_on_the_rows_asked_for_with_it(rows: list[int]) -> None:
    picked = np.array(rows, dtype=np.int64)
    found = initial_rows(COLUMN, picked, 1, LAYERS)
    assert found.shape == (len(rows), 250)
    assert np.array_equal(found, WHOLE[picked])


WHOLE = everything(COLUMN)


@pytest.mark.parametrize("width", [1, 2, 3, 4, 5, 8, 9])
def test_widths_that_are_no_whole_number_of_blocks(width: int) -> None:
    tensor = TensorCut("w", (30, width), 0, "f")
    whole = everything(tensor)
    assert len(np.unique(whole)) == whole.size
    for start in (0, 7, 29):
        assert np.array_equal(initial_rows(tensor, np.arange(start, 30), 1, LAYERS), whole[start:])


def test_the_outermost_words_give_finite_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    class Extremes:
        def __init__(self, **key: Any) -> None:
            pass

        def random_raw(self, count: int) -> NDArray[np.uint64]:
            words = np.zeros(count, dtype=np.uint64)
            words[::2] = np.uint64(2**64 - 1)
            return words

    monkeypatch.setattr(initial.np.random, "Philox", Extremes)
    drawn = initial_rows(TensorCut("w", (2, 4), 0, "f"), np.arange(2), 1, 1)
    assert np.isfinite(drawn).all()
    assert np.allclose(drawn[0, 0::2], -drawn[0, 1::2])
