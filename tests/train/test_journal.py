"""The output folder: the fields of the contract, valid JSON, nothing written twice."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nonuniform.errors import BadInput, RunFailed
from nonuniform.train.journal import Event, RunFolder, StepRecord
from nonuniform.train.row_log import RowLog

STEP = StepRecord(
    step=1,
    loss=2.5,
    tokens=1536,
    samples=12,
    grad_norm=0.75,
    generation=1,
    degrees=(4, 3),
    batch_shares=(7, 5),
    time_s=0.25,
)
STEP_KEYS = ["step", "loss", "tokens", "samples", "grad_norm", "generation"]
STEP_KEYS += ["degrees", "batch_shares", "time_s"]


def rows(path: Path) -> list[dict[str, Any]]:
    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    return [json.loads(line, parse_constant=refuse) for line in path.read_text().splitlines()]


def test_a_step_has_the_keys_of_the_contract_in_order() -> None:
    assert list(STEP.to_json()) == STEP_KEYS
    with_ids = replace(STEP, sample_ids=(3, 1), extra={"lr": 0.1}).to_json()
    assert list(with_ids) == [*STEP_KEYS, "sample_ids", "lr"]


def test_an_event_has_the_keys_of_the_contract_and_those_of_a_recovery() -> None:
    times = {"detect_s": 0.1, "regroup_s": 0.2, "transfer_s": 0.3, "redo_s": 0.4}
    event = Event(1.5, "recovery", "1/2", 1, 7, 2, "exit", {**times, "transfer_bytes": 64})
    keys = ["time_s", "kind", "gpu", "replica", "step", "generation", "reason"]
    assert list(event.to_json()) == [*keys, *times, "transfer_bytes"]
    assert list(Event(0.0, "start").to_json()) == keys


def test_extra_keys_may_not_replace_one_of_the_contract() -> None:
    with pytest.raises(AssertionError, match="loss"):
        replace(STEP, extra={"loss": 0.0}).to_json()


def test_lines_are_in_the_file_as_soon_as_they_are_logged(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "a" / "run")
    folder.log_step(STEP)
    folder.log_event(Event(0.5, "failure", "1/2", 1, 2, 1, "killed by signal 9"))
    assert rows(folder.path / "steps.jsonl") == [json.loads(json.dumps(STEP.to_json()))]
    assert rows(folder.path / "events.jsonl")[0]["reason"] == "killed by signal 9"
    assert not (folder.path / "summary.json").exists()
    folder.close({"status": "done"})
    assert json.loads((folder.path / "summary.json").read_text()) == {"status": "done"}
    assert sorted(path.name for path in folder.path.iterdir()) == [
        "events.jsonl",
        "steps.jsonl",
        "summary.json",
        "workers",
    ]


def test_mappings_are_logged_as_they_are(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run")
    folder.log_step({"step": 1, "loss": 1.0})
    folder.log_event({"kind": "x", "count": np.int64(3), "share": np.float32(0.5)})
    assert rows(folder.path / "steps.jsonl") == [{"step": 1, "loss": 1.0}]
    assert rows(folder.path / "events.jsonl") == [{"kind": "x", "count": 3, "share": 0.5}]


def test_numbers_that_json_has_not_become_null(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run")
    folder.log_step(replace(STEP, loss=math.nan, grad_norm=math.inf, extra={"a": [-math.inf]}))
    folder.close({"loss": np.float64("nan"), "deep": {"x": (1.0, math.nan)}})
    (row,) = rows(folder.path / "steps.jsonl")
    assert (row["loss"], row["grad_norm"], row["a"]) == (None, None, [None])
    summary = json.loads((folder.path / "summary.json").read_text())
    assert summary == {"loss": None, "deep": {"x": [1.0, None]}}


@pytest.mark.parametrize("wrong", [0, 1, 3])
def test_a_step_is_logged_once_and_in_order(tmp_path: Path, wrong: int) -> None:
    folder = RunFolder.create(tmp_path / "run")
    folder.log_step(STEP)
    with pytest.raises(RunFailed, match=f"step {wrong} after step 1, expected 2"):
        folder.log_step(replace(STEP, step=wrong))
    folder.log_step(replace(STEP, step=2))
    assert [row["step"] for row in rows(folder.path / "steps.jsonl")] == [1, 2]


def test_a_resumed_run_goes_on_from_its_step(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", last_step=40)
    with pytest.raises(RunFailed, match="step 1 after step 40"):
        folder.log_step(STEP)
    folder.log_step(replace(STEP, step=41))
    assert folder.last_step == 41


def test_a_line_that_cannot_be_written_is_not_counted(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run")
    with pytest.raises(TypeError):
        folder.log_step(replace(STEP, extra={"what": object()}))
    folder.log_step(STEP)
    assert len(rows(folder.path / "steps.jsonl")) == 1


def test_the_summary_is_written_once_and_ends_the_log(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run")
    with pytest.raises(TypeError):
        folder.close({"what": object()})
    assert not (folder.path / "summary.json").exists()
    folder.close({"steps": 0})
    with pytest.raises(RunFailed, match="written twice"):
        folder.close({"steps": 1})
    with pytest.raises(RunFailed, match="after the summary"):
        folder.log_step(STEP)
    assert json.loads((folder.path / "summary.json").read_text()) == {"steps": 0}


@pytest.mark.parametrize("name", ["steps.jsonl", "events.jsonl", "summary.json"])
def test_a_folder_with_another_run_is_left_alone(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("precious")
    with pytest.raises(BadInput, match=rf"holds another run \({name}\)"):
        RunFolder.create(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "precious"


def test_overwriting_removes_only_the_files_of_a_run(tmp_path: Path) -> None:
    for name in ("steps.jsonl", "events.jsonl", "summary.json", "notes.txt"):
        (tmp_path / name).write_text("old\n")
    RunFolder.create(tmp_path, overwrite=True).close({})
    assert (tmp_path / "steps.jsonl").read_text() == ""
    assert (tmp_path / "events.jsonl").read_text() == ""
    assert (tmp_path / "summary.json").read_text() == "{}\n"
    assert (tmp_path / "notes.txt").read_text() == "old\n"


def test_a_folder_that_cannot_be_made_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(BadInput, match=f"--out {path}: "):
            RunFolder.create(path)


def written(path: Path) -> list[int]:
    return [row["step"] for row in rows(path / "steps.jsonl")]


def fill(path: Path, steps: int) -> RunFolder:
    folder = RunFolder.create(path)
    for step in range(1, steps + 1):
        folder.log_step(replace(STEP, step=step))
    folder.log_event(Event(7.5, "checkpoint", step=steps))
    return folder


def test_a_run_goes_on_after_the_step_of_its_checkpoint(tmp_path: Path) -> None:
    fill(tmp_path, 5).close({"status": "failed"})
    folder = RunFolder.resume(tmp_path, 3)
    assert (folder.last_step, folder.last_time_s) == (3, 7.5)
    assert written(tmp_path) == [1, 2, 3]
    assert not (tmp_path / "summary.json").exists()
    folder.log_step(replace(STEP, step=4))
    folder.log_event(Event(8.0, "resumed"))
    folder.close({"status": "done"})
    assert written(tmp_path) == [1, 2, 3, 4]
    assert [row["kind"] for row in rows(tmp_path / "events.jsonl")] == ["checkpoint", "resumed"]


def test_a_log_that_lacks_steps_says_how_far_it_goes(tmp_path: Path) -> None:
    fill(tmp_path, 2)
    folder = RunFolder.resume(tmp_path, 5)
    assert folder.last_step == 2
    folder.skip_to(5)
    folder.log_step(replace(STEP, step=6))
    assert written(tmp_path) == [1, 2, 6]
    assert RunFolder.resume(tmp_path, 6).last_step == 6


def test_a_run_goes_on_after_a_crash_in_the_middle_of_a_line(tmp_path: Path) -> None:
    fill(tmp_path, 3)
    for name, rest in (("steps", '{"step": 4, "lo'), ("events", '{"time_s": 9.0}')):
        with (tmp_path / f"{name}.jsonl").open("a") as file:
            file.write(rest)
    folder = RunFolder.resume(tmp_path, 4)
    assert (folder.last_step, folder.last_time_s) == (3, 7.5)
    folder.log_step(replace(STEP, step=4))
    folder.log_event(Event(9.5, "resumed"))
    assert written(tmp_path) == [1, 2, 3, 4]
    assert [row["time_s"] for row in rows(tmp_path / "events.jsonl")] == [7.5, 9.5]


def tear(path: Path, before: int) -> None:
    """A line that cannot be read, before the one at that place."""
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:before], b"\x00\x00 torn\n", *lines[before:]]))


def test_a_line_that_cannot_be_read_costs_only_itself(tmp_path: Path) -> None:
    folder = fill(tmp_path, 6)
    for gpu in ("0/1", "1/1", "1/2"):
        folder.log_event(Event(8.0, "failed", gpu))
    tear(tmp_path / "steps.jsonl", 2)
    tear(tmp_path / "events.jsonl", 1)
    resumed = RunFolder.resume(tmp_path, 5)
    assert resumed.past.counts == {"checkpoint": 1, "failed": 3}
    assert (resumed.last_step, resumed.past.steps_lost) == (5, 1)
    assert resumed.past.unreadable == {"steps.jsonl": 1, "events.jsonl": 1}
    resumed.log_step(replace(STEP, step=6))
    for name, kept in (("steps", 6), ("events", 4)):
        lines = (tmp_path / f"{name}.jsonl").read_bytes().splitlines()
        assert len(lines) == kept + 1


def test_a_step_without_its_number_is_no_reason_to_drop_those_behind_it(tmp_path: Path) -> None:
    fill(tmp_path, 4)
    path = tmp_path / "steps.jsonl"
    path.write_text(path.read_text().replace('{"step": 2, ', "{"))
    resumed = RunFolder.resume(tmp_path, 3)
    assert (resumed.last_step, resumed.past.steps_lost) == (3, 1)
    assert [row.get("step") for row in rows(path)] == [1, None, 3]


def test_a_folder_without_a_run_can_be_resumed(tmp_path: Path) -> None:
    folder = RunFolder.resume(tmp_path / "new", 0)
    assert (folder.last_step, folder.last_time_s) == (0, 0.0)
    folder.log_step(STEP)
    assert folder.logs.is_dir()


@pytest.mark.parametrize("step", [0, 1, 4, 9])
def test_steps_after_a_point_are_taken_out_of_the_log(tmp_path: Path, step: int) -> None:
    folder = fill(tmp_path, 4)
    folder.rewind(step)
    kept = list(range(1, min(step, 4) + 1))
    assert (folder.last_step, written(tmp_path)) == (step, kept)
    with pytest.raises(RunFailed, match=f"expected {step + 1}"):
        folder.log_step(replace(STEP, step=step + 2))
    folder.log_step(replace(STEP, step=step + 1))
    assert written(tmp_path) == [*kept, step + 1]


def test_a_live_run_knows_its_step_and_only_one_that_is_resumed_asks_the_file(
    tmp_path: Path,
) -> None:
    """A run that began at a later step, without the log of the earlier ones, goes back."""
    folder = RunFolder.create(tmp_path, last_step=40)
    folder.log_step(replace(STEP, step=41))
    folder.rewind(38)
    assert (folder.last_step, written(tmp_path)) == (38, [])
    assert RunFolder.resume(tmp_path, 38).last_step == 0


def test_of_two_runs_that_begin_in_one_folder_one_is_refused(tmp_path: Path) -> None:
    RunFolder.create(tmp_path)
    with pytest.raises(BadInput, match="holds another run"):
        RunFolder.create(tmp_path)
    with pytest.raises(FileExistsError):
        RowLog(tmp_path / "steps.jsonl")
