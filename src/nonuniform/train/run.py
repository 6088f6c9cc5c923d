"""`nonuniform train`: check everything, then start the launcher, then close the books.

In: a job, an output folder, scripted events, an observer. Out: the exit status; the files of the
contract in the folder, the summary also when the run fails.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from nonuniform.config import JobConfig, ScheduledEvent
from nonuniform.errors import BadInput, NonuniformError, RunFailed
from nonuniform.train.chronicle import Chronicle
from nonuniform.train.data import Corpus, job_windows
from nonuniform.train.device import decide_device
from nonuniform.train.interrupt import Interrupt
from nonuniform.train.journal import RunFolder
from nonuniform.train.launcher import Launcher
from nonuniform.train.membership import Board, host_store
from nonuniform.train.roster import JobSetup
from nonuniform.train.session import job_plan
from nonuniform.train.spawn import Spawner
from nonuniform.view.observer import NullObserver, RunObserver

# torch.optim imports torch._dynamo at its first use: 1.7 s in every process, once here instead
PRELOAD = ["torch._dynamo", "nonuniform.train.worker"]


def train(
    job: JobConfig,
    out: Path,
    schedule: Sequence[ScheduledEvent] = (),
    overwrite: bool = False,
    observer: RunObserver | None = None,
) -> int:
    """Run the job. Raises BadInput before anything is started or overwritten, RunFailed when the
    run could not go on; `summary.json` says the same."""
    plan = job_plan(job)
    corpus = Corpus.open(job.data.text, Path(job.data.root))
    windows = job_windows(job, corpus)
    if job.run.val_every and not windows.validation_ids(job.run.val_sequences):
        raise BadInput(
            f"[data] holdout = {job.data.holdout:g}: leaves no text to validate on, but "
            f"[run] val_every = {job.run.val_every}"
        )
    device = decide_device(job, torch.cuda.device_count())
    store, port = host_store(job.run.address, job.run.port)
    with Interrupt() as interrupt:
        folder = RunFolder.create(out, overwrite)
        setup = JobSetup(job, plan, corpus, windows, port, folder.logs, device)
        chronicle = Chronicle(folder, observer or NullObserver(), job.parallel.replicas)

        def run() -> None:
            chronicle.start(_info(setup, out))
            spawner = Spawner(PRELOAD)
            Launcher(setup, Board(store), chronicle, schedule, interrupt, spawner).run()

        _close_books_after(run, chronicle, folder)
    return 0


def _close_books_after(run: Callable[[], None], chronicle: Chronicle, folder: RunFolder) -> None:
    """However the run ends, the summary says it."""
    status, reason = "failed", "unexpected error"
    try:
        run()
        status, reason = "done", f"all {chronicle.steps} steps committed"
        chronicle.event("finished", reason, step=chronicle.steps)
    except NonuniformError as error:
        reason = str(error)
        chronicle.event("ended", reason, step=chronicle.steps)
        raise
    except BaseException as error:  # a fault of ours: one line for the person, the rest for us
        reason = f"{type(error).__name__}: {error}"
        (folder.logs / "launcher.log").write_text(traceback.format_exc(), encoding="utf-8")
        raise RunFailed(f"{reason} (see {folder.logs / 'launcher.log'})") from error
    finally:
        chronicle.close(status, reason)


def _info(setup: JobSetup, out: Path) -> dict[str, object]:
    parallel = setup.job.parallel
    return {
        "replicas": parallel.replicas,
        "degree": parallel.degree,
        "min_degree": parallel.min_degree,
        "steps": setup.job.run.steps,
        "parameters": sum(tensor.elements for tensor in setup.plan.tensors),
        "gpus": [f"{r}/{i}" for r in range(parallel.replicas) for i in range(parallel.degree)],
        "out": str(out),
    }
