"""Workers as threads: they keep the protocol of the board and do no work.

In: a store, a script that may break the rules. Out: a spawner that the launcher takes for one that
starts processes. A blow stops a thread at its next look, and its end is seen through a pipe.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nonuniform.placement.placement import Member
from nonuniform.train.commit import Vote, Work, WorkOptions, work_after
from nonuniform.train.membership import (
    COMMIT_AND_REGROUP,
    Board,
    Record,
    Report,
    Settled,
    Store,
    is_commit,
)
from nonuniform.train.spawn import ForkedProcess
from nonuniform.train.worker import WorkerOrders

LOOK_S = 0.001
TOKENS_PER_SEQUENCE = 10


class Killed(BaseException):
    """The thread has to stop where it is."""


class Life:
    """The handle of a process, as far as the launcher uses one."""

    def __init__(self) -> None:
        self.sentinel, self._end = os.pipe()
        self.exitcode: int | None = None
        self.blow = threading.Event()
        self._lock = threading.Lock()

    def kill(self) -> None:
        self.blow.set()
        self.end(-signal.SIGKILL)

    def end(self, status: int) -> None:
        with self._lock:
            if self.exitcode is None:
                self.exitcode = status
                os.close(self._end)

    def join(self, patience_s: float) -> None:
        pass


Script = Callable[["Ghost", str], None]
"""Called with the worker and where it is: "settle N", "train S", "ready S" once all have met in
the step, "voted S", "report N" with the generation."""


class Ghost:
    """One worker."""

    def __init__(self, store: Store, orders: WorkerOrders, life: Life, script: Script) -> None:
        self.board = Board(store)
        self.orders = orders
        self.gpu = orders.gpu
        self.life = life
        self.script = script
        self.generation = orders.after
        self.held: tuple[int, int, int] | None = None  # step, degree, label

    def run(self) -> None:
        status = 0
        try:
            self._live()
        except Killed:
            return
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            self.board.last_words(self.gpu, self.orders.life, text)
            status = 1
        self.life.end(status)

    def wait(self, key: str) -> None:
        """Until the key is there; a blow ends it."""
        while not self.board.store.check([key]):
            self.look()
            time.sleep(LOOK_S)
        self.look()

    def look(self) -> None:
        if self.life.blow.is_set():
            raise Killed

    def _at(self, place: str) -> None:
        self.script(self, place)
        self.look()

    def _live(self) -> None:
        self._at("start")
        self.board.ready(self.gpu, self.orders.life)
        while True:
            self.generation += 1
            self.wait(f"g{self.generation}/record")
            record = self.board.wait_record(self.generation, 5.0)
            member = record.placement.where(self.gpu)
            if member is None:
                self.held = None
            elif self._take_part(record, member):
                return
            self._at(f"report {self.generation}")
            place = (-1, 0, 0) if self.held is None else self.held
            self.board.report(self.generation, Report(self.gpu, *place), self.orders.life)

    def _take_part(self, record: Record, member: Member) -> bool:
        entry = next(r for r in record.placement.replicas if r.replica == member.replica)
        self._at(f"settle {self.generation}")
        self.held = (record.step, entry.degree, member.label)
        self.board.settled(self.generation, Settled(self.gpu, 0.001, 0.002, 8))
        run = self.orders.job.run
        step, validated = record.step, record.validated
        while True:
            work = work_after(step, validated, WorkOptions(run.steps, run.val_every))
            if work.kind == "done":
                return True
            self._at(f"{work.kind} {work.step}")
            if not self._meet(record, f"{work.kind}{work.step}"):
                return False
            self._at(f"ready {work.step}")
            outcome = self._vote(record, work)
            if not is_commit(outcome):
                return False
            if work.kind == "train":
                step = work.step
            else:
                validated = work.step
            self.held = (step, entry.degree, member.label)
            if outcome == COMMIT_AND_REGROUP:
                rest = work_after(step, validated, WorkOptions(run.steps, run.val_every))
                return rest.kind == "done"

    def _meet(self, record: Record, name: str) -> bool:
        """As in the collectives of a step: nobody goes on before all have come. False when the
        generation ends instead."""
        keys = [f"meet/g{self.generation}/{name}/{m.gpu}" for m in record.placement.members()]
        self.board.store.set(f"meet/g{self.generation}/{name}/{self.gpu}", "1")
        while not self.board.store.check(keys):
            self.look()
            if self.board.store.check([f"g{self.generation}/over"]):
                return False
            time.sleep(LOOK_S)
        return True

    def _vote(self, record: Record, work: Work) -> str:
        assert work.kind != "done"
        tokens = sum(record.placement.shares) * TOKENS_PER_SEQUENCE
        vote = Vote(
            gpu=self.gpu,
            generation=self.generation,
            kind=work.kind,
            step=work.step,
            digest=record.digest,
            loss_sum=tokens / work.step,
            tokens=tokens,
            grad_norm=1.0,
            finite=True,
        )
        self.board.vote(vote, len(record.placement.members()))
        self._at(f"voted {work.step}")
        self.wait(f"g{self.generation}/{work.kind}{work.step}/outcome")
        return self.board.wait_outcome(self.generation, work, 5.0)


class GhostSpawner:
    """Starts threads where the launcher asks for processes."""

    def __init__(self, store: Store, script: Script) -> None:
        self.store = store
        self.script = script
        self.started: list[Ghost] = []

    def start(
        self, gpu: str, life: int, log: Path, target: Callable[..., None], args: Any
    ) -> ForkedProcess:
        handle = Life()
        ghost = Ghost(self.store, args, handle, self.script)
        self.started.append(ghost)
        threading.Thread(target=ghost.run, daemon=True).start()
        return ForkedProcess(gpu, life, 10000 + len(self.started), handle)
