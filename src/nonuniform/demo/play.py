"""The demo from top to bottom: tell, train with failures, train without, compare.

In: a folder. Out: an exit status and, in the folder, JOB.toml, the two runs and a picture.
The runtime is an argument, so that the demo can be tested without it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from nonuniform.demo import job as demo_job
from nonuniform.demo import tell
from nonuniform.errors import BadInput, RunFailed
from nonuniform.view.compare import compare_records
from nonuniform.view.live import choose_observer
from nonuniform.view.picture import draw_run
from nonuniform.view.records import RunRecords, read_run

WITH_FAILURES, UNINTERRUPTED = "with-failures", "uninterrupted"
# Between float32 runs whose sums are formed in another order; AdamW makes such differences grow.
# A lost or repeated sample moves the loss of a step by a hundredth or more.
ROUNDING = 1e-3


@dataclass(frozen=True)
class Runtime:
    """What the demo needs of the rest of the package."""

    load_job: Callable[[Path], Any]
    parse_schedule: Callable[[list[str], list[str], Any], Any]
    train: Callable[..., int]


def installed_runtime() -> Runtime:
    """Imported late: it brings torch, which neither the help text nor a test should wait for."""
    from nonuniform.config import load_job, parse_schedule
    from nonuniform.train.run import train

    return Runtime(load_job, parse_schedule, train)


def run(
    out: Path,
    *,
    console: Console | None = None,
    runtime: Runtime | None = None,
    plain: bool = False,
) -> int:
    """0 when both runs ended and agree up to rounding, 1 when they do not agree, else the exit
    status of the run that could not go on."""
    console = console or Console()
    runtime = runtime or installed_runtime()
    job_file = _write_job(out)
    job = runtime.load_job(job_file)
    fails = [incident.flag for incident in demo_job.FAILS]
    returns = [incident.flag for incident in demo_job.RETURNS]
    tell.introduction(console)
    read = []
    for name, schedule in ((WITH_FAILURES, (fails, returns)), (UNINTERRUPTED, ([], []))):
        tell.chapter(console, name, out / name)
        observer = choose_observer(console, plain)
        events = runtime.parse_schedule(*schedule, job)
        status = runtime.train(job, out / name, events, overwrite=True, observer=observer)
        if status != 0:
            tell.stopped(console, out / name)
            return status
        read.append(read_run(out / name))
    return _report(console, read[0], read[1], out)


def _write_job(out: Path) -> Path:
    path = out / "JOB.toml"
    try:
        out.mkdir(parents=True, exist_ok=True)
        path.write_text(demo_job.job_toml(), encoding="utf-8")
    except OSError as error:
        raise BadInput(f"--out {out}: cannot be written to: {error.strerror}") from None
    return path


def _report(console: Console, ours: RunRecords, theirs: RunRecords, out: Path) -> int:
    if not ours.steps or not theirs.steps:
        raise RunFailed(f"{out}: a run of the demo committed no step")
    compared = compare_records(ours, theirs)
    tell.losses(console, ours, compared)
    tell.recoveries(console, ours)
    agree = tell.verdict(console, ours, compared, ROUNDING)
    picture = out / "demo.png"
    runs = [("with failures", ours.folder), ("uninterrupted", theirs.folder)]
    tell.files(console, out, picture, draw_run(runs, picture))
    return 0 if agree else 1
