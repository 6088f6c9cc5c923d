"""The demo from top to bottom, on invented runs."""

from __future__ import annotations

import io
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from rich.console import Console

from nonuniform.demo import Runtime, run
from nonuniform.demo import job as demo_job
from nonuniform.errors import BadInput
from nonuniform.view.picture import HINT


def runtime(
    rehearsal: ModuleType, change: Callable[[list[Any]], Any] = lambda calls: None, status: int = 0
) -> Runtime:
    """Runs that play the script; `change` falsifies the one with failures."""

    def parse(fails: list[str], returns: list[str], job: object) -> list[Any]:
        kinds = [("failed", flag) for flag in fails] + [("returned", flag) for flag in returns]
        events = []
        for kind, flag in kinds:
            gpu, step = flag.removeprefix("gpu=").split("@step=")
            events.append(rehearsal.Incident(kind, gpu, int(step)))
        return events

    def train(job: object, out: Path, schedule: list[Any], **more: Any) -> int:
        assert more["overwrite"] is True
        calls = rehearsal.Rehearsal(incidents=schedule, noise=1e-6 * bool(schedule)).calls()
        if schedule:
            change(calls)
        rehearsal.write(calls, out)
        rehearsal.play(calls, more["observer"])
        return status

    return Runtime(lambda path: tomllib.loads(path.read_text()), parse, train)


@pytest.fixture
def no_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes a second, which only one test needs to spend."""
    monkeypatch.setattr("nonuniform.demo.play.draw_run", lambda runs, out: HINT)


def play(tmp_path: Path, parts: Runtime, width: int = 100) -> tuple[int, str]:
    console = Console(file=io.StringIO(), width=width)
    status = run(tmp_path, console=console, runtime=parts)
    assert isinstance(console.file, io.StringIO)
    return status, console.file.getvalue()


@pytest.mark.usefixtures("no_picture")
def test_it_tells_the_whole_story(rehearsal: ModuleType, tmp_path: Path) -> None:
    status, text = play(tmp_path, runtime(rehearsal))
    assert status == 0
    story = " ".join(text.split())
    for phrase in (
        "8 processes play 8 GPUs",
        "1,179,040 parameters",
        "GPU 1/2 is killed at step 12 and GPU 1/0 is killed at step 20",
        "First run: GPUs are killed and come back",
        "GPU 1/2 died at step 12: replica 1 goes on at degree 3 of 4",
        "Second run: the same job, undisturbed",
        "12 3.825543 3.825543 0 4 3 1/2 lost",
        "1/2 12 4 ms 80 ms 30 ms 1.1 MiB 0.29 s 0.41 s",
        "1/2 34 - 80 ms 30 ms 1.1 MiB 20 ms 0.14 s",
        "differ by at most 1.0e-06",
        "All 60 steps were committed once in both runs, with the same 720 samples",
        "the next step came within 0.41 s, each of the 2 times",
    ):
        assert phrase in story
    assert (tmp_path / "with-failures" / "steps.jsonl").is_file()
    assert (tmp_path / "uninterrupted" / "steps.jsonl").is_file()


@pytest.mark.usefixtures("no_picture")
def test_all_rows_around_an_incident_are_shown(rehearsal: ModuleType, tmp_path: Path) -> None:
    _, text = play(tmp_path, runtime(rehearsal))
    table = text[text.index("Both loss curves") : text.index("How long training paused")]
    shown = {int(line.split()[0]) for line in table.splitlines() if line[:4].strip().isdigit()}
    assert {1, 11, 12, 13, 19, 20, 21, 27, 28, 29, 33, 34, 35, 36, 50, 60} <= shown
    assert len(shown) < 30


def test_the_picture_is_drawn(rehearsal: ModuleType, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    _, text = play(tmp_path, runtime(rehearsal))
    assert (tmp_path / "demo.png").is_file()
    assert "demo.png: losses" in text


@pytest.mark.usefixtures("no_picture")
@pytest.mark.parametrize("width", [80, 120])
def test_what_it_says_after_the_runs_fits_the_terminal(
    rehearsal: ModuleType, tmp_path: Path, width: int
) -> None:
    _, text = play(tmp_path, runtime(rehearsal), width)
    told = text[text.index("Both loss curves") : text.index("Look at it")]
    assert max(len(line) for line in told.splitlines()) <= width


def diverge(calls: list[Any]) -> None:
    for name, record in calls:
        if name == "on_step" and record["step"] >= 12:
            record["loss"] += 0.02


def lose_samples(calls: list[Any]) -> None:
    for name, record in calls:
        if name == "on_step" and record["step"] == 12:
            record["samples"] = 7


def lose_a_step(calls: list[Any]) -> None:
    calls[:] = [c for c in calls if c[0] != "on_step" or c[1]["step"] != 12]


def repeat_a_step(calls: list[Any]) -> None:
    calls.append(next(c for c in calls if c[0] == "on_step" and c[1]["step"] == 12))


@pytest.mark.usefixtures("no_picture")
@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (diverge, "largest difference is 2.0e-02"),
        (lose_samples, "steps with other samples: 12"),
        (lose_a_step, "steps only the uninterrupted run committed: 12"),
        (repeat_a_step, "steps committed twice: 12"),
    ],
)
def test_runs_that_do_not_agree_are_not_called_equal(
    rehearsal: ModuleType, tmp_path: Path, change: Callable[[list[Any]], None], complaint: str
) -> None:
    status, text = play(tmp_path, runtime(rehearsal, change))
    assert status == 1
    assert "do NOT agree" in text
    assert complaint in " ".join(text.split())


@pytest.mark.usefixtures("no_picture")
def test_a_gpu_that_came_too_late_is_mentioned(rehearsal: ModuleType, tmp_path: Path) -> None:
    def too_late(calls: list[Any]) -> None:
        calls[:] = [c for c in calls if not (c[1].get("kind") == "joined" and c[1]["gpu"] == "1/0")]

    status, text = play(tmp_path, runtime(rehearsal, too_late))
    assert status == 0
    assert "GPU 1/0 had not joined yet when the run ended" in text


def test_a_run_that_stops_ends_the_demo_with_its_reason(
    rehearsal: ModuleType, tmp_path: Path
) -> None:
    def stop(calls: list[Any]) -> None:
        calls[-1][1].update(status="failed", reason="no replica is left")

    status, text = play(tmp_path, runtime(rehearsal, stop, status=3))
    assert status == 3
    assert "could not go on: no replica is left" in text
    assert "Second run" not in text


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    parts = Runtime(lambda path: None, lambda *_: [], lambda *_, **__: 0)
    in_the_way = tmp_path / "file"
    in_the_way.write_text("")
    for out in (in_the_way, in_the_way / "below", Path("/proc/no-such-folder")):
        with pytest.raises(BadInput) as caught:
            run(out, console=Console(file=io.StringIO()), runtime=parts)
        assert str(caught.value).startswith(f"--out {out}: cannot be written to: ")
        assert "\n" not in str(caught.value)


def test_the_job_and_its_script_are_valid_for_train(tmp_path: Path) -> None:
    config = pytest.importorskip("nonuniform.config")
    (tmp_path / "JOB.toml").write_text(demo_job.job_toml())
    job = config.load_job(tmp_path / "JOB.toml")
    fails = [incident.flag for incident in demo_job.FAILS]
    returns = [incident.flag for incident in demo_job.RETURNS]
    assert len(config.parse_schedule(fails, returns, job)) == len(fails) + len(returns)
    assert job.parallel.min_degree == demo_job.MIN_DEGREE


def test_parameters_are_those_of_the_plan() -> None:
    plans = pytest.importorskip("nonuniform.layout.model_plan")
    shape = plans.ModelShape(
        layers=demo_job.LAYERS,
        hidden=demo_job.HIDDEN,
        heads=demo_job.HEADS,
        kv_heads=demo_job.KV_HEADS,
        head_dim=demo_job.HIDDEN // demo_job.HEADS,
        ffn=demo_job.FFN,
        vocab=demo_job.VOCAB,
        tied=True,
    )
    plan = plans.plan_llama(shape, demo_job.DEGREE, demo_job.MIN_DEGREE)
    total = sum(t.rows * t.row_elements for t in plan.tensors)
    assert total == demo_job.parameters()


def test_looking_needs_no_torch() -> None:
    code = "import sys, nonuniform.demo, nonuniform.view; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
