"""A curve drawn with characters."""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from nonuniform.view.sparkline import resample, sparkline

values = st.lists(st.none() | st.floats(-1e6, 1e6), min_size=1, max_size=60)


def test_falling_values_fall() -> None:
    assert sparkline([7, 6, 5, 4, 3, 2, 1, 0]) == ["█▇▆▅▄▃▂▁"]


def test_rows_stack_to_one_column() -> None:
    assert sparkline([0, 15], rows=2) == [" █", "▁█"]


def test_a_flat_curve_is_a_line_in_the_middle() -> None:
    assert sparkline([3.0, 3.0]) == ["▄▄"]


def test_nothing_yet_is_blank() -> None:
    assert sparkline([None, None], rows=2) == ["  ", "  "]
    assert resample([], 10) == []


def test_ascii_terminals_get_ascii() -> None:
    assert sparkline([7, 3, 0], ascii_only=True)[0].isascii()


def test_means_are_over_known_values_only() -> None:
    assert resample([1.0, 3.0, None, 5.0, math.nan, None], 3) == [2.0, 5.0, None]


def test_few_values_repeat_to_fill_the_columns() -> None:
    assert resample([1.0, 2.0], 4) == [1.0, 1.0, 2.0, 2.0]


@settings(deadline=None)  # other processes take the time
@given(values, st.integers(1, 200), st.integers(1, 4))
def test_every_line_is_as_wide_as_asked(
    points: list[float | None], columns: int, rows: int
) -> None:
    lines = sparkline(resample(points, columns), rows)
    assert [len(line) for line in lines] == [columns] * rows
