"""After `--resume` the summary is that of the whole run, and says what came since."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nonuniform.placement.placement import Placement, ReplicaPlacement
from nonuniform.protocol.commit import Vote
from nonuniform.protocol.record import Position, Record
from nonuniform.train.chronicle import Chronicle
from nonuniform.train.journal import RunFolder
from nonuniform.view.observer import NullObserver

PLACEMENT = Placement((ReplicaPlacement(0, ("0/0", "0/1"), 6), ReplicaPlacement(1, ("1/0",), 6)))
RECORD = Record(3, PLACEMENT, 6, 0, "digest", {}, {})


def votes(step: int, loss: float, kind: Any = "train") -> dict[str, Vote]:
    vote = Vote("0/0", 3, kind, step, "digest", 12 * loss, 12, 0.5, True)
    return {"0/0": vote, "1/0": replace(vote, gpu="1/0")}


def first_session(path: Path, steps: int = 5) -> None:
    chronicle = Chronicle(RunFolder.create(path), NullObserver(), 2)
    chronicle.start({"device": "cpu"})
    chronicle.event("generation", "all GPUs healthy", generation=1)
    for step in range(1, steps + 1):
        chronicle.step(step, RECORD, votes(step, 10.0 - step), 12, None)
    chronicle.validation(3, RECORD, votes(3, 7.5, "validate"))
    chronicle.validation(5, RECORD, votes(5, 5.5, "validate"))
    chronicle.event("failed", "SIGKILL", gpu="1/0")
    chronicle.event("joined", "GPU 1/0 joined", gpu="1/0")
    chronicle.close("failed", "interrupted by SIGTERM")


def resume(path: Path, step: int) -> Chronicle:
    chronicle = Chronicle(RunFolder.resume(path, step), NullObserver(), 2)
    chronicle.start({"device": "cpu"})
    chronicle.resume(step, f"going on after step {step}")
    return chronicle


def summary_of(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((path / "summary.json").read_text())
    return found


def test_a_run_that_was_never_resumed_is_one_session(tmp_path: Path) -> None:
    first_session(tmp_path)
    summary = summary_of(tmp_path)
    session = summary["session"]
    assert (summary["resumed_from"], summary["sessions"], summary["device"]) == (None, 1, "cpu")
    for key in ("steps", "generations", "failures", "returns"):
        assert session[key] == summary[key]


def test_whole_run_and_session_are_told_apart(tmp_path: Path) -> None:
    first_session(tmp_path)
    with (tmp_path / "events.jsonl").open("a") as file:
        file.write('{"time_s": 100.0, "kind": "ended"}\n')
    chronicle = resume(tmp_path, 4)
    chronicle.event("generation", "all GPUs healthy", generation=1)
    for step in (5, 6, 7):
        chronicle.step(step, RECORD, votes(step, 10.0 - step), 12, None)
    chronicle.event("failed", "SIGKILL", gpu="0/1")
    chronicle.close("done", "all 7 steps committed")
    summary = summary_of(tmp_path)
    counted = {key: summary[key] for key in ("steps", "generations", "failures", "returns")}
    assert counted == {"steps": 7, "generations": 2, "failures": 2, "returns": 1}
    assert (summary["loss_first"], summary["loss_last"]) == (9.0, 3.0)
    # The check after step 5 was of work that is taken back.
    assert summary["validation_loss"] == 7.5
    assert (summary["resumed_from"], summary["sessions"]) == (4, 2)
    session = summary["session"]
    assert {key: session[key] for key in counted} == {
        "steps": 3, "generations": 1, "failures": 1, "returns": 0,
    }  # fmt: skip
    assert session["time_s"] < 50
    assert summary["time_s"] == pytest.approx(100 + session["time_s"], abs=0.5)


def test_a_finished_run_that_is_resumed_keeps_what_its_summary_said(tmp_path: Path) -> None:
    first_session(tmp_path)
    before = summary_of(tmp_path)
    chronicle = resume(tmp_path, 5)
    chronicle.close("done", "all 5 steps were committed before")
    after = summary_of(tmp_path)
    for key in ("steps", "loss_first", "loss_last", "validation_loss", "generations", "failures"):
        assert after[key] == before[key] is not None
    assert after["session"]["steps"] == 0


def test_the_event_says_from_where_and_what_comes_again(tmp_path: Path) -> None:
    first_session(tmp_path)
    resume(tmp_path, 3)
    last = json.loads((tmp_path / "events.jsonl").read_text().splitlines()[-1])
    assert (last["kind"], last["step"], last["steps_lost"]) == ("resumed", 3, 2)


def test_lines_that_cannot_be_read_are_told_and_no_loss_is_forgotten(tmp_path: Path) -> None:
    first_session(tmp_path)
    path = tmp_path / "events.jsonl"
    path.write_text("torn\n" + path.read_text())
    resume(tmp_path, 5).close("done", "")
    (gap,) = [
        row
        for text in path.read_text().splitlines()[1:]
        if (row := json.loads(text))["kind"] == "log_gap"
    ]
    assert gap["reason"] == "events.jsonl: 1 line cannot be read and left as is"
    assert (summary_of(tmp_path)["failures"], summary_of(tmp_path)["returns"]) == (1, 1)


def test_time_goes_on_after_the_last_step_that_a_killed_launcher_logged(tmp_path: Path) -> None:
    rows = [{"step": 1, "loss": 1.0, "time_s": 50.0}, {"step": 2, "loss": 1.0, "time_s": 90.0}]
    (tmp_path / "steps.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "events.jsonl").write_text('{"time_s": 10.0, "kind": "generation"}\n')
    assert RunFolder.resume(tmp_path, 1).past.time_s == 90.0


def test_after_a_fallback_the_last_loss_is_that_of_a_step_that_stays(tmp_path: Path) -> None:
    chronicle = Chronicle(RunFolder.create(tmp_path), NullObserver(), 2)
    for step in (1, 2, 3):
        chronicle.step(step, RECORD, votes(step, 10.0 - step), 12, None)
    chronicle.rewind(Position(1, 0), "no living GPU holds some units", 2)
    chronicle.close("failed", "no replica is left")
    summary = summary_of(tmp_path)
    assert (summary["steps"], summary["loss_first"], summary["loss_last"]) == (1, 9.0, 9.0)


def checked(chronicle: Chronicle, step: int, loss: float) -> None:
    chronicle.validation(step, RECORD, votes(step, loss, "validate"))


def test_after_a_fallback_the_held_out_loss_is_that_of_a_step_that_stays(tmp_path: Path) -> None:
    chronicle = Chronicle(RunFolder.create(tmp_path), NullObserver(), 2)
    checked(chronicle, 2, 8.0)
    checked(chronicle, 4, 6.0)
    chronicle.rewind(Position(3, 0), "no living GPU holds some units", 1)
    assert chronicle.validation_loss == 8.0
    checked(chronicle, 3, 7.0)
    chronicle.rewind(Position(1, 0), "no living GPU holds some units", 2)
    chronicle.close("failed", "no replica is left")
    assert summary_of(tmp_path)["validation_loss"] is None


def test_a_check_that_was_taken_back_does_not_return(tmp_path: Path) -> None:
    """Step 4 is done again, but the run ends before it is checked again."""
    chronicle = Chronicle(RunFolder.create(tmp_path), NullObserver(), 2)
    checked(chronicle, 2, 8.0)
    checked(chronicle, 4, 6.0)
    chronicle.rewind(Position(3, 0), "no living GPU holds some units", 1)
    chronicle.rewind(Position(4, 0), "no living GPU holds some units", 0)
    assert chronicle.validation_loss == 8.0
    assert RunFolder.resume(tmp_path, 4).past.validation_loss == 8.0


def test_a_generation_says_on_what_it_runs(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path)
    chronicle = Chronicle(folder, NullObserver(), 1)
    chronicle.start({"device": "cpu"})
    chronicle.event("generation", "the first", generation=1)
    chronicle.close("done", "")
    rows = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert [row["device"] for row in rows if row["kind"] == "generation"] == ["cpu"]
