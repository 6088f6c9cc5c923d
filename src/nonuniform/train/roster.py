"""The processes of a run: started, killed on order, found dead, ended.

In: a spawner, what every worker is told. Out: who lives, who warms up, when a blow was dealt.
Knows nothing of generations, votes or placement.
"""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from nonuniform.config import JobConfig
from nonuniform.layout.cuts import ModelPlan
from nonuniform.train.data import Corpus, Windows
from nonuniform.train.spawn import ForkedProcess, Spawner, end_all, wait_any
from nonuniform.train.worker import WorkerOrders, worker_main


@dataclass(frozen=True)
class JobSetup:
    """What stays the same for the whole run."""

    job: JobConfig
    plan: ModelPlan
    corpus: Corpus
    windows: Windows
    port: int
    secret: str
    logs: Path
    device: str
    checkpoints: Path


class Roster:
    """`living`: gpu -> its process; `started_s`: when it was started; `target`: what it runs."""

    def __init__(
        self,
        setup: JobSetup,
        spawner: Spawner,
        target: Callable[[WorkerOrders], None] = worker_main,
    ) -> None:
        self._setup = setup
        self._spawner = spawner
        self._target = target
        self.living: dict[str, ForkedProcess] = {}
        self.lives: Counter[str] = Counter()
        self.started_s: dict[str, float] = {}
        self._pids: dict[str, int] = {}
        self._fenced: list[ForkedProcess] = []
        self._killed_s: dict[str, float] = {}

    def start(self, gpu: str, after: int) -> ForkedProcess:
        """A new process for `gpu`, to take part in generations after `after`."""
        self.lives[gpu] += 1
        self._pids.pop(gpu, None)
        setup = self._setup
        orders = WorkerOrders(
            gpu=gpu,
            life=self.lives[gpu],
            job=setup.job,
            corpus=setup.corpus,
            address=setup.job.run.address,
            port=setup.port,
            secret=setup.secret,
            after=after,
            device=setup.device,
            folder=setup.logs.parent,
            checkpoints=setup.checkpoints,
        )
        log = setup.logs / f"gpu-{gpu.replace('/', '-')}.log"
        process = self._spawner.start(gpu, self.lives[gpu], log, self._target, orders)
        self.living[gpu] = process
        self.started_s[gpu] = time.monotonic()
        self._killed_s.pop(gpu, None)  # a blow to the process before
        self._pids[gpu] = process.pid
        return process

    def kill(self, gpu: str) -> None:
        """Deal a blow that was ordered; the moment is kept."""
        self._killed_s[gpu] = time.monotonic()
        self.living[gpu].kill()

    def fence(self, gpu: str) -> None:
        """End a process, in whatever state it is, and forget it."""
        process = self.living.pop(gpu)
        process.kill()
        self._fenced = [old for old in self._fenced if old.exit_status() is None]
        self._fenced.append(process)

    def last_pid(self, gpu: str) -> int | None:
        """Of the newest process of this GPU, also if it is gone."""
        return self._pids.get(gpu)

    def take_killed_s(self, gpu: str) -> float | None:
        """When this GPU was last killed on order, told once; None if it was not."""
        return self._killed_s.pop(gpu, None)

    def wait_dead(self, timeout_s: float) -> list[ForkedProcess]:
        """Sleep until a process has ended or the time is over; those that have ended."""
        return wait_any(self.living.values(), timeout_s)

    def is_current(self, process: ForkedProcess) -> bool:
        return self.living.get(process.gpu) is process

    def remove(self, process: ForkedProcess) -> None:
        del self.living[process.gpu]

    def end(self, patience_s: float) -> None:
        """Kill all that still live and wait until they are gone."""
        end_all([*self.living.values(), *self._fenced], patience_s)


def how_it_ended(process: ForkedProcess) -> str:
    """In words: the signal's name or the exit status."""
    status = process.exit_status()
    if status is not None and status < 0:
        names = {int(one): one.name for one in signal.Signals}
        name = names.get(-status, f"signal {-status}")
        return f"process {process.pid} ended ({name})"
    return f"process {process.pid} ended (exit status {status})"
