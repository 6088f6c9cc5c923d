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
from nonuniform.layout.cuts import ModelPlan
from nonuniform.protocol.commit import WorkOptions, work_after
from nonuniform.train.assemble import assemble, cluster_of
from nonuniform.train.checkpoint.identity import Identity
from nonuniform.train.checkpoint.shelf import Shelf
from nonuniform.train.chronicle import Chronicle
from nonuniform.train.data import Corpus, job_windows
from nonuniform.train.device import decide_device
from nonuniform.train.interrupt import Interrupt
from nonuniform.train.journal import RunFolder
from nonuniform.train.lock import RunLock
from nonuniform.train.membership import host_store
from nonuniform.train.memory import check_fit
from nonuniform.train.resume import Beginning, find_beginning
from nonuniform.train.roster import JobSetup
from nonuniform.train.seal import new_secret
from nonuniform.train.session import job_plan
from nonuniform.train.spawn import Spawner
from nonuniform.train.worker import RESCUE_S, WorkerOrders, worker_main
from nonuniform.view.observer import NullObserver, RunObserver

# torch.optim imports torch._dynamo at its first use: 1.7 s in every process, once here instead
NOTICE_S = 5.0  # processes of a run that has just ended may take that long to notice
PRELOAD = ["nonuniform.train.shielded", "torch._dynamo", "nonuniform.train.worker"]


def train(
    job: JobConfig,
    out: Path,
    schedule: Sequence[ScheduledEvent] = (),
    overwrite: bool = False,
    observer: RunObserver | None = None,
    resume: bool = False,
    target: Callable[[WorkerOrders], None] = worker_main,
) -> int:
    """Run the job. Raises BadInput before anything is started or overwritten, RunFailed when the
    run could not go on; `summary.json` says the same. `target` is what each process runs."""
    plan = job_plan(job)
    corpus = Corpus.open(job.data.text, Path(job.data.root))
    windows = job_windows(job, corpus)
    if job.run.val_every and not windows.validation_ids(job.run.val_sequences):
        raise BadInput(
            f"[data] holdout = {job.data.holdout:g}: leaves no text to validate on, but "
            f"[run] val_every = {job.run.val_every}"
        )
    device = decide_device(job, torch.cuda.device_count())
    check_fit(job, plan, device)
    store, port = host_store(job.run.address, job.run.port)
    shelf = Shelf(out.resolve() / job.checkpoint.folder, job.checkpoint.keep)
    with Interrupt() as interrupt, _lock(out) as lock:
        lock.take(RESCUE_S + NOTICE_S if resume else NOTICE_S)
        identity = Identity.of(job, corpus)
        beginning = _find_beginning(shelf, identity, plan, resume, overwrite)
        folder = _open_folder(out, shelf, beginning, resume, overwrite)
        setup = JobSetup(
            job=job,
            plan=plan,
            corpus=corpus,
            windows=windows,
            port=port,
            secret=new_secret(),
            logs=folder.logs,
            device=device,
            checkpoints=shelf.folder,
        )
        chronicle = Chronicle(folder, observer or NullObserver(), job.parallel.replicas)

        def run() -> str:
            chronicle.start(_info(setup, out))
            _tell_beginning(chronicle, setup, beginning)
            position, options = beginning.position, WorkOptions(job.run.steps, job.run.val_every)
            if work_after(position.step, position.validated, options).kind == "done":
                return f"all {job.run.steps} steps were committed before"
            spawner = Spawner(PRELOAD)
            launcher = assemble(
                setup, store, beginning, chronicle, schedule, interrupt, spawner, target
            )
            return launcher.run()

        _close_books_after(run, chronicle, folder)
    return 0


def _lock(out: Path) -> RunLock:
    try:
        out.mkdir(parents=True, exist_ok=True)
        return RunLock(out)
    except OSError as error:
        raise BadInput(f"--out {out}: {error.strerror}") from error


def _find_beginning(
    shelf: Shelf, identity: Identity, plan: ModelPlan, resume: bool, overwrite: bool
) -> Beginning:
    """Where to begin. A run that starts anew leaves the checkpoints of another one alone."""
    try:
        shelf.prepare()
        if resume:
            return find_beginning(shelf, identity, plan)
        steps = shelf.steps()
    except OSError as error:
        where = error.filename or shelf.folder
        raise BadInput(f"[checkpoint] folder: {where}: {error.strerror}") from error
    if steps and not overwrite:
        raise BadInput(
            f"{shelf.folder}: holds checkpoints (the newest of step {steps[-1]}); go on from it by "
            "--resume, choose another --out, or replace them with --overwrite"
        )
    return Beginning()


def _open_folder(
    out: Path, shelf: Shelf, beginning: Beginning, resume: bool, overwrite: bool
) -> RunFolder:
    if resume:
        return RunFolder.resume(out, beginning.position.step)
    folder = RunFolder.create(out, overwrite)
    shelf.clear()
    return folder


def _tell_beginning(chronicle: Chronicle, setup: JobSetup, beginning: Beginning) -> None:
    """What was found, and the lines that the log lacks of what is committed."""
    step = beginning.position.step
    for kind, reason in beginning.notes:
        if kind == "resumed":
            chronicle.resume(step, reason)
        else:
            chronicle.event(kind, reason, step=step)
    for missing in range(chronicle.steps + 1, step + 1):
        known = beginning.steps.get(missing)
        if known is None:
            chronicle.skip_to(step)
            return
        ids = setup.windows.step_ids(missing)
        shown = ids if setup.job.run.log_sample_ids else None
        chronicle.remembered_step(known, len(ids), shown)


def _close_books_after(run: Callable[[], str], chronicle: Chronicle, folder: RunFolder) -> None:
    """However the run ends, the summary says it."""
    status, reason = "failed", "unexpected error"
    try:
        status, reason = "done", run()
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
        "gpus": [str(gpu) for gpu in cluster_of(setup.job).healthy()],
        "out": str(out),
        "device": setup.device,
    }
