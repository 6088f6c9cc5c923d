"""Changes of a trace, against a plain count of sets of GPUs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nonuniform.cluster.fleet import Fleet
from nonuniform.cluster.trace import Trace, empty, make_trace
from nonuniform.sim.timeline import changes

Row = tuple[float, float, int, int]


def trace_of(rows: list[Row], hours: float) -> Trace:
    starts, ends, firsts, sizes = zip(*rows, strict=True) if rows else ((), (), (), ())
    return make_trace(
        hours,
        starts,
        ends,
        np.array(firsts, np.int64),
        np.array(sizes, np.int64),
        np.zeros(len(rows), np.int64),
        ("any",),
    )


def plain(rows: list[Row], fleet: Fleet, hours: float) -> list[tuple[float, int, int, int]]:
    times = sorted({t for row in rows for t in row[:2] if t < hours})
    lost = [0] * fleet.domains
    found = []
    for time in times:
        down = {
            gpu
            for start, end, first, size in rows
            if start <= time < end
            for gpu in range(first, first + size)
        }
        for domain in range(fleet.domains):
            now = sum(gpu // fleet.domain == domain for gpu in down)
            if now != lost[domain]:
                found.append((time, domain, lost[domain], now))
                lost[domain] = now
    return found


@st.composite
def cases(draw: st.DrawFn) -> tuple[Fleet, list[Row]]:
    fleet = Fleet(draw(st.integers(7, 23)), draw(st.integers(1, 7)))
    rows = []
    for _ in range(draw(st.integers(0, 12))):
        first = draw(st.integers(0, fleet.gpus - 1))
        size = draw(st.integers(1, fleet.gpus - first))
        # Few different times, so that many things happen at once.
        start = draw(st.integers(0, 9))
        end = draw(st.one_of(st.integers(start + 1, 13), st.just(math.inf)))
        rows.append((float(start), float(end), first, size))
    return fleet, rows


@given(cases())
def test_changes_are_those_of_a_plain_count(case: tuple[Fleet, list[Row]]) -> None:
    fleet, rows = case
    found = changes(trace_of(rows, 10.0), fleet)
    table = zip(
        found.time_h.tolist(),
        found.domain.tolist(),
        found.before.tolist(),
        found.lost.tolist(),
        strict=True,
    )
    assert list(table) == plain(rows, fleet, 10.0)


def test_nothing_fails() -> None:
    assert len(changes(empty(5.0), Fleet(64, 8)).time_h) == 0


def test_a_gpu_that_is_struck_again_is_lost_once() -> None:
    rows = [(1.0, 4.0, 3, 1), (2.0, 6.0, 3, 1), (2.0, 3.0, 0, 8)]
    found = changes(trace_of(rows, 10.0), Fleet(8, 4))
    assert found.time_h.tolist() == [1.0, 2.0, 2.0, 3.0, 3.0, 6.0]
    assert found.domain.tolist() == [0, 0, 1, 0, 1, 0]
    assert found.lost.tolist() == [1, 4, 4, 1, 0, 0]


def test_a_failure_that_hands_over_to_the_next_is_no_change() -> None:
    found = changes(trace_of([(1.0, 2.0, 0, 1), (2.0, 3.0, 1, 1)], 10.0), Fleet(8, 8))
    assert found.time_h.tolist() == [1.0, 3.0]


def test_leftover_gpus_are_not_looked_at() -> None:
    found = changes(trace_of([(1.0, 2.0, 8, 2), (3.0, 4.0, 7, 3)], 10.0), Fleet(10, 4))
    assert found.time_h.tolist() == [3.0, 4.0]
    assert found.lost.tolist() == [1, 0]


@pytest.mark.parametrize("end", [10.0, 11.0, math.inf])
def test_what_ends_after_the_window_has_no_return(end: float) -> None:
    assert changes(trace_of([(1.0, end, 0, 1)], 10.0), Fleet(8, 8)).lost.tolist() == [1]


def test_times_that_differ_by_a_rounding_are_two_instants() -> None:
    late = 1e6 + 2.0**-33
    rows = [(0.0, 1e6, 0, 1), (late, 2e6, 0, 1), (5.0, 6.0, 1, 1)]
    found = changes(trace_of(rows, 3e6), Fleet(8, 8))
    assert found.time_h.tolist() == [0.0, 5.0, 6.0, 1e6, late, 2e6]
