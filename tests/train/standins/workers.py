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
from contextlib import suppress
from pathlib import Path
from typing import Any

from torch.distributed import DistStoreError

from nonuniform.placement.placement import Member
from nonuniform.protocol import rank as ranks
from nonuniform.protocol.commit import Vote, Work, WorkOptions
from nonuniform.protocol.outcome import ABORT
from nonuniform.protocol.rank import ENDS, Rank, Stage
from nonuniform.protocol.record import Record, Report, Settled
from nonuniform.train.membership import Board
from nonuniform.train.progress import Progress
from nonuniform.train.seal import SealedStore, Store
from nonuniform.train.spawn import ForkedProcess
from nonuniform.train.watch import beat_interval_s
from nonuniform.train.worker import FENCED, WorkerOrders

LOOK_S = 0.001
STORE_S = 5.0  # for what is there, unless it was deleted in between
TOKENS_PER_SEQUENCE = 10


class Killed(BaseException):
    """The thread has to stop where it is."""


class Fenced(Exception):
    """The run goes on without this worker."""


class Life:
    """The handle of a process, as far as the launcher uses one. `deaf`: the system takes it for
    dead and its thread runs on, as that of a process on a machine that was cut off."""

    def __init__(self) -> None:
        self.sentinel, self._end = os.pipe()
        self.exitcode: int | None = None
        self.blow = threading.Event()
        self.deaf = False
        self._lock = threading.Lock()

    def kill(self) -> None:
        if not self.deaf:
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
"""Called with the worker and where it is: "start", "settle N", "train S", "ready S" once all have
met in the step, "put S" between vote and count, "decide S" for the last voter, "voted S", "save N",
"report N" with the generation, "rest N" before it looks for the record."""


class Ghost:
    """One worker. `silent`: it gives no signs of life; `busy_s`: what it says of a step's work."""

    def __init__(self, store: Store, orders: WorkerOrders, life: Life, script: Script) -> None:
        self.sealed = SealedStore(store, orders.secret)
        self.board = Board(self.sealed)
        self.orders = orders
        self.gpu = orders.gpu
        self.life = life
        self.script = script
        self.generation = orders.after
        self.held: tuple[int, int, int] | None = None  # step, degree, label
        self.silent = False
        self.finite = True
        self.busy_s = 0.001
        self.ended: int | None = None  # how its thread ended, whatever the system says
        self.progress = Progress()

    def run(self) -> None:
        self.progress = Progress()  # it counts the waits of the thread that makes it
        status = 0
        try:
            self._live()
        except Killed:
            return
        except Fenced:
            status = FENCED
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            self.board.last_words(self.gpu, self.orders.life, text)
            status = 1
        self.ended = status
        self.life.end(status)

    def _beat(self) -> None:
        beat_s = beat_interval_s(self.orders.job.run.hang_timeout_s)
        while self.life.exitcode is None:
            if not self.silent:
                self.board.beat(self.gpu, self.orders.life, self.progress.beat())
            time.sleep(beat_s)

    def wait(self, key: str) -> None:
        """Until the key is there, as one that waits for others; a blow ends it."""
        with self.progress.waiting():
            while not self.board.store.check([key]):
                self.look()
                time.sleep(LOOK_S)
        self.look()

    def work_forever(self) -> None:
        """It has stuck in something of its own."""
        while True:
            self.look()
            time.sleep(LOOK_S)

    def look(self) -> None:
        if self.life.blow.is_set():
            raise Killed

    def _at(self, place: str) -> None:
        self.progress.at(place)
        self.script(self, place)
        self.look()

    def _live(self) -> None:
        self._at("start")
        threading.Thread(target=self._beat, daemon=True).start()
        self.board.ready(self.gpu, self.orders.life)
        placed = False
        while True:
            self.generation += 1
            self._at(f"rest {self.generation}")
            self.wait(f"g{self.generation}/record")
            record = self.board.wait_record(self.generation, STORE_S)
            life = record.lives.get(self.gpu)
            if life != self.orders.life and (placed or life is not None):
                raise Fenced
            placed = placed or life is not None
            if record.task == "leave":
                return
            self._do(record)
            self._at(f"report {self.generation}")
            place = (-1, 0, 0) if self.held is None else self.held
            self.board.report(self.generation, Report(self.gpu, *place), self.orders.life)

    def _do(self, record: Record) -> None:
        member = record.placement.where(self.gpu)
        if record.task == "save":
            self._at(f"save {self.generation}")
            said = {"problem": f"GPU {self.gpu}: no disk"}
            if self.gpu in record.holdings:
                self.board.say_part(self.generation, record.step, self.gpu, said)
        elif member is not None:
            self._take_part(record, member)
        elif self.held is not None and (self.held[0] != record.step or record.load):
            self.held = None

    def _take_part(self, record: Record, member: Member) -> None:
        entry = next(r for r in record.placement.replicas if r.replica == member.replica)
        self._at(f"settle {self.generation}")
        self.held = (record.step, entry.degree, member.label)
        self.board.settled(self.generation, Settled(self.gpu, 0.001, 0.002, 8))
        run = self.orders.job.run
        members = len(record.placement.members())
        options = WorkOptions(run.steps, run.val_every)
        rank = ranks.settled(members, record.step, record.validated, options)
        while rank.stage not in ENDS:
            rank = self._act(rank, record)
            self.held = (rank.step, entry.degree, member.label)

    def _act(self, rank: Rank, record: Record) -> Rank:
        """What a rank does in a generation, without its work."""
        board, generation, work = self.board, self.generation, rank.work
        members = [member.gpu for member in record.placement.members()]
        match rank.stage:
            case Stage.WORK:
                self._at(f"{work.kind} {work.step}")
                met = self._meet(record, f"{work.kind}{work.step}")
                return ranks.worked(rank) if met else ranks.given_up(rank)
            case Stage.VOTE:
                self._at(f"ready {work.step}")
                board.put_vote(self._vote(record, work))
                return ranks.voted(rank)
            case Stage.COUNT:
                self._at(f"put {work.step}")
                return ranks.counted(rank, board.count_vote(generation, work))
            case Stage.LOOK:
                complete = board.all_voted(generation, work, members)
                return ranks.looked(rank, complete, board.pause_wanted(generation))
            case Stage.DECIDE:
                self._at(f"decide {work.step}")
                board.decide(generation, work, rank.wish)
                return ranks.proposed(rank)
            case Stage.WAIT:
                self._at(f"voted {work.step}")
                return ranks.decided(rank, self._outcome(work))
            case _:
                return ranks.applied(rank)

    def _outcome(self, work: Work) -> str:
        """What was decided; of one that was given up nobody waits to read it, so it may be
        forgotten before this one has, or while it does."""
        with self.progress.waiting():
            while True:
                self.look()
                # The next record is published once all undecided work is decided.
                over = self.board.store.check([f"g{self.generation + 1}/record"])
                with suppress(DistStoreError):
                    outcome = self.board.outcome(self.generation, work)
                    if outcome is not None:
                        return outcome
                    if over:
                        return ABORT
                time.sleep(LOOK_S)

    def _meet(self, record: Record, name: str) -> bool:
        """As in the collectives of a step: nobody goes on before all have come. False when the
        generation ends instead."""
        store = self.board.store
        keys = [f"meet/g{self.generation}/{name}/{m.gpu}" for m in record.placement.members()]
        store.set(f"meet/g{self.generation}/{name}/{self.gpu}", "1")
        with self.progress.waiting():
            while not store.check(keys):
                self.look()
                if store.check([f"g{self.generation}/over"]):
                    return False
                time.sleep(LOOK_S)
        return True

    def _vote(self, record: Record, work: Work) -> Vote:
        assert work.kind != "done"
        tokens = sum(record.placement.shares) * TOKENS_PER_SEQUENCE
        return Vote(
            gpu=self.gpu,
            generation=self.generation,
            kind=work.kind,
            step=work.step,
            digest=record.digest,
            loss_sum=tokens / work.step,
            tokens=tokens,
            grad_norm=1.0,
            finite=self.finite,
            busy_s=self.busy_s,
        )


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

    def close(self) -> None:
        """The pipes of a run that is over."""
        for ghost in self.started:
            ghost.life.kill()
            with suppress(OSError):
                os.close(ghost.life.sentinel)
