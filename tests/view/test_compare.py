"""Two runs side by side, from their files."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from nonuniform.errors import BadInput
from nonuniform.view.compare import compare_runs
from nonuniform.view.records import read_run


def folder(path: Path, steps: list[dict[str, Any]], events: list[dict[str, Any]] = ()) -> Path:  # type: ignore[assignment]
    path.mkdir()
    for name, records in (("steps.jsonl", steps), ("events.jsonl", events)):
        (path / name).write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def step(number: int, loss: float | None, **more: Any) -> dict[str, Any]:
    return {"step": number, "loss": loss, "samples": 12, **more}


def test_rows_are_aligned_by_step_and_the_largest_difference_is_named(tmp_path: Path) -> None:
    left = folder(tmp_path / "l", [step(1, 5.0), step(2, 4.0), step(3, 3.0)])
    right = folder(tmp_path / "r", [step(2, 4.25), step(3, 3.1), step(4, 2.0)])
    compared = compare_runs(left, right)
    assert [(row.step, row.left, row.right) for row in compared.rows] == [(2, 4, 4.25), (3, 3, 3.1)]
    assert compared.largest is not None
    assert (compared.largest.step, compared.largest.difference) == (2, 0.25)
    assert (compared.only_left, compared.only_right) == ((1,), (4,))
    assert not compared.same_steps


def test_runs_told_by_their_files(rehearsal: ModuleType, tmp_path: Path) -> None:
    left = rehearsal.write(rehearsal.Rehearsal(noise=1e-6).calls(), tmp_path / "l")
    right = rehearsal.write(rehearsal.Rehearsal(incidents=()).calls(), tmp_path / "r")
    compared = compare_runs(left, right)
    assert len(compared.rows) == 60
    assert compared.same_steps
    assert compared.largest is not None
    assert 0 < compared.largest.difference <= 1e-6
    assert [row.step for row in compared.validation] == [20, 40, 60]
    assert compared.largest_validation is not None
    assert compared.largest_validation.difference == 0


@pytest.mark.parametrize(
    ("left", "right", "difference"),
    [
        (None, None, 0.0),
        (None, 3.0, math.inf),
        (math.inf, math.inf, 0.0),
        (math.inf, 3.0, math.inf),
    ],
)
def test_losses_that_are_no_numbers(
    tmp_path: Path, left: float | None, right: float | None, difference: float
) -> None:
    runs = folder(tmp_path / "l", [step(1, left)]), folder(tmp_path / "r", [step(1, right)])
    assert compare_runs(*runs).rows[0].difference == difference


def test_a_step_committed_twice_is_named(tmp_path: Path) -> None:
    left = folder(tmp_path / "l", [step(1, 5.0), step(2, 4.0), step(2, 4.0)])
    right = folder(tmp_path / "r", [step(1, 5.0), step(2, 4.0)])
    assert compare_runs(left, right).twice == (2,)


def test_samples_are_compared_by_id_whoever_computed_them(tmp_path: Path) -> None:
    left = folder(tmp_path / "l", [step(1, 5.0, sample_ids=[[0, 1, 2], [3]])])
    same = folder(tmp_path / "s", [step(1, 5.0, sample_ids=[3, 2, 1, 0])])
    other = folder(tmp_path / "o", [step(1, 5.0, sample_ids=[[0, 1], [2, 4]])])
    assert compare_runs(left, same).same_steps
    assert compare_runs(left, same).sample_ids_compared
    assert compare_runs(left, other).other_samples == (1,)


def test_a_smaller_batch_is_not_the_same_run(tmp_path: Path) -> None:
    left = folder(tmp_path / "l", [{"step": 1, "loss": 5.0, "samples": 11}])
    right = folder(tmp_path / "r", [step(1, 5.0)])
    assert compare_runs(left, right).other_samples == (1,)


def test_empty_runs_have_no_largest_difference(tmp_path: Path) -> None:
    compared = compare_runs(folder(tmp_path / "l", []), folder(tmp_path / "r", []))
    assert compared.largest is None
    assert compared.largest_validation is None


def test_a_line_still_being_written_is_left_out(tmp_path: Path) -> None:
    path = folder(tmp_path / "l", [step(1, 5.0)])
    with (path / "steps.jsonl").open("a") as stream:
        stream.write('{"step": 2, "lo')
    assert [record["step"] for record in read_run(path).steps] == [1]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('{"step": 1, "loss": 2}\n{"step": \n', "steps.jsonl: line 2 is not JSON"),
        ('{"loss": 2}\n', "steps.jsonl: line 1 has no step"),
        ("[]\n", "steps.jsonl: line 1 has no step and no loss"),
    ],
)
def test_files_that_are_wrong_are_named(tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / "steps.jsonl").write_text(text)
    with pytest.raises(BadInput, match=complaint):
        read_run(tmp_path)


def test_a_folder_without_a_run_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"no steps\.jsonl here"):
        read_run(tmp_path)
