"""The small job under torchft 0.2: start it, kill a GPU, read what became of it.

In: heartbeat timeout, output folder. Out: commits and dropped attempts. torchft gets its best
case: a Lighthouse that looks every 10 ms, the shortest heartbeat timeout that is stable on this
machine (`lowest_stable`), and, since a replica that lost a rank is of no use to it, a supervisor
that kills the rest of the replica at the instant at which the first process is gone.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rivals.outcome import Commit
from rivals.small_job import DEGREE, REPLICAS, VICTIM, Times, small_job
from rivals.torchft_worker import (
    GO,
    LIGHTHOUSE,
    LOOPBACK,
    LighthouseOrders,
    TorchftOrders,
    lighthouse_main,
    worker_main,
)
from rivals.watching import Tail

from nonuniform.config import JobConfig, load_job
from nonuniform.train.data import Corpus
from nonuniform.train.membership import host_store
from nonuniform.train.run import PRELOAD
from nonuniform.train.spawn import ForkedProcess, Spawner, end_all, wait_any

TICK_MS = 10
TIMEOUTS_MS = (20, 50, 100, 200, 500, 1000, 2000, 5000)
DEFAULT_MS = 5000  # of the Lighthouse, where nobody says anything
START_S, RUN_S = 120.0, 120.0
TRIALS = 3
ATTEMPTS = "attempts.jsonl"


@dataclass(frozen=True)
class Replicas:
    """The running processes: `by_gpu["R/I"]`; `attempts` is the log of replica 0."""

    by_gpu: dict[str, ForkedProcess]
    attempts: Tail

    def of(self, replica: int) -> list[ForkedProcess]:
        return [p for gpu, p in self.by_gpu.items() if gpu.startswith(f"{replica}/")]

    def any_ended(self) -> bool:
        return any(process.exit_status() is not None for process in self.of(0))


@contextlib.contextmanager
def _running(job: JobConfig, folder: Path, timeout_ms: int) -> Iterator[Replicas]:
    """All ranks of all replicas, at their first step."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"  # torchft's group takes the host's name otherwise
    control, control_port = host_store(LOOPBACK, 0)
    stores = [host_store(LOOPBACK, 0) for _ in range(REPLICAS)]
    spawner = Spawner([*PRELOAD, "torchft", "torchft.coordination"])
    started: list[ForkedProcess] = []

    def start(name: str, target: Callable[[Any], None], orders: Any) -> ForkedProcess:
        log = folder / f"{name.replace('/', '-')}.log"
        started.append(spawner.start(name, 0, log, target, orders))
        return started[-1]

    try:
        where = LighthouseOrders(TICK_MS, timeout_ms, control_port)
        start(LIGHTHOUSE, lighthouse_main, where)
        shared = TorchftOrders(
            replica=0,
            label=0,
            job=job,
            corpus=Corpus.open(job.data.text, Path(job.data.root)),
            lighthouse=control.get(LIGHTHOUSE).decode(),
            store_port=0,
            control_port=control_port,
            heartbeat_s=_interval_ms(timeout_ms) / 1000,
            attempts="",
        )
        by_gpu = {
            f"{r}/{i}": start(f"{r}/{i}", worker_main, _orders(shared, (r, i), port, folder))
            for r, (_, port) in enumerate(stores)
            for i in range(DEGREE)
        }
        _release(control, list(by_gpu.values()), folder)
        yield Replicas(by_gpu, Tail(folder / ATTEMPTS))
    finally:
        end_all(started, START_S)


def _orders(
    shared: TorchftOrders, where: tuple[int, int], store_port: int, folder: Path
) -> TorchftOrders:
    """Those of one rank; the first of the replica that stays writes down what happens."""
    replica, label = where
    attempts = str(folder / ATTEMPTS) if where == (0, 0) else ""
    return replace(shared, replica=replica, label=label, store_port=store_port, attempts=attempts)


def _interval_ms(timeout_ms: int) -> int:
    """torchft's own 100 ms at its own timeout; below, so that ten heartbeats fit in."""
    return max(1, min(100, timeout_ms // 10))


def _release(control: Any, processes: list[ForkedProcess], folder: Path) -> None:
    """Let all begin together: the first quorum shall have everybody."""
    deadline = time.monotonic() + START_S
    while int(control.add("ready", 0)) < len(processes):
        if time.monotonic() > deadline or wait_any(processes, 0.01):
            raise RuntimeError(f"torchft: a process did not start: see the logs in {folder}")
    control.set(GO, "1")


def run_with_failure(folder: Path, times: Times, timeout_ms: int) -> tuple[list[Commit], int]:
    """(commits, dropped attempts) of a run in which the victim and then its replica are killed."""
    job = _job(folder, times.steps)
    with _running(job, folder, timeout_ms) as replicas:
        tail = replicas.attempts
        if not tail.until(lambda rows: _committed(rows) >= times.kill_after, _never, RUN_S):
            raise RuntimeError("torchft: ended before the failure")
        if _disturbed(tail.rows):
            raise RuntimeError(f"torchft, before the failure: {_disturbed(tail.rows)}")
        times.wait_into_step(tail.rows)
        threading.Thread(target=_lose, args=(replicas, VICTIM), daemon=True).start()
        whole = tail.until(
            lambda rows: _committed(rows) >= times.steps, replicas.any_ended, RUN_S + START_S
        )
        if not whole:
            raise RuntimeError(f"torchft: replica 0 ended early: see the logs in {folder}")
        return _commits(tail.rows), sum(1 for row in tail.rows if not row["committed"])


def _lose(replicas: Replicas, gpu: str) -> None:
    """Kill a process; whoever supervises its replica notices and kills the rest. Beside the thread
    that reads the log, which must not look away."""
    group = replicas.of(int(gpu.split("/")[0]))
    replicas.by_gpu[gpu].kill()
    wait_any(group, START_S)
    for process in group:
        process.kill()


def lowest_stable(folder: Path, steps: int) -> tuple[int, list[str]]:
    """(ms, what each tried timeout showed): the lowest at which all undisturbed runs stay so."""
    shown = []
    for timeout_ms in TIMEOUTS_MS:
        for trial in range(TRIALS):
            place = folder / f"heartbeat-{timeout_ms}-{trial}"
            trouble = _trouble(place, steps, timeout_ms)
            if trouble:
                shown.append(f"{timeout_ms} ms: {trouble} (run {trial + 1} of {TRIALS})")
                break
        else:
            shown.append(f"{timeout_ms} ms: {TRIALS} runs of {steps} steps undisturbed")
            return timeout_ms, shown
    raise RuntimeError("torchft: no heartbeat timeout is stable here: " + "; ".join(shown))


def _trouble(folder: Path, steps: int, timeout_ms: int) -> str:
    """What disturbed a run in which nothing was killed; "" if nothing did."""
    job = _job(folder, steps)
    with _running(job, folder, timeout_ms) as replicas:
        tail = replicas.attempts
        try:
            tail.until(
                lambda rows: _committed(rows) >= steps or _disturbed(rows) != "",
                replicas.any_ended,
                RUN_S,
            )
        except TimeoutError as error:
            return str(error)
        if not _disturbed(tail.rows) and _committed(tail.rows) < steps:
            return f"ended after {_committed(tail.rows)} steps"
        return _disturbed(tail.rows)


def _disturbed(rows: list[dict[str, Any]]) -> str:
    for row in rows:
        if row["configured"] > 1 or row["replicas"] < REPLICAS or not row["committed"]:
            return f"the quorum changed by itself at step {row['step']}"
    return ""


def _committed(rows: list[dict[str, Any]]) -> int:
    return sum(1 for row in rows if row["committed"])


def _never() -> bool:
    return False


def _commits(rows: list[dict[str, Any]]) -> list[Commit]:
    """The replicas that are left have equal shares, so none waits for another."""
    return [
        Commit(r["seen_s"], r["step"], r["samples"], r["replicas"] * DEGREE, r["replicas"])
        for r in rows
        if r["committed"]
    ]


def _job(folder: Path, steps: int) -> JobConfig:
    folder.mkdir(parents=True)
    path = folder / "JOB.toml"
    path.write_text(small_job(steps), encoding="utf-8")
    return load_job(path)
