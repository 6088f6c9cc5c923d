"""Tables of failures in four formats, times as people write them, GPUs and nodes by name."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nonuniform.cluster.fleet import Fleet
from nonuniform.cluster.sources.bad_rows import LogReport
from nonuniform.cluster.sources.clock import read_times
from nonuniform.cluster.sources.log_format import Clock, Columns, LogFormat, Nodes, Window
from nonuniform.cluster.sources.read import read_log
from nonuniform.cluster.trace import Trace
from nonuniform.errors import BadInput

FLEET = Fleet(gpus=60, domain=16, node=8)  # the last node has 4 GPUs
ROWS = [
    {"node": "n1", "start": 0.0, "end": 5.0, "cause": "fan"},
    {"node": "n0", "start": 2.5, "end": 9.0, "cause": "gpu"},
    {"node": "n7", "start": 4.0, "end": None, "cause": "fan"},
    {"node": "n1", "start": 6.0, "end": 7.0, "cause": None},
]
FORM = LogFormat(
    columns=Columns(cause=("cause",)),
    clock=Clock("hour"),
    window=Window(0, 24),
    nodes=Nodes(order="number"),
    expand="node",
)


def write(folder: Path, suffix: str, rows: list[dict[str, object]]) -> Path:
    path = folder / f"log.{suffix}"
    frame = pl.DataFrame(rows, infer_schema_length=None)
    if suffix == "csv":
        frame.write_csv(path)
    elif suffix == "parquet":
        frame.write_parquet(path)
    elif suffix == "json":
        path.write_text(json.dumps(rows, indent=1))
    else:
        path.write_text("\n\n".join(json.dumps(row) for row in rows))
    return path


def read(folder: Path, text: str, form: LogFormat) -> tuple[Trace, LogReport]:
    path = folder / "log.csv"
    path.write_text(text)
    return read_log(path, form, FLEET)


@pytest.mark.parametrize("suffix", ["csv", "parquet", "json", "jsonl"])
def test_every_format_gives_the_same_trace(tmp_path: Path, suffix: str) -> None:
    trace, report = read_log(write(tmp_path, suffix, ROWS), FORM, FLEET)
    assert trace.hours == 24.0
    assert trace.start_h.tolist() == [0.0, 2.5, 4.0, 6.0]
    assert trace.end_h.tolist() == [5.0, 9.0, math.inf, 7.0]
    assert trace.first_gpu.tolist() == [8, 0, 56, 8]
    assert trace.gpus.tolist() == [8, 8, 4, 8]
    assert [trace.causes[i] for i in trace.cause] == ["fan", "gpu", "fan", "unknown"]
    assert (report.rows, report.failures, report.dropped) == (4, 4, ())
    assert "1 failure without an end: down for good" in report.assumed


@pytest.mark.parametrize("suffix", ["parquet", "json", "jsonl"])
def test_columns_inside_others(tmp_path: Path, suffix: str) -> None:
    rows: list[dict[str, object]] = [
        {"at": {"name": "n2", "slot": 3}, "when": [1], "start": 1, "end": 2, "why": {"a": "x"}},
        {"at": {"name": "n3", "slot": 0}, "when": [2], "start": 1, "end": 3, "why": {"a": "y"}},
    ]
    columns = Columns(node="at.name", gpu="at.slot", cause=("why.a",))
    form = LogFormat(columns=columns, clock=Clock("hour"), nodes=Nodes(order="number"))
    trace, _ = read_log(write(tmp_path, suffix, rows), form, FLEET)
    assert trace.first_gpu.tolist() == [19, 24]
    assert trace.gpus.tolist() == [1, 1]
    assert trace.causes == ("x", "y")


def test_a_quoted_field_may_hold_anything_and_lines_are_counted_right(tmp_path: Path) -> None:
    text = '\ufeffnode;start;end;why\r\n"n1";0;5;"a;b\r\n""c"""\r\n\r\nn2;1;x;\r\n'
    form = LogFormat(clock=Clock("hour"), expand="node", delimiter=";")
    with pytest.raises(BadInput, match=r"1 row with a bad time .* in line 5 \('x'\)$"):
        read(tmp_path, text, form)
    trace, _ = read(tmp_path, text.replace(";x;", ";3;"), form)
    assert trace.end_h.tolist() == [5.0, 3.0]


@pytest.mark.parametrize(
    ("unit", "times"),
    [
        ("day", ("0.5", "2")),
        ("hour", ("12", "48")),
        ("minute", ("720", "2880")),
        ("s", ("43200", "1.728e5")),
        ("ms", ("43200000", "172800000")),
        ("iso", ("1970-01-01T12:00:00Z", "1970-01-03")),
        ("iso", ("1970-01-01 14:00+02:00", "1970-01-02T19:00:00.0-0500")),
    ],
)
def test_units_of_time(tmp_path: Path, unit: str, times: tuple[str, str]) -> None:
    form = LogFormat(
        clock=Clock(unit),  # type: ignore[arg-type]
        expand="node",
        window=Window("0" if unit != "iso" else "1970-01-01", times[1]),
    )
    trace, _ = read(tmp_path, f"node,start,end\na, {times[0]} ,{times[1]}\n", form)
    assert trace.hours == pytest.approx(48)
    assert trace.start_h[0] == pytest.approx(12)
    assert trace.end_h[0] == pytest.approx(48)


def test_times_without_a_zone_are_in_that_of_the_scenario_and_it_is_said(tmp_path: Path) -> None:
    text = "node,start,end\na,2024-03-31T01:30:00,2024-03-31T03:30:00\n"
    berlin = LogFormat(clock=Clock(zone="Europe/Berlin"), expand="node")
    trace, report = read(tmp_path, text, berlin)
    assert trace.hours == pytest.approx(1.0)  # the clocks went forward in between
    assert "times that name no time zone are in Europe/Berlin" in report.assumed
    trace, report = read(tmp_path, text, LogFormat(expand="node"))
    assert trace.hours == pytest.approx(2.0)
    assert "times that name no time zone are in UTC" in report.assumed
    _, report = read(tmp_path, text.replace("00:00", "00:00Z").replace("30:00", "30:00Z"), berlin)
    assert not any("zone" in said for said in report.assumed)


def test_the_hour_that_comes_twice_and_the_one_that_does_not_come(tmp_path: Path) -> None:
    form = LogFormat(clock=Clock(zone="Europe/Berlin"), expand="node")
    text = "node,start,end\na,2024-10-27T02:30:00,2024-10-27T03:30:00\n"
    trace, report = read(tmp_path, text, form)
    assert trace.hours == pytest.approx(2.0)
    assert "1 time of the hour that a clock change of Europe/Berlin repeats: the earlier" in (
        report.assumed
    )
    with pytest.raises(BadInput, match="bad time"):
        read(tmp_path, "node,start,end\na,2024-03-31T02:30:00,2024-03-31T03:30:00\n", form)
    nowhere = LogFormat(clock=Clock(zone="Europe/Nowhere"), expand="node")
    with pytest.raises(BadInput, match='zone = "Europe/Nowhere": no such time zone'):
        read(tmp_path, text, nowhere)


@given(
    moments=st.lists(
        st.datetimes(datetime(1971, 1, 1), datetime(2100, 1, 1)), min_size=1, max_size=5
    ),
    minutes=st.integers(-14 * 60, 14 * 60),
)
@settings(max_examples=80)
def test_iso_times_are_what_python_makes_of_them(moments: list[datetime], minutes: int) -> None:
    aware = [m.replace(tzinfo=timezone(timedelta(minutes=minutes))) for m in moments]
    read = read_times(pl.Series("t", [m.isoformat() for m in aware]), Clock())
    expected = [m.timestamp() / 3600 for m in aware]
    np.testing.assert_allclose(read.hours.to_numpy(), expected, rtol=0, atol=1e-9)
    assert read.zoneless == 0


@pytest.mark.parametrize(
    "text", ["2024-13-01", "2024-02-30T00:00:00", "24-01-01", "2024-01-01T25:00", "1.5", "now", "Z"]
)
def test_what_is_no_iso_time(text: str) -> None:
    assert read_times(pl.Series("t", [text]), Clock()).hours.to_list() == [None]


def test_dates_of_parquet(tmp_path: Path) -> None:
    start = datetime(2024, 5, 1, 6, tzinfo=UTC)
    path = tmp_path / "log.parquet"
    pl.DataFrame(
        {"node": ["a"], "start": [start], "end": [start + timedelta(hours=3)]}
    ).write_parquet(path)
    trace, _ = read_log(path, LogFormat(expand="node", window=Window("2024-05-01")), FLEET)
    assert (trace.start_h[0], trace.hours) == (pytest.approx(6), pytest.approx(9))
    with pytest.raises(BadInput, match='column "start" holds numbers, and'):
        read_log(write(tmp_path, "parquet", ROWS), LogFormat(expand="node"), FLEET)


def test_durations(tmp_path: Path) -> None:
    form = LogFormat(columns=Columns(duration="d"), clock=Clock("day"), expand="node")
    trace, _ = read(tmp_path, "node,start,d\na,1,0.5\nb,1.25,1\n", form)
    assert trace.end_h.tolist() == [12.0, 30.0]
    with pytest.raises(BadInput, match=r"1 row with a negative duration, in line 2 \('-1'\)$"):
        read(tmp_path, "node,start,d\na,1,-1\n", form)
    seconds = LogFormat(columns=Columns(duration="d"), expand="node")
    trace, report = read(tmp_path, "node,start,d\na,2024-01-01,7200\n", seconds)
    assert trace.hours == pytest.approx(2)
    assert 'column "d" is in seconds' in report.assumed


def test_the_window_cuts_and_says_what_it_left_out(tmp_path: Path) -> None:
    form = LogFormat(clock=Clock("hour"), expand="node", window=Window(10, 20))
    text = "node,start,end\na,0,9\nb,5,10\nc,8,12\nd,15,30\ne,20,21\nf,40,50\n"
    trace, report = read(tmp_path, text, form)
    assert trace.hours == 10.0
    assert trace.start_h.tolist() == [0.0, 5.0]
    assert trace.end_h.tolist() == [2.0, 20.0]
    assert [(d.kind, d.count, d.first, d.wrong) for d in report.dropped] == [
        ("an end before the window", 2, "line 2", False),
        ("a start at or after the end of the window", 2, "line 6", False),
    ]
    assert "1 failure from before the window: there from its start" in report.assumed
    empty = LogFormat(clock=Clock("hour"), expand="node", window=Window(100, 200))
    assert len(read(tmp_path, text, empty)[0]) == 0


def test_what_nobody_saw_end_and_what_ended_at_once(tmp_path: Path) -> None:
    text = "node,start,end\na,0,\nb,1,1\nc,2,9\n"
    form = LogFormat(clock=Clock("hour"), expand="node", repair_h=5)
    trace, report = read(tmp_path, text, form)
    assert trace.end_h.tolist() == [5.0, pytest.approx(1 + 1 / 3600), 9.0]
    assert "1 failure without an end: 5 h each (repair_h)" in report.assumed
    assert "1 failure that ended as they began: 1 s each (instant_s)" in report.assumed
    form = LogFormat(clock=Clock("hour"), expand="node", instant_s=0)
    trace, report = read(tmp_path, text, form)
    assert trace.end_h.tolist() == [math.inf, 9.0]
    assert [d.line("x") for d in report.dropped] == [
        "x: 1 row with a start and an end at one time, in line 3"
    ]


def test_a_node_is_all_of_its_gpus_or_one(tmp_path: Path) -> None:
    text = "node,start,end\n" + "".join(f"a,{i},{i + 2}\n" for i in range(10)) + "b,0,1\n"
    one, report = read(tmp_path, text, LogFormat(clock=Clock("hour"), expand="one-gpu"))
    assert set(one.gpus) == {1}
    assert [g for g in one.first_gpu if g < 8] == [0, 1, 2, 3, 4, 5, 6, 7, 0, 1]
    assert any("one GPU of the node, the next one each time" in text for text in report.assumed)
    # A log may name the GPU where it knows it.
    columns = Columns(gpu="gpu")
    text = "node,gpu,start,end\na,3,0,1\na,,2,3\n"
    both, report = read(
        tmp_path, text, LogFormat(columns=columns, clock=Clock("hour"), expand="node")
    )
    assert (both.first_gpu.tolist(), both.gpus.tolist()) == ([3, 0], [1, 8])
    assert "1 of 2 failures take all 8 GPUs of the node (expand)" in report.assumed
    with pytest.raises(BadInput, match='say expand = "node"'):
        read(tmp_path, text, LogFormat(columns=columns, clock=Clock("hour")))


def test_gpus_by_their_number_in_the_fleet(tmp_path: Path) -> None:
    form = LogFormat(columns=Columns(node="", gpu="gpu"), clock=Clock("hour"))
    trace, _ = read(tmp_path, "gpu,start,end\n59,0,1\n0,0,2\n", form)
    assert trace.first_gpu.tolist() == [0, 59]
    with pytest.raises(
        BadInput, match=r"1 row with an unknown GPU \(not among the 60 of the fleet"
    ):
        read(tmp_path, "gpu,start,end\n60,0,1\n", form)


def test_numbers_of_nodes(tmp_path: Path) -> None:
    text = "node,start,end\nr9-n05,3,4\nr1-n02,0,1\nr1-n06,1,2\n"

    def nodes(numbering: Nodes) -> list[int]:
        form = LogFormat(clock=Clock("hour"), expand="node", nodes=numbering)
        return (read(tmp_path, text, form)[0].first_gpu // 8).tolist()

    assert nodes(Nodes()) == [0, 1, 2]
    assert nodes(Nodes(order="name")) == [0, 1, 2]
    assert nodes(Nodes(order="number")) == [2, 6, 5]
    assert nodes(Nodes(names=("r9-n05", "x", "r1-n06", "r1-n02"))) == [3, 2, 0]
    scattered = nodes(Nodes(order="random", seed=1))
    assert scattered == nodes(Nodes(order="random", seed=1))
    assert len(set(scattered)) == 3
    assert any(nodes(Nodes(order="random", seed=s)) != scattered for s in range(2, 6))
    text = text.replace("n06", "n05")
    with pytest.raises(BadInput, match="1 node name with the number of another one"):
        nodes(Nodes(order="number"))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: LogFormat(format="xml"), 'format = "xml", expected one of "csv", "parquet"'),  # type: ignore[arg-type]
        (lambda: LogFormat(expand="all"), 'expand = "all"'),  # type: ignore[arg-type]
        (lambda: LogFormat(repair_h=-1), "repair_h = -1"),
        (lambda: LogFormat(instant_s=math.nan), "instant_s = nan"),
        (lambda: LogFormat(delimiter=""), "delimiter = ''"),
        (lambda: Clock("year"), 'clock.unit = "year"'),  # type: ignore[arg-type]
        (lambda: Nodes(names=("a", "b", "a")), 'nodes.names holds "a" twice'),
        (lambda: Columns(node=""), "one must say what failed"),
        (lambda: Columns(time="t"), "a log of events needs both"),
        (lambda: Columns(time="t", event="e", starts="x", ends="x"), 'both "x"'),
    ],
)
def test_a_format_that_makes_no_sense(make: object, said: str) -> None:
    assert callable(make)
    with pytest.raises(BadInput) as caught:
        make()
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
