"""Records of starts and ends become failures, whatever their order in the file."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nonuniform.cluster.fleet import Fleet
from nonuniform.cluster.sources.bad_rows import LogReport
from nonuniform.cluster.sources.log_format import Clock, Columns, LogFormat, Nodes, Window
from nonuniform.cluster.sources.read import read_log
from nonuniform.cluster.trace import Trace

FLEET = Fleet(gpus=32, domain=16, node=8)
NAMES = ("a", "b", "c", "d")
WINDOW = Window(0, 100)


def form(**changes: object) -> LogFormat:
    known: dict[str, object] = {
        "columns": Columns(time="t", event="what", cause=("why",)),
        "clock": Clock("hour"),
        "window": WINDOW,
        "nodes": Nodes(names=NAMES),
        "expand": "node",
    }
    return LogFormat(**{**known, **changes})  # type: ignore[arg-type]


def read(
    folder: Path, rows: list[str], how: LogFormat | None = None, skip: bool = False
) -> tuple[Trace, LogReport]:
    path = folder / "log.csv"
    path.write_text("\n".join(["node,t,what,why", *rows]) + "\n")
    return read_log(path, how or form(), FLEET, skip)


def spans(trace: Trace) -> list[tuple[int, float, float, str]]:
    rows = zip(trace.first_gpu // 8, trace.start_h, trace.end_h, trace.cause, strict=True)
    return sorted((int(n), float(s), float(e), trace.causes[c]) for n, s, e, c in rows)


def test_each_start_takes_the_next_end_of_the_same_failure(tmp_path: Path) -> None:
    rows = ["a,1,start,x", "a,2,start,y", "b,2,start,x", "a,3,end,x", "a,9,end,y", "b,4,end,x"]
    rows += ["a,10,start,x", "a,11,end,x", "c,50,start,x"]
    trace, report = read(tmp_path, rows)
    assert spans(trace) == [
        (0, 1, 3, "x"),
        (0, 2, 9, "y"),
        (0, 10, 11, "x"),
        (1, 2, 4, "x"),
        (2, 50, math.inf, "x"),
    ]
    assert "1 failure without an end: down for good" in report.assumed
    assert not report.dropped


def test_back_to_back_and_at_one_moment_the_file_order_counts(tmp_path: Path) -> None:
    rows = ["a,1,start,x", "a,5,end,x", "a,5,start,x", "a,7,end,x", "b,3,start,x", "b,3,end,x"]
    found = [(0, 1, 5, "x"), (0, 5, 7, "x"), (1, 3, pytest.approx(3 + 1 / 3600), "x")]
    rows.sort(key=lambda row: float(row.split(",")[1]))
    assert spans(read(tmp_path, rows)[0]) == found
    trace, report = read(tmp_path, rows[::-1])
    assert spans(trace) == found
    assert "the rows run backwards in time; reversed" in report.assumed


def test_a_second_start_and_a_second_end_change_nothing_when_skipped(tmp_path: Path) -> None:
    rows = ["a,1,start,x", "a,2,start,x", "a,5,end,x", "a,6,end,x", "a,8,start,x", "a,9,end,x"]
    trace, report = read(tmp_path, rows, skip=True)
    assert spans(trace) == [(0, 1, 5, "x"), (0, 8, 9, "x")]
    assert [(d.kind, d.count, d.first) for d in report.dropped] == [
        ("a start of what has not ended yet", 1, "line 3"),
        ("an end without a start", 1, "line 5"),
    ]


def test_an_end_alone_may_mean_since_before_the_log(tmp_path: Path) -> None:
    how = form(end_without_start="since-window")
    rows = ["a,4,end,x", "b,5,start,x", "b,6,end,x"]
    trace, report = read(tmp_path, rows, how)
    assert spans(trace) == [(0, 0, 4, "x"), (1, 5, 6, "x")]
    assert "1 failure with an end and no start: since before the window" in report.assumed
    # Only the first event of a failure can be that.
    trace, report = read(tmp_path, [*rows, "b,7,end,x"], how, skip=True)
    assert [d.count for d in report.dropped] == [1]
    # Numbered by first failure, it comes first.
    order = form(end_without_start="since-window", nodes=Nodes())
    assert spans(read(tmp_path, ["b,1,start,x", "c,2,end,x"], order)[0]) == [
        (0, 0, 2, "x"),
        (1, 1, math.inf, "x"),
    ]


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[str, str, float, float]]:
    """Failures of which no two of one node and cause meet."""
    found = []
    for node in NAMES:
        for cause in ("x", "y"):
            times = sorted(draw(st.sets(st.integers(1, 99), max_size=8)))
            pairs = zip(times[::2], times[1::2], strict=False)
            found += [(node, cause, float(s), float(e)) for s, e in pairs]
    return found


@given(failures=histories(), seed=st.integers(0, 99))
@settings(max_examples=60)
def test_any_order_of_the_rows_gives_the_failures_back(
    failures: list[tuple[str, str, float, float]],
    seed: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    rows = ["d,99.5,start,z", "d,99.75,end,z"]
    for node, cause, start, end in failures:
        rows += [f"{node},{start},start,{cause}", f"{node},{end},end,{cause}"]
    random.Random(seed).shuffle(rows)
    trace, report = read(tmp_path_factory.mktemp("rows"), rows)
    expected = [(NAMES.index(n), s, e, c) for n, c, s, e in failures] + [(3, 99.5, 99.75, "z")]
    assert spans(trace) == sorted(expected)
    assert not report.dropped
