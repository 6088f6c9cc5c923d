"""Logs that are wrong: one line per kind, with a count and the first line; or they are skipped."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nonuniform.cluster.fleet import Fleet
from nonuniform.cluster.sources.log_format import Clock, Columns, LogFormat, Nodes, Window
from nonuniform.cluster.sources.read import read_log
from nonuniform.errors import BadInput

FLEET = Fleet(gpus=32, domain=16, node=8)
FORM = LogFormat(clock=Clock("hour"), expand="node", nodes=Nodes(names=("a", "b", "c", "d")))
EVENTS = LogFormat(
    columns=Columns(time="t", event="what"),
    clock=Clock("hour"),
    expand="node",
    nodes=FORM.nodes,
)
GOOD = ("a,0,5", "b,2,9", "c,20,30")


def csv(folder: Path, rows: Sequence[str], header: str = "node,start,end") -> Path:
    path = folder / "log.csv"
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def complaint(path: Path, form: LogFormat = FORM, fleet: Fleet = FLEET) -> str:
    with pytest.raises(BadInput) as caught:
        read_log(path, form, fleet)
    return str(caught.value).replace(f"{path.parent}/", "")


@pytest.mark.parametrize(
    ("rows", "line"),
    [
        (["a,9,2", "b,7,1"], "2 rows with a negative duration, the first in line 5 ('2')"),
        (
            ["x,1,2"],
            "1 row with an unknown node (not on the list), in line 5 ('x')",
        ),
        (
            ["b,2,9", "b,2,9"],
            "2 rows with what an earlier row says already (duplicated), the first in line 5",
        ),
        (
            ["a,yesterday,9"],
            "1 row with a bad time (not a number, clock.unit = 'hour'), in line 5 ('yesterday')",
        ),
        (
            ["a,1,soon", "a,inf,nan"],
            "2 rows with a bad time (not a number, clock.unit = 'hour'), the first in line 5 "
            "('soon')",
        ),
        ([",1,2"], '1 row with nothing in column "node", in line 5'),
        (["a,,2"], "1 row with a bad time (not a number, clock.unit = 'hour'), in line 5"),
        (
            ["a,1", "a,1,2,3"],
            "2 rows with another number of fields than the 3 of the header, the first in line 5",
        ),
    ],
)
def test_each_kind_is_one_line_and_can_be_skipped(
    tmp_path: Path, rows: list[str], line: str
) -> None:
    path = csv(tmp_path, [*GOOD, *rows])
    assert complaint(path).replace(" (['a', '1'])", "") == f"log.csv: {line}"
    trace, report = read_log(path, FORM, FLEET, skip_bad_rows=True)
    assert trace == read_log(csv(tmp_path, GOOD), FORM, FLEET)[0]
    assert report.rows == len(GOOD) + len(rows)
    assert [d.count for d in report.dropped] == [len(rows)]
    assert report.lines()[-1] == f"{path}: {line}: left out"


def test_several_kinds_are_told_at_once(tmp_path: Path) -> None:
    path = csv(tmp_path, ["x,1,2", "a,9,2", "a,0,5", "y,3,4", "a,z,5", "a,0,5"])
    assert complaint(path).splitlines() == [
        "log.csv: 1 row with a bad time (not a number, clock.unit = 'hour'), in line 6 ('z')",
        "log.csv: 1 row with a negative duration, in line 3 ('2')",
        "log.csv: 1 row with what an earlier row says already (duplicated), in line 7",
        "log.csv: 2 rows with an unknown node (not on the list), the first in line 2 ('x')",
    ]


def test_no_order_is_needed_and_it_is_said(tmp_path: Path) -> None:
    sorted_trace, report = read_log(csv(tmp_path, GOOD), FORM, FLEET)
    assert not any("order" in text for text in report.assumed)
    for rows, said in (
        ([GOOD[1], GOOD[2], GOOD[0]], "the rows are not in order of time; sorted"),
        ([GOOD[2], GOOD[1], GOOD[0]], "the rows run backwards in time; reversed"),
    ):
        trace, report = read_log(csv(tmp_path, rows), FORM, FLEET)
        assert trace == sorted_trace
        assert said in report.assumed


def test_overlaps_are_kept_and_said(tmp_path: Path) -> None:
    trace, report = read_log(csv(tmp_path, [*GOOD, "a,3,8", "a,4,5"]), FORM, FLEET)
    assert len(trace) == 5
    assert "2 failures of GPUs that were down already: they count once" in report.assumed


@pytest.mark.parametrize("text", ["", "\n \n", "\ufeff\n"])
def test_an_empty_file_is_named(tmp_path: Path, text: str) -> None:
    for name in ("log.csv", "log.jsonl", "log.json", "log.parquet"):
        path = tmp_path / name
        path.write_text(text)
        assert complaint(path) == f"{name}: the file is empty"


@pytest.mark.parametrize("text", ['""', '"",""\n', '" "\n\n""\n', '"\n"\n'])
def test_a_file_of_nothing_but_quotes_is_empty(tmp_path: Path, text: str) -> None:
    (tmp_path / "log.csv").write_text(text)
    assert complaint(tmp_path / "log.csv") == "log.csv: the file is empty"


def test_a_file_without_rows_is_named(tmp_path: Path) -> None:
    assert complaint(csv(tmp_path, [])) == "log.csv: the file has no rows"
    (tmp_path / "log.json").write_text("[]")
    assert complaint(tmp_path / "log.json") == "log.json: the file has no rows"
    columns = {name: pl.Series([], dtype=pl.Float64) for name in ("start", "end")}
    pl.DataFrame({"node": pl.Series([], dtype=pl.String), **columns}).write_parquet(
        tmp_path / "log.parquet"
    )
    assert complaint(tmp_path / "log.parquet") == "log.parquet: the file has no rows"


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    assert complaint(tmp_path / "no.csv") == "no.csv: cannot be read: No such file or directory"
    assert 'how to read ".log" files: say format = "csv"' in complaint(tmp_path / "x.log")


def test_a_wrong_column_names_those_there_are(tmp_path: Path) -> None:
    form = LogFormat(columns=Columns(node="nodes"), clock=Clock("hour"), expand="node")
    said = 'no column "nodes"; there are: node, start, end; did you mean "node"?'
    assert complaint(csv(tmp_path, GOOD), form) == f"log.csv: {said}"
    rows = [{"node": "a", "start": 1, "end": 2}]
    (tmp_path / "log.json").write_text(json.dumps(rows))
    assert complaint(tmp_path / "log.json", form) == f"log.json: {said}"
    (tmp_path / "log.jsonl").write_text(json.dumps(rows[0]))
    assert complaint(tmp_path / "log.jsonl", form) == f"log.jsonl: {said}"
    pl.DataFrame(rows).write_parquet(tmp_path / "log.parquet")
    assert complaint(tmp_path / "log.parquet", form) == f"log.parquet: {said}"


def test_a_wrong_nested_column_names_the_keys(tmp_path: Path) -> None:
    form = LogFormat(columns=Columns(node="at.node", start="s", end="e"), expand="node")
    (tmp_path / "log.json").write_text('[{"at": {"host": "a", "rack": 1}, "s": 1, "e": 2}]')
    assert complaint(tmp_path / "log.json", form) == (
        'log.json: no column "at.node"; there are: at.host, at.rack, s, e'
    )
    pl.DataFrame([{"at": {"host": "a"}, "s": 1, "e": 2}]).write_parquet(tmp_path / "log.parquet")
    assert complaint(tmp_path / "log.parquet", form) == (
        'log.parquet: no column "node"; there are: host'
    )


def test_a_name_with_a_line_end_in_it_stays_on_one_line(tmp_path: Path) -> None:
    path = csv(tmp_path, ["a,1,2"], '"no\nde",start,end')
    assert complaint(path).startswith('log.csv: no column "node"; there are: no\\nde, start, end')
    assert "\n" not in complaint(path)


def test_two_columns_of_one_name(tmp_path: Path) -> None:
    path = csv(tmp_path, ["a,1,2"], "node,start,start")
    assert complaint(path) == "log.csv: two columns are named 'start'"


def test_bytes_that_are_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_bytes(b"node,start,end\na,0,5\n\xff\xfe,1,2\nb,2,9\nc\xe9,1,2\nc,20,30\n")
    assert complaint(path).startswith(
        "log.csv: 2 rows with bytes that are not UTF-8, the first in line 3"
    )
    trace, report = read_log(path, FORM, FLEET, skip_bad_rows=True)
    assert trace == read_log(csv(tmp_path, GOOD), FORM, FLEET)[0]
    assert report.rows == 5
    path = tmp_path / "log.json"
    path.write_bytes(b'[\n{"node": "\xff"}]')
    assert "bytes that are not UTF-8 in line 2" in complaint(path)
    path.write_bytes("node,start".encode("utf-16"))
    assert complaint(path) == "log.json: the file is UTF-16, expected UTF-8"


def test_lines_that_are_no_json(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    good = '{"node": "a", "start": 0, "end": 5}'
    path.write_text(f'{good}\n\n{{"node": "b", \n[1]\n{{"node": "b", "start": true, "end": 1}}\n')
    assert complaint(path).splitlines() == [
        'log.jsonl: 1 row with what is no JSON, in line 3 (\'{"node": "b", \')',
        "log.jsonl: 1 row with what is no JSON object, in line 4",
        "log.jsonl: 1 row with a bad time (not a number, clock.unit = 'hour'), in line 5 ('true')",
    ]
    trace, report = read_log(path, FORM, FLEET, skip_bad_rows=True)
    assert (len(trace), report.rows) == (1, 4)


def test_a_json_list_is_whole_or_not_at_all_and_its_rows_have_lines(tmp_path: Path) -> None:
    path = tmp_path / "log.json"
    rows = [{"node": n, "start": 1, "end": 4} for n in ("a", "b", "[,]", "c")]
    path.write_text(json.dumps(rows, indent=2))
    line = path.read_text().splitlines().index('    "node": "[,]",')  # the line before it, from 1
    assert complaint(path) == (
        f"log.json: 1 row with an unknown node (not on the list), in line {line} ('[,]')"
    )
    path.write_text(path.read_text()[:-2])
    assert complaint(path).startswith("log.json: line 21: not JSON: ")
    path.write_text('{"rows": []}')
    assert "expected a list of objects" in complaint(path)


def test_a_file_that_is_no_parquet(tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    path.write_text("node,start,end")
    assert complaint(path).startswith("log.parquet: not a Parquet file: ")
    assert "\n" not in complaint(path)


def test_csv_with_a_quote_that_never_ends(tmp_path: Path) -> None:
    path = csv(tmp_path, ["a,1,2", '"b,2,3', "c,3,4"])
    assert complaint(path).startswith("log.csv: the row in line 3 is no CSV: ")


@pytest.mark.parametrize(
    ("rows", "line"),
    [
        (["a,1,start", "a,2,start"], "1 row with a start of what has not ended yet, in line 3"),
        (["a,1,end"], "1 row with an end without a start, in line 2"),
        (["a,1,start", "a,2,end", "a,3,end"], "1 row with an end without a start, in line 4"),
        (
            ["a,1,start", "a,1,start"],
            "1 row with what an earlier row says already (duplicated), in line 3",
        ),
        (["a,1,halt"], '1 row with an event that is neither "start" nor "end", in line 2'),
    ],
)
def test_events_that_do_not_pair(tmp_path: Path, rows: list[str], line: str) -> None:
    said = complaint(csv(tmp_path, rows, "node,t,what"), EVENTS)
    assert said.replace(" ('halt')", "") == f"log.csv: {line}"


def test_nodes_without_an_expansion_are_refused(tmp_path: Path) -> None:
    form = LogFormat(clock=Clock("hour"))
    assert 'say expand = "node"' in complaint(csv(tmp_path, GOOD), form)


def test_more_nodes_than_the_fleet_has(tmp_path: Path) -> None:
    form = LogFormat(clock=Clock("hour"), expand="node")
    path = csv(tmp_path, [f"n{i},{i},{i + 2}" for i in range(6)])
    assert complaint(path, form) == (
        "log.csv: 2 rows with an unknown node (not among the 4 of the fleet), "
        "the first in line 6 ('n4')"
    )
    many = LogFormat(clock=Clock("hour"), expand="node", nodes=Nodes(names=tuple("abcdefg")))
    assert "nodes.names lists 7 nodes, the fleet has 4" in complaint(path, many)


def test_gpus_that_are_not_there(tmp_path: Path) -> None:
    form = LogFormat(columns=Columns(gpu="gpu"), clock=Clock("hour"), nodes=FORM.nodes)
    path = csv(tmp_path, ["a,7,0,1", "a,8,0,1", "a,-1,0,1", "a,x,0,1"], "node,gpu,start,end")
    assert complaint(path, form).splitlines() == [
        "log.csv: 2 rows with a bad GPU (not a whole number from 0), the first in line 4 ('-1')",
        "log.csv: 1 row with an unknown GPU (a node has 8), in line 3 ('8')",
    ]


def test_a_window_without_length_is_refused(tmp_path: Path) -> None:
    assert "say window.start and window.end" in complaint(csv(tmp_path, ["a,1,"]))
    form = LogFormat(clock=Clock("hour"), expand="node", window=Window(end="never"))
    assert complaint(csv(tmp_path, GOOD), form) == (
        "log: window.end = 'never': a bad time (not a number, clock.unit = 'hour')"
    )


@pytest.mark.parametrize(
    ("kind", "rows"),
    [("csv", 1_000_000), ("quoted", 250_000), ("jsonl", 250_000), ("parquet", 1_000_000)],
)
def test_a_million_rows_take_seconds(tmp_path: Path, kind: str, rows: int) -> None:
    rng = np.random.default_rng(1)
    start = rng.uniform(0, 8760, rows).round(6)
    frame = pl.DataFrame(
        {
            "node": pl.Series(rng.integers(0, 4096, rows)).cast(pl.String) + "-host",
            "start": start,
            "end": start + rng.exponential(24, rows).round(6),
            "cause": ["a, b" if kind == "quoted" else "ab"] * rows,
        }
    )
    path = tmp_path / f"log.{'csv' if kind == 'quoted' else kind}"
    if path.suffix == ".csv":
        frame.write_csv(path)
    elif kind == "jsonl":
        frame.write_ndjson(path)
    else:
        frame.write_parquet(path)
    form = LogFormat(columns=Columns(cause=("cause",)), clock=Clock("hour"), expand="node")
    began = time.process_time()
    trace, report = read_log(path, form, Fleet(32768, 72))
    took_s = time.process_time() - began
    assert len(trace) == rows == report.rows
    # Of all cores together, whatever else runs.
    assert took_s * 1_000_000 / rows < 30, f"{kind}: {took_s:.1f} s"


@given(
    rows=st.lists(
        st.tuples(
            st.sampled_from(["a", "b", "c", "d", "x", ""]),
            st.sampled_from(["0", "1", "2.5", "7", "", "?"]),
            st.sampled_from(["0", "1", "2.5", "7", "9", "", "?"]),
        ),
        max_size=12,
    )
)
@settings(max_examples=60)
def test_every_row_is_a_failure_or_is_counted_as_left_out(
    rows: list[tuple[str, str, str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = csv(tmp_path_factory.mktemp("rows"), ["a,0,1.5", *map(",".join, rows)])
    trace, report = read_log(path, FORM, FLEET, skip_bad_rows=True)
    assert report.rows == 1 + len(rows)
    assert len(trace) + sum(d.count for d in report.dropped) == report.rows
    assert report.failures == len(trace)
    if not any(d.wrong for d in report.dropped):
        assert read_log(path, FORM, FLEET)[0] == trace
    else:
        with pytest.raises(BadInput):
            read_log(path, FORM, FLEET)


TIMES = [
    "2024-05-01T00:00:00",
    "State|End|FailedNode\n",
    "May  1 00:00:00",
    " n1 kernel: NVRM: Xid (",
]
PLAIN = ["node", "start", "end", ",", "|", '"', "- ", "[", "]", "{", "}", ":", "a", "1", "\ufffd"]
FRAGMENTS = st.sampled_from(
    [
        *PLAIN,
        "\n",
        "\r\n",
        "\x00",
        "NodeName=",
        "State=DOWN",
        "Reason=x [r@",
        "NODE_FAIL",
        "End",
        *TIMES,
    ]
)


@given(parts=st.lists(FRAGMENTS.map(str.encode) | st.binary(max_size=3), max_size=30))
@settings(max_examples=60)
@pytest.mark.parametrize("kind", ["csv", "jsonl", "json", "parquet", "sacct", "scontrol", "xid"])
def test_no_text_ends_in_anything_but_a_trace_or_a_complaint(
    kind: str, parts: list[bytes], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / f"any.{kind}"
    path.write_bytes(b"".join(parts))
    form = LogFormat(format=kind, expand="node", clock=Clock(year=2024))  # type: ignore[arg-type]
    for skip in (False, True):
        said = f"{path}: "
        try:
            read_log(path, form, FLEET, skip_bad_rows=skip)
        except BadInput as error:
            said = str(error)
        assert all(line.startswith(f"{path}: ") for line in said.split("\n"))
