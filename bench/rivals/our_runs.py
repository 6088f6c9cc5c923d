"""The small job under `nonuniform train`: kept alive through the failure, or stopped and restarted.

In: output folder. Out: commits and dropped attempts. Both rows start the program as a person
would, as processes of their own, and are read from outside by what they write to steps.jsonl.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from rivals.outcome import Commit, busy_gpus
from rivals.small_job import DEGREE, VICTIM, Times, small_job
from rivals.watching import Row, Tail

LIMIT_S = 180.0
STOP_S = 60.0
_PROGRAM = (sys.executable, "-c", "from nonuniform.cli import main; main()")


def run_live(folder: Path, times: Times) -> tuple[list[Commit], int]:
    """One process dies; the run goes on by itself."""
    with training(write_job(folder, small_job(times.steps)), folder / "run") as process:
        tail = until_step(folder, process, times.kill_after)
        times.wait_into_step(tail.rows)
        os.kill(pid_of(folder / "run" / "events.jsonl", VICTIM), signal.SIGKILL)
        tail.until(lambda rows: _reached(rows, times.steps), lambda: ended(process), LIMIT_S)
    if not _reached(tail.rows, times.steps):
        raise RuntimeError(f"nonuniform: the run did not reach step {times.steps}")
    commits = [_commit(row, int(row["generation"])) for row in tail.rows]
    # The ranks begin a step as soon as the last one is committed, so one was under way.
    return commits, 1


def run_restart(folder: Path, times: Times) -> tuple[list[Commit], int]:
    """One GPU is gone, so the job is stopped and started again from its last checkpoint, with the
    largest degree that leaves all replicas equal: one smaller."""
    checkpoints = f"\n[checkpoint]\nevery = {times.checkpoint_every}\nfinal = false\n"
    job = write_job(folder, small_job(times.steps, more=checkpoints))
    with training(job, folder / "run") as process:
        first = until_step(folder, process, times.kill_after)
        times.wait_into_step(first.rows)
        process.send_signal(signal.SIGTERM)
        first.until(lambda rows: False, lambda: ended(process), STOP_S)
    smaller = write_job(folder, small_job(times.steps, DEGREE - 1, checkpoints))
    second = Tail(folder / "run" / "steps.jsonl")
    with training(smaller, folder / "run", "--resume") as process:
        second.until(lambda rows: _reached(rows, times.steps), lambda: ended(process), LIMIT_S)
    if not _reached(second.rows, times.steps):
        raise RuntimeError(f"restart: the resumed run did not reach step {times.steps}")
    runs = ((first, 0), (second, 1))
    return [_commit(row, number) for tail, number in runs for row in tail.rows], 1


def can_resume() -> bool:
    """Whether this version of `nonuniform train` knows `--resume`."""
    shown = subprocess.run(
        [*_PROGRAM, "train", "--help"], capture_output=True, text=True, timeout=STOP_S, check=False
    )
    return "--resume" in shown.stdout


@contextlib.contextmanager
def training(job: Path, out: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """The running program; what it says goes to a file beside the job."""
    command = [*_PROGRAM, "train", str(job), "--out", str(out), "--quiet", *options]
    with open(job.parent / "said.log", "ab") as said:
        process = subprocess.Popen(command, stdout=said, stderr=said)
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def until_step(folder: Path, process: subprocess.Popen[bytes], step: int) -> Tail:
    tail = Tail(folder / "run" / "steps.jsonl")
    if not tail.until(lambda rows: _reached(rows, step), lambda: ended(process), LIMIT_S):
        said = (folder / "said.log").read_text(encoding="utf-8").strip()
        raise RuntimeError(f"nonuniform ended before step {step}: {said}")
    return tail


def write_job(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "JOB.toml"
    path.write_text(text, encoding="utf-8")
    return path


def _reached(rows: list[Row], step: int) -> bool:
    return any(row["step"] >= step for row in rows)


def ended(process: subprocess.Popen[bytes]) -> bool:
    return process.poll() is not None


def _commit(row: Row, membership: int) -> Commit:
    busy = busy_gpus(row["degrees"], row["batch_shares"])
    return Commit(row["seen_s"], row["step"], row["samples"], busy, membership)


def pid_of(events: Path, gpu: str) -> int:
    rows = [json.loads(line) for line in events.read_text(encoding="utf-8").splitlines()]
    lives = [e["pid"] for e in rows if e["kind"] in ("started", "returned") and e["gpu"] == gpu]
    return int(lives[-1])
