"""The live picture, rendered to text and read like a person would."""

from __future__ import annotations

import io
from types import ModuleType
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from nonuniform.view.screen import Look, screen
from nonuniform.view.state import RunState, after_end, after_event, after_start, after_step

FOLD = {
    "on_start": after_start,
    "on_step": after_step,
    "on_event": after_event,
    "on_end": after_end,
}


def state_at(calls: list[tuple[str, dict[str, Any]]], step: int, kind: str = "") -> RunState:
    """Before `step` was committed, and before what happened on the way; with `kind`, right after
    the first such event of that step."""
    state = RunState()
    for name, record in calls:
        if not kind and name == "on_step" and record["step"] == step:
            break
        state = FOLD[name](state, record)
        if kind and record.get("kind") == kind and record.get("step") == step:
            break
    return state


def text_of(state: RunState, look: Look | None = None, now_s: float | None = None) -> str:
    look = look or Look()
    console = Console(record=True, width=look.width, file=io.StringIO(), color_system=None)
    console.print(screen(state, state.time_s if now_s is None else now_s, look))
    return console.export_text()


def row_of(text: str, replica: int) -> list[str]:
    rows = [line.split() for line in text.splitlines()]
    return next(row for row in rows if row[:1] == [str(replica)] and "of" in row)


def test_it_shows_steps_loss_degrees_and_the_last_incidents(rehearsal: ModuleType) -> None:
    text = text_of(state_at(rehearsal.Rehearsal().calls(), 28), Look(width=120, height=40))
    assert "27/60" in text
    assert "loss     2.9570   validation 3.2747 (step 20)" in text
    assert row_of(text, 0)[:8] == ["0", "■■■■", "4", "of", "4", "8", "of", "12"]
    assert row_of(text, 1)[:8] == ["1", "□■◇■", "2", "of", "4", "4", "of", "12"]
    assert "GPU 1/0 died at step 20: replica 1 goes on at degree 2 of 4" in text
    assert "next step committed after 0.41 s in all" in text


def test_marks_stand_below_the_steps_they_belong_to(rehearsal: ModuleType) -> None:
    look = Look(width=70)  # 60 columns for 60 steps
    lines = text_of(state_at(rehearsal.Rehearsal().calls(), 61), look).splitlines()
    marks = next(line for line in lines if line.startswith("GPUs "))[9:]
    assert [step for step, mark in enumerate(marks, 1) if mark == "▼"] == [12, 20]
    assert [step for step, mark in enumerate(marks, 1) if mark == "▲"] == [34, 42]


def test_while_it_regroups_the_clock_counts(rehearsal: ModuleType) -> None:
    state = state_at(rehearsal.Rehearsal().calls(), 12, kind="failed")
    text = text_of(state, now_s=state.stories[-1].time_s + 0.3)
    assert "regrouping for 0.3 s" in text
    assert row_of(text, 1)[:5] == ["1", "■■□■", "3", "of", "4"]


def test_a_gpu_that_warms_up_looks_different(rehearsal: ModuleType) -> None:
    calls = rehearsal.Rehearsal().calls()
    assert row_of(text_of(state_at(calls, 27)), 1)[1] == "□■□■"
    text = text_of(state_at(calls, 33))
    assert row_of(text, 1)[1] == "□■◇■"
    assert "1 warming up" in text


def test_a_dissolved_replica_shows_its_spares(rehearsal: ModuleType) -> None:
    lost = [rehearsal.Incident("failed", f"1/{index}", 9) for index in range(3)]
    text = text_of(state_at(rehearsal.Rehearsal(incidents=lost).calls(), 12))
    assert row_of(text, 1)[:5] == ["1", "□□□▪", "0", "of", "4"]
    row = next(line for line in text.splitlines() if line.split()[:2] == ["1", "□□□▪"])
    assert row.split() == ["1", "□□□▪", "0", "of", "4", "-", "-", "dissolved,", "1", "spare"]


def test_a_dissolved_replica_of_many_gpus_shows_no_working_one(rehearsal: ModuleType) -> None:
    lost = [rehearsal.Incident("failed", f"1/{index}", 9) for index in range(9)]
    plan = rehearsal.Rehearsal(degree=72, min_degree=64, incidents=lost)
    text = text_of(state_at(plan.calls(), 12))
    assert set(row_of(text, 1)[1]) == {"▪", "□"}
    assert "dissolved, 63 spares" in text


def test_a_replica_without_a_living_gpu_has_no_spares() -> None:
    state = after_start(RunState(), {"replicas": 2, "degree": 2, "min_degree": 1, "steps": 10})
    for gpu in ("1/0", "1/1"):
        state = after_event(state, {"kind": "failed", "gpu": gpu, "step": 1})
    state = after_step(state, {"step": 1, "loss": 3.0, "degrees": [2, 0], "batch_shares": [4, 0]})
    state = after_event(state, {"kind": "recovery", "gpu": "1/0", "step": 1})
    assert row_of(text_of(state), 1) == ["1", "□□", "0", "of", "2", "-", "-", "dissolved"]


def test_short_lists_of_degrees_and_shares_are_survived() -> None:
    state = after_start(RunState(), {"replicas": 3, "degree": 2, "min_degree": 1, "steps": 10})
    for step in (1, 2):
        record = {"step": step, "time_s": float(step), "loss": 3.0, "tokens": 64}
        state = after_step(state, {**record, "degrees": [2], "batch_shares": [4]})
    assert row_of(text_of(state), 2)[:6] == ["2", "■■", "2", "of", "2", "-"]


def test_the_end_is_shown(rehearsal: ModuleType) -> None:
    calls = rehearsal.Rehearsal().calls()
    assert "ended at 0:24" in text_of(state_at(calls, 61))
    failed = after_end(state_at(calls, 30), {"status": "failed", "reason": "no replica is left"})
    assert "stopped at" in text_of(failed)
    assert "stopped after step 29: no replica is left" in text_of(failed)


@pytest.mark.parametrize("width", [60, 80, 120, 200])
@pytest.mark.parametrize("step", [1, 12, 38, 61])
def test_nothing_is_wider_than_the_terminal(rehearsal: ModuleType, width: int, step: int) -> None:
    text = text_of(state_at(rehearsal.Rehearsal().calls(), step), Look(width=width))
    assert max(cell_len(line) for line in text.splitlines()) <= width


@pytest.mark.parametrize("step", range(1, 62, 4))
def test_it_fits_into_24_lines_of_80(rehearsal: ModuleType, step: int) -> None:
    text = text_of(state_at(rehearsal.Rehearsal().calls(), step), Look(80, 24))
    assert len(text.splitlines()) <= 24
    assert "…" not in text


def test_many_replicas_of_many_gpus_fit_and_hurt_ones_are_shown(rehearsal: ModuleType) -> None:
    plan = rehearsal.Rehearsal(
        steps=1000,
        replicas=16,
        degree=72,
        min_degree=64,
        sequences=512,
        incidents=[rehearsal.Incident("failed", gpu, 100) for gpu in ("3/7", "3/9", "11/70")],
    )
    text = text_of(state_at(plan.calls(), 200), Look(80, 24))
    assert len(text.splitlines()) <= 24
    assert row_of(text, 3)[2:5] == ["70", "of", "72"]
    assert row_of(text, 11)[1].endswith("■□")
    assert "and 9 more replicas" in text


def test_a_terminal_without_unicode_gets_ascii(rehearsal: ModuleType) -> None:
    state = state_at(rehearsal.Rehearsal().calls(), 33)
    look = Look(80, 24, ascii_only=True)
    console = Console(width=80, file=io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    console.print(screen(state, state.time_s, look))  # would raise UnicodeEncodeError
    assert row_of(text_of(state, look), 1)[1] == "_#~#"


def test_before_anything_happened() -> None:
    assert "nothing has happened yet" in text_of(RunState())
