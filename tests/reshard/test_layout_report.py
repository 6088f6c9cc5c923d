"""The numbers of `nonuniform layout --json`."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nonuniform.errors import BadInput
from nonuniform.reshard import layout_report


def test_eight_heads_on_seven_ranks() -> None:
    report = layout_report(8, 8, 7, unit_bytes=1000)
    assert json.loads(json.dumps(report)) == {
        "units": 8,
        "base": 8,
        "degree": 7,
        "sizes": [2, 1, 1, 1, 1, 1, 1],
        "gained": [1, 0, 0, 0, 0, 0, 0],
        "moved": 1,
        "lower_bound": 1,
        "bytes_moved": 1000,
        "load_max": 2,
        "load_mean": pytest.approx(8 / 7),
        "slowdown": 2.0,
    }


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 4096), st.integers(1, 72), st.data())
def test_moved_is_the_lower_bound(units: int, base: int, data: st.DataObject) -> None:
    degree = data.draw(st.integers(1, base))
    report = layout_report(units, base, degree)
    assert report["moved"] == report["lower_bound"] == report["bytes_moved"]
    sizes, gained = report["sizes"], report["gained"]
    assert isinstance(sizes, list)
    assert isinstance(gained, list)
    assert len(sizes) == len(gained) == degree
    assert sum(sizes) == units
    assert sum(gained) == report["moved"]
    assert max(gained) - min(gained) <= 1
    assert report["slowdown"] == pytest.approx(max(sizes) / (units / base))


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ((8, 4, 5), "degree = 5.*4"),
        ((8, 4, 0), "degree = 0"),
        ((0, 4, 4), "units = 0"),
        ((8, 0, 1), "base = 0"),
        ((8, 4, 4, 0), "unit_bytes = 0"),
    ],
)
def test_impossible_numbers_are_refused(numbers: tuple[int, ...], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        layout_report(*numbers)
