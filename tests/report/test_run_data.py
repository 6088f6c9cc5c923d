"""A run's folder in any state becomes the right values, or one clear line."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nonuniform.errors import BadInput
from nonuniform.report.run_data import RunData, read_run_data, run_data
from nonuniform.report.run_files import RunFiles

Row = dict[str, Any]
PARTS = {"detect_s": 0.05, "regroup_s": 0.1, "transfer_s": 0.3, "redo_s": 0.8}


def step(number: int, time_s: float, **more: Any) -> Row:
    row: Row = {
        "step": number,
        "loss": 5.0 / number,
        "tokens": 768,
        "samples": 12,
        "grad_norm": 1.0,
    }
    row |= {"generation": 1, "degrees": [4, 4], "batch_shares": [6, 6], "time_s": time_s}
    return row | more


def event(time_s: float, kind: str, **more: Any) -> Row:
    row = {"time_s": time_s, "kind": kind, "gpu": None, "replica": None, "step": None}
    return row | {"generation": None, "reason": ""} | more


PLACED = {"placement": {"0": ["0/0", "0/1"], "1": ["1/0", "1/1"]}, "spares": []}
STEPS = [step(1, 2.0), step(2, 3.0), step(3, 5.25, degrees=[4, 3], batch_shares=[7, 5]), step(4, 6)]
EVENTS = [
    event(0.5, "started", gpu="0/0"),
    event(1.0, "generation", step=0, generation=1, **PLACED),
    event(4.0, "failed", gpu="1/1", step=3, reason="killed"),
    event(4.1, "generation", step=2, placement={"0": ["0/0", "0/1"], "1": ["1/0"]}, spares=[]),
    event(5.3, "recovery", gpu="1/1", step=3, generation=2, transfer_bytes=2**20,
          total_s=1.25, **PARTS),
    event(6.5, "finished", step=4),
]  # fmt: skip
SUMMARY = {"status": "done", "reason": "all 4 steps committed", "time_s": 6.6, "device": "cpu"}


def lines(rows: list[Row]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def folder_of(
    path: Path,
    steps: list[Row] = STEPS,
    events: list[Row] = EVENTS,
    summary: Row | None = SUMMARY,
) -> Path:
    path.mkdir(exist_ok=True)
    (path / "steps.jsonl").write_text(lines(steps))
    (path / "events.jsonl").write_text(lines(events))
    if summary is not None:
        (path / "summary.json").write_text(json.dumps(summary))
    return path


def adds_up(data: RunData) -> bool:
    return math.isclose(data.goodput.total_s, data.time_s, rel_tol=1e-9, abs_tol=1e-6)


def test_a_whole_run(tmp_path: Path) -> None:
    data = read_run_data(folder_of(tmp_path / "first"))
    assert (data.name, data.status, data.reason) == ("first", "done", "all 4 steps committed")
    assert (data.time_s, data.replicas, data.tokens) == (6.6, 2, 4 * 768)
    assert [point.degrees for point in data.steps] == [(4, 4), (4, 4), (4, 3), (4, 4)]
    assert data.trouble == ()
    (recovery,) = data.recoveries
    assert (recovery.lost, recovery.joined, recovery.step) == (("1/1",), (), 3)
    assert (recovery.detect_s, recovery.redo_s, recovery.transfer_bytes) == (0.05, 0.8, 2**20)
    assert data.goodput.seconds["transfer"] == pytest.approx(0.3)
    assert adds_up(data)


def test_several_that_left_and_came_in_one_change_are_one_recovery(tmp_path: Path) -> None:
    same = {"step": 3, "generation": 2, "total_s": 1.25, **PARTS}
    found = [event(5.3, "recovery", gpu="1/1", **same), event(5.3, "joined", gpu="0/1", **same)]
    found += [event(5.3, "joined", gpu="0/0", **same), event(9.0, "joined", gpu="1/1", **same)]
    found[-1]["generation"] = 3
    data = read_run_data(folder_of(tmp_path, events=found))
    assert [(one.lost, one.joined) for one in data.recoveries] == [
        (("1/1",), ("0/1", "0/0")),
        ((), ("1/1",)),
    ]


@pytest.mark.parametrize("rest", ['{"step": 5, "lo', '{"step": 5, "time_s": 9}', "\xff"])
def test_a_line_still_being_written_is_left_out(tmp_path: Path, rest: str) -> None:
    folder = folder_of(tmp_path, summary=None)
    for name in ("steps.jsonl", "events.jsonl"):
        with (folder / name).open("a") as file:
            file.write(rest)
    data = read_run_data(folder)
    assert (len(data.steps), data.status, data.trouble) == (4, "unfinished", ())
    assert data.time_s == 6.5


def test_broken_lines_are_left_out_and_told(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    text = (folder / "events.jsonl").read_text().split("\n")
    (folder / "events.jsonl").write_bytes(b"\xff\xfe{\n" + "\n".join(["[1]", *text]).encode())
    (folder / "summary.json").write_text("{")
    data = read_run_data(folder)
    assert data.trouble == (("events.jsonl", "1, 2"), ("summary.json", "1"))
    assert (data.status, len(data.events)) == ("unfinished", len(EVENTS))


@pytest.mark.parametrize("missing", ["steps.jsonl", "events.jsonl", "summary.json"])
def test_any_one_file_may_be_missing(tmp_path: Path, missing: str) -> None:
    folder = folder_of(tmp_path)
    (folder / missing).unlink()
    data = read_run_data(folder)
    assert adds_up(data)
    assert data.trouble == (() if missing == "summary.json" else ((missing, "missing"),))


@pytest.mark.parametrize(
    ("summary", "kind"),
    [
        ({"device": "cuda"}, "measured"),
        ({"device": "cpu"}, "emulated"),
        ({"device": None}, "unknown"),
        (None, "unknown"),
    ],
)
def test_without_a_device_nobody_says_that_a_run_was_emulated(
    tmp_path: Path, summary: Row | None, kind: str
) -> None:
    assert read_run_data(folder_of(tmp_path, summary=summary)).kind == kind


def test_a_run_under_way_says_on_what_it_runs(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, summary=None)
    event = {"time_s": 0.1, "kind": "generation", "generation": 1, "device": "cpu"}
    with (folder / "events.jsonl").open("a") as file:
        file.write(json.dumps(event) + "\n")
    assert read_run_data(folder).kind == "emulated"


def test_no_run_at_all_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"holds neither steps\.jsonl nor events\.jsonl"):
        read_run_data(tmp_path)
    with pytest.raises(BadInput, match="no such folder"):
        read_run_data(tmp_path / "absent")


def test_a_resumed_run_tells_from_where(tmp_path: Path) -> None:
    events = [*EVENTS[:-1], event(7.0, "resumed", step=4, steps_lost=2)]
    events += [event(8.0, "generation", step=4, **PLACED)]
    steps = [*STEPS, step(5, 9.0), step(6, 10.0)]
    data = read_run_data(folder_of(tmp_path, steps, events, {**SUMMARY, "time_s": 10.5}))
    assert data.sessions == (0, 4)
    assert adds_up(data)
    assert data.goodput.seconds["redone"] >= 1.0  # what came after step 4 and was cut
    line = next(line for line in data.gpus if line.gpu == "0/1")
    assert [span.state for span in line.spans] == ["working", "absent", "working"]


def test_times_that_go_back_do_no_harm(tmp_path: Path) -> None:
    """Logs of launchers that were killed, as older versions went on with them."""
    events = [*EVENTS[:3], event(4.0, "resumed", step=4), event(4.5, "generation", **PLACED)]
    data = read_run_data(folder_of(tmp_path, [*STEPS, step(5, 5.0)], events, None))
    assert adds_up(data)
    for line in data.gpus:
        assert all(a.end_s == b.start_s for a, b in zip(line.spans, line.spans[1:], strict=False))


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)
STEP_KEYS = ("step", "time_s", "loss", "tokens", "degrees", "batch_shares", "power_w", "status")
EVENT_KEYS = ("kind", "gpu", "replica", "generation", "reason", "placement", "spares", "steps_lost")
TIMES = ("detect_s", "regroup_s", "redo_s", "total_s", "transfer_bytes", "device")
keys = st.sampled_from((*STEP_KEYS, *EVENT_KEYS, *TIMES))
kinds = st.sampled_from(["failed", "recovery", "joined", "generation", "resumed", "started"])
rows = st.lists(
    st.dictionaries(keys, plain, max_size=8)
    | st.builds(lambda t, k, row: {**row, "time_s": t, "kind": k, "step": 1},
                st.floats(-1, 1e9), kinds, st.dictionaries(keys, plain, max_size=4)),
    max_size=8,
)  # fmt: skip


@given(rows, rows, st.none() | st.dictionaries(keys, plain, max_size=5))
def test_rows_of_any_kind_are_read_and_the_time_adds_up(
    steps: list[Row], events: list[Row], summary: Row | None
) -> None:
    data = run_data(RunFiles(tuple(steps), tuple(events), summary), Path("some/run"))
    assert adds_up(data)
    assert all(span.length_s > 0 for line in data.gpus for span in line.spans)
