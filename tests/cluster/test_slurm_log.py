"""Slurm's own texts: jobs that a node ended, events of nodes, and the picture of a moment."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nonuniform.cluster.fleet import Fleet
from nonuniform.cluster.sources.bad_rows import LogReport
from nonuniform.cluster.sources.host_list import host_names
from nonuniform.cluster.sources.log_format import Clock, LogFormat, Nodes, Window
from nonuniform.cluster.sources.read import read_log
from nonuniform.cluster.trace import Trace
from nonuniform.errors import BadInput

FLEET = Fleet(gpus=128, domain=32, node=8)
NODES = Nodes(order="number")
SACCT = LogFormat(format="sacct", nodes=NODES, expand="node", repair_h=6)
SCONTROL = LogFormat(format="scontrol", nodes=NODES, expand="node")

JOBS = """\
JobID|State|Start|End|NodeList|FailedNode
100|COMPLETED|2024-05-01T00:00:00|2024-05-01T06:00:00|gpu[01-04]|
101|NODE_FAIL|2024-05-01T00:00:00|2024-05-01T12:00:00|gpu[01-08]|gpu03
101.batch|CANCELLED|2024-05-01T00:00:00|2024-05-01T12:00:00|gpu01|
101.0|NODE_FAIL|2024-05-01T00:00:00|2024-05-01T12:00:00|gpu[01-08]|gpu03
102|CANCELLED by 1000|2024-05-02T00:00:00|2024-05-02T01:00:00|gpu05|
103|NODE_FAIL|2024-05-02T00:00:00|2024-05-03T00:00:00|gpu05|gpu05
104|RUNNING|2024-05-04T00:00:00|Unknown|gpu05|
"""

EVENTS = """\
Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User|
big||2024-05-01T00:00:00|2024-05-09T00:00:00||Cluster registered||
big|gpu02|2024-05-02T00:00:00|2024-05-02T10:00:00|DOWN*|Not responding|slurm(64030)|
big|gpu[04-05]|2024-05-03T00:00:00|Unknown|DRAIN|GPU ECC|root(0)|
big|gpu06|2024-05-03T00:00:00|2024-05-03T01:00:00|POWERED_DOWN|idle||
big|gpu02|2024-05-04T00:00:00|2024-05-04T02:00:00|DOWN|Not responding|slurm(64030)|
"""

PICTURE = """\
NodeName=gpu01 Arch=x86_64 CoresPerSocket=48
   CPUAlloc=96 CPUTot=96 CPULoad=12.31
   Gres=gpu:8
   State=ALLOCATED ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A
   BootTime=2024-04-01T08:00:00 SlurmdStartTime=2024-04-01T08:05:00
   LastBusyTime=2024-05-10T12:00:00

NodeName=gpu02 Arch=x86_64 CoresPerSocket=48
   State=DOWN*+DRAIN ThreadsPerCore=1
   BootTime=2024-04-01T08:00:00 SlurmdStartTime=2024-04-01T08:05:00
   Reason=Xid 79 [GPU 3] on gpu02 [root@2024-05-08T12:00:00]

NodeName=gpu03 State=IDLE+DRAIN
   Reason=fan [ops@2024-05-10T00:00:00]
NodeName=gpu04 State=IDLE+POWERED_DOWN
NodeName=gpu05 State=MIXED+FAIL
   Reason=slow link [ops@2024-05-01T00:00:00]
   Comment=see [ticket@12]
"""


def read(folder: Path, text: str, form: LogFormat, skip: bool = False) -> tuple[Trace, LogReport]:
    path = folder / "slurm.txt"
    path.write_text(text)
    return read_log(path, form, FLEET, skip)


def rows(trace: Trace) -> list[tuple[int, float, float, str]]:
    columns = zip(trace.first_gpu // 8, trace.start_h, trace.end_h, trace.cause, strict=True)
    return [(int(n), float(s), float(e), trace.causes[c]) for n, s, e, c in columns]


def fixed_width(text: str) -> str:
    """As sacct prints without -P."""
    table = [line.split("|") for line in text.splitlines()]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    table.insert(1, ["-" * width for width in widths])
    lines = (
        " ".join(field.rjust(width) for field, width in zip(row, widths, strict=True))
        for row in table
    )
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("text", [JOBS, fixed_width(JOBS)])
def test_jobs_that_a_node_ended(tmp_path: Path, text: str) -> None:
    trace, report = read(tmp_path, text, SACCT)
    assert rows(trace) == [(3, 12.0, 18.0, "NODE_FAIL"), (5, 48.0, 54.0, "NODE_FAIL")]
    assert trace.hours == 72.0  # all times of the text
    assert report.rows == 7
    assert [(d.kind, d.count, d.wrong) for d in report.dropped] == [
        ("a job that no node ended", 4, False),
        ("a step of a job (the job itself counts)", 1, False),
    ]
    assert "2 failures without an end: 6 h each (repair_h)" in report.assumed
    assert "times that name no time zone are in UTC" in report.assumed


def test_a_job_on_several_nodes_does_not_say_which_one_failed(tmp_path: Path) -> None:
    text = JOBS.replace("|FailedNode", "").replace("|gpu03\n", "\n").replace("|gpu05\n", "\n")
    text = "\n".join(line.removesuffix("|") for line in text.splitlines())
    with pytest.raises(BadInput) as caught:
        read(tmp_path, text, SACCT)
    assert str(caught.value).endswith(
        "slurm.txt: 1 row with no single failed node (column nodelist), in line 3 ('gpu[01-08]')"
    )
    trace, _ = read(tmp_path, text, SACCT, skip=True)
    assert rows(trace) == [(5, 48.0, 54.0, "NODE_FAIL")]


def test_a_cut_field_is_no_name(tmp_path: Path) -> None:
    text = fixed_width(JOBS.replace("|gpu05\n", "|gpu0+\n"))
    with pytest.raises(BadInput, match=r"no single failed node .*'gpu0\+'"):
        read(tmp_path, text, SACCT)


def test_columns_that_are_missing_are_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match='no column "End"; there are: jobid, state, start, nodelist'):
        read(tmp_path, "JobID|State|Start|NodeList\n1|NODE_FAIL|x|a\n", SACCT)
    with pytest.raises(BadInput, match='no column "FailedNode"; there are: state, end'):
        read(tmp_path, "State|End\nNODE_FAIL|2024-05-01T00:00:00\n", SACCT)
    with pytest.raises(BadInput, match="expected the text of sacct, with"):
        read(tmp_path, "JobID State\n1 NODE_FAIL\n", SACCT)


def test_rows_that_are_wrong(tmp_path: Path) -> None:
    bad = "105|NODE_FAIL|2024-05-01T00:00:00|Unknown|gpu07|gpu07\n106|NODE_FAIL|x\n"
    bad += "107|NODE_FAIL|2024-05-01T00:00:00|2024-05-02T00:00:00|login|login\n"
    with pytest.raises(BadInput) as caught:
        read(tmp_path, JOBS + bad, SACCT)
    assert [line.split("slurm.txt: ")[1] for line in str(caught.value).splitlines()] == [
        "1 row with another number of fields than the 6 of the header, in line 10",
        "1 row with a bad time (not ISO 8601), in line 9 ('Unknown')",
        "1 row with an unknown node (not among the 16 of the fleet), in line 11 ('login')",
    ]


def test_events_of_nodes_have_both_times(tmp_path: Path) -> None:
    trace, report = read(tmp_path, EVENTS, LogFormat(format="sacct", nodes=NODES, expand="node"))
    assert rows(trace) == [
        (2, 24.0, 34.0, "Not responding"),
        (4, 48.0, math.inf, "GPU ECC"),
        (5, 48.0, math.inf, "GPU ECC"),
        (2, 72.0, 74.0, "Not responding"),
    ]
    assert [(d.kind, d.count) for d in report.dropped] == [
        ("an event of the cluster, not of a node", 1),
        ("a node that is no failure", 1),
    ]


def test_local_times_of_slurm_have_a_zone(tmp_path: Path) -> None:
    form = LogFormat(
        format="sacct",
        nodes=NODES,
        expand="node",
        clock=Clock(zone="Asia/Tokyo"),
        window=Window("2024-05-01T00:00:00Z", "2024-05-10T00:00:00Z"),
    )
    trace, report = read(tmp_path, EVENTS, form)
    assert trace.start_h[0] == pytest.approx(24 - 9)
    assert "times that name no time zone are in Asia/Tokyo" in report.assumed


@pytest.mark.parametrize("one_line", [False, True])
def test_the_picture_of_a_moment(tmp_path: Path, one_line: bool) -> None:
    text = PICTURE
    if one_line:  # scontrol -o
        text = text.replace("\n   ", " ").replace("\n\n", "\n")
    trace, report = read(tmp_path, text, SCONTROL)
    april = 24 * 30 - 8
    assert rows(trace) == [
        (5, april, math.inf, "slow link"),
        (2, april + 7 * 24 + 12, math.inf, "Xid 79 [GPU 3] on gpu02"),
        (3, april + 9 * 24, math.inf, "fan"),
    ]
    assert trace.hours == april + 9 * 24 + 12  # until the last time of the text
    assert report.rows == 5
    assert [(d.kind, d.count, d.wrong) for d in report.dropped] == [
        ("a node that is no failure", 2, False)
    ]
    assert any("failures that were repaired before are not in it" in s for s in report.assumed)


def test_a_node_that_is_down_since_nobody_knows_when(tmp_path: Path) -> None:
    text = PICTURE.replace("Reason=fan [ops@2024-05-10T00:00:00]", "Reason=fan")
    text = text.replace("[ops@2024-05-01T00:00:00]", "[ops@Unknown]")
    with pytest.raises(BadInput) as caught:
        read(tmp_path, text, SCONTROL)
    assert [line.split("slurm.txt: ")[1] for line in str(caught.value).splitlines()] == [
        "1 row with a node that is IDLE+DRAIN since nobody says when, in line 13",
        "1 row with a bad time (not ISO 8601), in line 16 ('Unknown')",
    ]
    with pytest.raises(BadInput, match="expected the text of scontrol show node"):
        read(tmp_path, "PartitionName=a\n", SCONTROL)


def test_names_written_out() -> None:
    assert host_names("a[1-3,07]-x,b") == ["a1-x", "a2-x", "a3-x", "a07-x", "b"]
    assert host_names("r[1-2]n[08-10]") == [f"r{r}n{n}" for r in (1, 2) for n in ("08", "09", "10")]
    for text in (
        "",
        "a[1-",
        "a[3-1]",
        "a[1-9999999]",
        "a,,b",
        "a[x]",
        "gpu[01-0+",
        "None assigned",
    ):
        assert host_names(text) is None, text


@given(st.sets(st.integers(0, 400), min_size=1), st.integers(1, 4))
def test_a_list_of_numbers_comes_back(numbers: set[int], width: int) -> None:
    text = ",".join(str(n).zfill(width) for n in sorted(numbers))
    assert host_names(f"n[{text}]") == [f"n{str(n).zfill(width)}" for n in sorted(numbers)]
