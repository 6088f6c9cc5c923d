"""Runs that end before they are done, and go on from what they have saved."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

STEPS = 30
SAVING = {"every": 5, "keep": 3, "final": True}
GONE_S = 15.0


def tail_of(run: Any, reference: Any, elastic: Any, steps: int = STEPS) -> None:
    """The whole log, across both runs, is that of the run that nothing happened to."""
    elastic.assert_same_training(run, reference, steps=steps)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "checkpoints").glob("step-*"))


def end_by_hand(step: int) -> Any:
    def during(live: Any) -> None:
        live.wait_step(step)
        os.kill(live.launcher, signal.SIGTERM)

    return during


@pytest.mark.parametrize("shape", [(2, 3), (3, 2), (1, 4), (1, 1)], ids=str)
def test_a_run_ended_by_hand_goes_on_at_any_shape(
    lab: Any, elastic: Any, reference: Any, shape: tuple[int, int]
) -> None:
    """It leaves a checkpoint of its very last step, so nothing is done again either."""
    job = lab.job(checkpoint=SAVING, run={"steps": 500})
    first = lab.train(job, during=end_by_hand(8))
    assert first.status == 3, first.stderr
    last = first.last_step()
    assert first.summary["reason"] == f"interrupted by SIGTERM after step {last}"
    assert f"step-{last:08d}" in names(first.folder)
    replicas, degree = shape
    other = lab.job(checkpoint=SAVING, parallel={"replicas": replicas, "degree": degree})
    run = lab.train(other, out=first.folder, options=["--resume"])
    if last >= STEPS:
        pytest.skip(f"the run was at step {last} before it heard the signal")
    assert run.status == 0, run.stderr
    tail_of(run, reference, elastic)
    (resumed,) = run.of_kind("resumed")
    assert f"after step {last}" in resumed["reason"]
    assert len(names(run.folder)) <= SAVING["keep"]
    assert (run.folder / "checkpoints" / "latest").resolve().name == f"step-{STEPS:08d}"


def test_two_saves_in_a_row_do_not_drift(lab: Any, elastic: Any, reference: Any) -> None:
    """Ended and resumed again and again: every sample once, the curve that of one run."""
    out = lab.out()
    job = lab.job(checkpoint=SAVING)
    for number in range(3):
        options = ["--resume"] if number else []
        lab.train(job, out=out, options=[*options, "--steps", str(8 * (number + 1))])
    run = lab.train(job, out=out, options=["--resume"])
    assert run.status == 0, run.stderr
    tail_of(run, reference, elastic)


def test_the_launcher_is_killed_and_the_run_goes_on_where_it_was(
    lab: Any, launch: Any, elastic: Any, reference: Any
) -> None:
    """The host of the store dies: the ranks write what they hold before they leave."""
    job = lab.job(checkpoint={"every": 0, "final": True}, run={"steps": STEPS})
    command = launch(job)
    command.live.wait_step(7)
    os.kill(command.process.pid, signal.SIGKILL)
    assert command.left_behind(GONE_S) == []
    logged = command.live.last_step()
    run = lab.train(job, out=command.live.folder, options=["--resume"])
    assert run.status == 0, run.stderr
    tail_of(run, reference, elastic)
    (rescued,) = run.of_kind("rescued")
    assert rescued["step"] >= logged
    assert not (run.folder / "checkpoints" / "rescue").exists()


def test_the_launcher_is_killed_while_a_failure_is_dealt_with(
    lab: Any, launch: Any, elastic: Any, reference: Any
) -> None:
    """A GPU is lost, and before that is dealt with the launcher: the others held every unit."""
    job = lab.job(checkpoint={"every": 0, "final": True}, run={"steps": STEPS})
    command = launch(job, fails=["0/1@6"])
    command.live.wait_events("failed")
    os.kill(command.process.pid, signal.SIGKILL)
    assert command.left_behind(GONE_S) == []
    logged = command.live.last_step()
    run = lab.train(job, out=command.live.folder, options=["--resume"])
    assert run.status == 0, run.stderr
    tail_of(run, reference, elastic)
    (rescued,) = run.of_kind("rescued")
    assert rescued["step"] >= logged


def test_the_launcher_and_a_gpu_die_in_the_same_moment(
    lab: Any, launch: Any, elastic: Any, reference: Any
) -> None:
    """Every unit is written twice, so nothing is lost with the GPU."""
    job = lab.job(checkpoint={"every": 0, "final": True}, run={"steps": STEPS})
    command = launch(job)
    command.live.wait_step(7)
    gpu = command.live.pids()["1/0"][-1]
    os.kill(command.process.pid, signal.SIGSTOP)  # that it can tell nobody
    os.kill(gpu, signal.SIGKILL)
    os.kill(command.process.pid, signal.SIGKILL)
    assert command.left_behind(GONE_S) == []
    logged = command.live.last_step()
    run = lab.train(job, out=command.live.folder, options=["--resume"])
    assert run.status == 0, run.stderr
    tail_of(run, reference, elastic)
    (rescued,) = run.of_kind("rescued")
    assert rescued["step"] >= logged


@pytest.mark.parametrize("replicas", [1, 2])
def test_units_that_nobody_holds_come_from_the_newest_checkpoint(
    lab: Any, elastic: Any, reference: Any, replicas: int
) -> None:
    """Optimizer state lives in one place of each replica and those places die: no new start, and it
    is told."""
    parallel = {"replicas": replicas, "degree": 3}
    job = lab.job(checkpoint={"every": 4, "final": False}, parallel=parallel)
    victims = [f"{replica}/1" for replica in range(replicas)]

    def during(live: Any) -> None:
        live.wait_events("checkpoint", 2)
        for gpu in victims:
            live.kill(gpu)

    run = lab.train(job, during=during)
    assert run.status == 0, run.stderr
    tail_of(run, reference, elastic)
    (fallback,) = run.of_kind("fallback")
    assert "no living GPU holds these units" in fallback["reason"]
    assert "step-000000" in fallback["reason"]
    failed = run.of_kind("failed")
    assert sorted(event["gpu"] for event in failed) == victims
    assert fallback["steps_lost"] == max(e["step"] for e in failed) - 1 - fallback["step"]
    assert all(len(pids) == 1 for pids in run.pids().values())


def damage(folder: Path, how: str) -> None:
    data = next(folder.glob("*.distcp"))
    if how == "flipped":
        content = bytearray(data.read_bytes())
        content[len(content) // 2] ^= 1
        data.write_bytes(content)
    elif how == "cut":
        os.truncate(data, data.stat().st_size // 2)
    else:
        (folder / "manifest.json").unlink()


@pytest.mark.parametrize("how", ["flipped", "cut", "without a manifest"])
def test_a_damaged_checkpoint_is_told_by_name_and_the_one_before_is_used(
    lab: Any, elastic: Any, reference: Any, how: str
) -> None:
    job = lab.job(checkpoint=SAVING)
    first = lab.train(job, options=["--steps", "12"])
    newest, before = names(first.folder)[-1], names(first.folder)[-2]
    damage(first.folder / "checkpoints" / newest, how)
    run = lab.train(job, out=first.folder, options=["--resume"])
    assert run.status == 0, run.stderr
    tail_of(run, reference, elastic)
    (rejected,) = run.of_kind("checkpoint_rejected")
    assert newest in rejected["reason"]
    (resumed,) = run.of_kind("resumed")
    assert before in resumed["reason"]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 300 kB, where this user may make one."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = shutil.which("mount")
    if mount is None or os.geteuid() != 0:
        pytest.skip("only root may mount a file system")
    options = ["-t", "tmpfs", "-o", "size=300k", "tmpfs", str(folder)]
    if subprocess.run([mount, *options], capture_output=True, check=False).returncode:
        pytest.skip("this machine does not let us mount a file system")
    yield folder
    ctypes.CDLL(None).umount2(str(folder).encode(), 2)


def test_a_full_disk_costs_checkpoints_and_no_step(
    lab: Any, elastic: Any, reference: Any, small_disk: Path
) -> None:
    saving = {"every": 5, "final": True, "folder": str(small_disk)}
    run = lab.train(lab.job(checkpoint=saving))
    assert run.status == 0, run.stderr
    elastic.assert_same_training(run, reference)
    said = run.of_kind("checkpoint_failed")
    assert said
    assert "No space left" in said[0]["reason"]
    assert [path for path in small_disk.iterdir() if path.name.endswith(".part")] == []


def test_another_model_or_other_data_are_refused(lab: Any) -> None:
    """One line that names the key and both numbers, and nothing is touched."""
    job = lab.job(checkpoint=SAVING)
    first = lab.train(job, options=["--steps", "6"])
    before = (first.folder / "steps.jsonl").read_bytes()
    for changes, words in (
        ({"model": {"hidden": 96}}, ("[model] hidden = 96", "48")),
        ({"batch": {"sequences": 8}}, ("[batch] sequences = 8", "6")),
        ({"run": {"seed": 9}}, ("[run] seed = 9", "1")),
    ):
        run = lab.train(
            lab.job(checkpoint=SAVING, **changes), out=first.folder, options=["--resume"]
        )
        assert run.status == 2, run.stderr
        (line,) = run.stderr.splitlines()
        assert all(word in line for word in words), line
    assert (first.folder / "steps.jsonl").read_bytes() == before


def test_a_new_run_does_not_take_the_place_of_saved_ones(lab: Any) -> None:
    job = lab.job(checkpoint=SAVING)
    first = lab.train(job, options=["--steps", "6"])
    for name in ("steps.jsonl", "events.jsonl", "summary.json"):
        (first.folder / name).unlink()
    run = lab.train(job, out=first.folder)
    assert run.status == 2
    assert "checkpoints" in run.stderr
    assert names(first.folder)


def test_resume_without_anything_begins_at_the_beginning(
    lab: Any, elastic: Any, reference: Any
) -> None:
    """So a batch system may always pass --resume."""
    run = lab.train(lab.job(), options=["--resume"])
    assert run.status == 0, run.stderr
    tail_of(run, reference, elastic)


def test_a_last_checkpoint_is_written_although_a_rank_hangs(
    lab: Any, elastic: Any, reference: Any
) -> None:
    """Who ends a run does not wait for hang_timeout_s; the other replica has everything."""
    sent_s = [0.0]

    def during(live: Any) -> None:
        live.wait_step(5)
        os.kill(live.pids()["1/1"][0], signal.SIGSTOP)
        time.sleep(0.3)
        os.kill(live.launcher, signal.SIGTERM)
        sent_s[0] = time.monotonic()

    job = lab.job(checkpoint={"final": True}, run={"steps": 500})
    run = lab.train(job, during=during)
    took_s = time.monotonic() - sent_s[0]
    assert run.status == 3
    assert took_s < 20.0
    assert names(run.folder) == [f"step-{run.last_step():08d}"]
    assert [pid for pids in run.pids().values() for pid in pids if psutil.pid_exists(pid)] == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=lambda n: n.name)
def test_a_signal_to_every_process_leaves_a_checkpoint_too(
    lab: Any, launch: Any, elastic: Any, reference: Any, number: signal.Signals
) -> None:
    """As a batch system sends it, or a terminal that closes."""
    command = launch(lab.job(checkpoint={"final": True}))
    command.live.wait_step(6)
    os.killpg(command.process.pid, number)
    first = command.wait()
    assert first.status == 3, first.stderr
    last = first.last_step()
    assert names(first.folder) == [f"step-{last:08d}"]
    assert first.of_kind("failed") == []
    run = lab.train(lab.job(), out=first.folder, options=["--resume"])
    assert run.status == 0, run.stderr
    tail_of(run, reference, elastic)
