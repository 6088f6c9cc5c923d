"""`nonuniform train`: check everything, then start the launcher, then close the books.

In: a job, an output folder, scripted events, an observer. Out: the exit status; the files of the
contract in the folder, the summary also when the run fails.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from nonuniform.config import JobConfig, ScheduledEvent
from nonuniform.errors import BadInput, NonuniformError, RunFailed
from nonuniform.train.chronicle import Chronicle
from nonuniform.train.data import Corpus, WindowOptions, Windows
from nonuniform.train.interrupt import Interrupt
from nonuniform.train.journal import RunFolder
from nonuniform.train.launcher import Launcher
from nonuniform.train.membership import Board, host_store
from nonuniform.train.roster import JobSetup
from nonuniform.train.session import job_plan
from nonuniform.view.observer import NullObserver, RunObserver

LOGS = "workers"  # what each worker prints, by GPU


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
    options = WindowOptions(
        length=job.batch.length,
        sequences=job.batch.sequences,
        seed=job.run.seed,
        holdout=job.data.holdout,
    )
    windows = Windows(corpus, options)
    if job.run.val_every and not windows.validation_ids(job.run.val_sequences):
        raise BadInput(
            f"[data] holdout = {job.data.holdout:g}: leaves no text to validate on, but "
            f"[run] val_every = {job.run.val_every}"
        )
    store, port = host_store(job.run.address, job.run.port)
    with Interrupt() as interrupt:
        folder = RunFolder.create(out, overwrite)
        logs = out.resolve() / LOGS
        logs.mkdir(exist_ok=True)
        setup = JobSetup(job, plan, corpus, windows, port, logs)
        chronicle = Chronicle(folder, observer or NullObserver())
        chronicle.start(_info(setup, out))
        launcher = Launcher(setup, Board(store), chronicle, schedule, interrupt)
        _run(launcher, chronicle)
    return 0


def _run(launcher: Launcher, chronicle: Chronicle) -> None:
    """However the launcher ends, the summary says it."""
    status, reason = "failed", "unexpected error"
    try:
        launcher.run()
        status, reason = "done", f"all {launcher.position.step} steps committed"
        chronicle.event("finished", reason, step=launcher.position.step)
    except NonuniformError as error:
        reason = str(error)
        chronicle.event("ended", reason, step=launcher.position.step)
        raise
    except BaseException as error:
        reason = f"{type(error).__name__}: {error}"
        raise RunFailed(reason) from error
    finally:
        chronicle.close(status, reason, launcher.record.generation)


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
