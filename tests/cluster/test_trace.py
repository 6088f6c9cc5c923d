"""A trace is what it says it is: sorted, inside its window, on GPUs that exist."""

from __future__ import annotations

import math
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nonuniform.cluster.fleet import Fleet
from nonuniform.cluster.trace import Trace, empty, make_trace, merge
from nonuniform.errors import BadInput

GOOD: dict[str, Any] = {
    "hours": 10.0,
    "start_h": [0.0, 1.0, 1.0],
    "end_h": [2.0, math.inf, 12.0],
    "first_gpu": [7, 0, 3],
    "gpus": [1, 2, 1],
    "cause": [0, 1, 0],
    "causes": ("link", "fan"),
}

ROW = st.tuples(
    st.floats(0, 9.5), st.floats(0.25, 30), st.integers(0, 40), st.integers(1, 9), st.integers(0, 1)
)


def of_rows(rows: list[tuple[float, float, int, int, int]], causes: tuple[str, ...]) -> Trace:
    start, lasts, first, gpus, why = (list(column) for column in zip(*rows, strict=True))
    end = [a + b for a, b in zip(start, lasts, strict=True)]
    return make_trace(10.0, start, end, first, gpus, why, causes)


def rows_of(trace: Trace) -> list[tuple[float, float, int, int, str]]:
    names = [trace.causes[why] for why in trace.cause]
    columns = (trace.start_h, trace.end_h, trace.first_gpu, trace.gpus, names)
    return sorted(zip(*(list(column) for column in columns), strict=True))


def test_good_rows_are_kept_as_they_are() -> None:
    trace = Trace(**GOOD)
    assert len(trace) == 3
    assert rows_of(trace)[0] == (0.0, 2.0, 7, 1, "link")
    trace.check(Fleet(8, 4))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"start_h": [0.0, 1.0, 10.0]}, "1 row with start_h outside 0 to 10, the first is row 2"),
        ({"start_h": [-1.0, -1.0, 1.0]}, "2 rows with start_h outside 0 to 10, the first is row 0"),
        ({"start_h": [0.0, math.nan, 1.0]}, "1 row with start_h outside .* row 1"),
        ({"end_h": [0.0, 2.0, 2.0]}, "1 row with end_h not after start_h, the first is row 0"),
        ({"end_h": [1.0, 2.0, math.nan]}, "1 row with end_h not after start_h, .* row 2"),
        ({"first_gpu": [7, 0, -3]}, "1 row with first_gpu below 0, the first is row 2"),
        ({"first_gpu": [7, 3, 0]}, "1 row with not sorted by .* row 2"),
        ({"gpus": [1, 0, 1]}, "1 row with gpus below 1, the first is row 1"),
        ({"gpus": [1.0, 2.0, 1.0]}, "gpus has values of type float64, expected whole numbers"),
        ({"cause": [0, 2, 0]}, "1 row with cause not in causes, the first is row 1"),
        ({"gpus": [1, 2]}, r"gpus has shape \(2,\), expected \(3,\)"),
        ({"hours": 0.0}, "hours = 0, expected a finite number above 0"),
        ({"hours": math.inf}, "hours = inf, expected a finite number above 0"),
    ],
)
def test_a_wrong_row_is_named(change: dict[str, Any], text: str) -> None:
    with pytest.raises(BadInput, match=text):
        Trace(**{**GOOD, **change})


def test_a_gpu_outside_the_fleet_is_named() -> None:
    with pytest.raises(
        BadInput, match=r"1 row with a GPU .* of 7 GPUs \(0 to 6\), .* GPU 7 in row 0"
    ):
        Trace(**GOOD).check(Fleet(7, 7))


def test_columns_cannot_be_written_and_the_callers_array_still_can() -> None:
    start = np.array([0.0, 1.0, 1.0])
    trace = Trace(**{**GOOD, "start_h": start})
    with pytest.raises(ValueError, match="read-only"):
        trace.start_h[0] = 5.0
    start[0] = 0.5


def test_a_trace_survives_a_pickle() -> None:
    trace = Trace(**GOOD)
    assert pickle.loads(pickle.dumps(trace)) == trace
    assert trace != Trace(**{**GOOD, "hours": 11.0})
    assert trace != Trace(**{**GOOD, "cause": [1, 1, 0]})


def test_an_empty_trace() -> None:
    trace = empty(24.0)
    assert (len(trace), trace.causes) == (0, ())
    trace.check(Fleet(1, 1))
    assert merge([trace, trace]) == trace


@given(st.lists(ROW, min_size=1, max_size=20), st.randoms(use_true_random=False))
def test_the_order_of_the_rows_given_does_not_matter(rows: list[Any], random: Any) -> None:
    rows = [(float(int(row[0])), *row[1:]) for row in rows]  # with ties
    shuffled = list(rows)
    random.shuffle(shuffled)
    first, second = of_rows(rows, ("a", "b")), of_rows(shuffled, ("a", "b"))
    keys = list(zip(first.start_h, first.first_gpu, strict=True))
    assert keys == sorted(keys) == list(zip(second.start_h, second.first_gpu, strict=True))
    assert rows_of(first) == rows_of(second)


@given(st.lists(ROW, min_size=1, max_size=9), st.lists(ROW, min_size=1, max_size=9))
def test_merging_keeps_every_row_and_its_cause(left: list[Any], right: list[Any]) -> None:
    one, other = of_rows(left, ("link", "fan")), of_rows(right, ("fan", "cpu"))
    both = merge([one, other])
    assert both.causes == ("link", "fan", "cpu")
    assert rows_of(both) == sorted(rows_of(one) + rows_of(other))


def test_what_does_not_merge() -> None:
    with pytest.raises(BadInput, match="windows of 10 h and 11 h do not merge"):
        merge([empty(10.0), empty(11.0)])
    with pytest.raises(BadInput, match="nothing to merge"):
        merge([])


@pytest.mark.parametrize("name", ["end_h", "first_gpu", "gpus", "cause"])
def test_columns_of_unequal_length_are_refused(name: str) -> None:
    with pytest.raises(BadInput, match=f"{name}.* 2"):
        make_trace(**{**GOOD, name: GOOD[name][:2]})
