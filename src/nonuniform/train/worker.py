"""One process of a run: from generation to generation until it is told to leave.

In: what the launcher hands over at the start (job, corpus, where the store is). Out: votes and
reports on the board; its exit status. DESIGN "Generations". A process never decides who belongs
to a generation; it settles into the one that is published, works, and gives up when told.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from nonuniform.config import JobConfig
from nonuniform.errors import NonuniformError
from nonuniform.layout.cuts import ModelPlan
from nonuniform.placement.placement import Member
from nonuniform.protocol.outcome import ABORT
from nonuniform.protocol.record import Record, Settled
from nonuniform.train import audit
from nonuniform.train.alarm import GRACE_S, Alarm, GenerationDead
from nonuniform.train.checkpoint.identity import Identity
from nonuniform.train.connector import Clients, Connector
from nonuniform.train.cycle import Cycle, Desk
from nonuniform.train.data import Corpus, job_windows
from nonuniform.train.device import take_device
from nonuniform.train.groups import Group, Reaper, fabric_for, open_group
from nonuniform.train.holding import Holding
from nonuniform.train.keeper import Keeper
from nonuniform.train.lock import RunLock
from nonuniform.train.membership import Abandoned, Board, connect_board, connect_store
from nonuniform.train.mutter import mutter, mutter_exception
from nonuniform.train.progress import Progress
from nonuniform.train.seal import Forged
from nonuniform.train.session import DTYPES, Session, job_plan, open_groups, open_session
from nonuniform.train.spawn import ORPHANED, at_launcher_loss
from nonuniform.train.watch import Pulse, Vital, Watch, beat_interval_s

DONE, FAILED, FENCED = 0, 1, 4
# What a process meets when the launcher, and with it the store, is gone.
LOST = (GenerationDead, Abandoned, torch.distributed.DistError)
RESCUE_S = 30.0  # an orphan has this long to write what it holds
ORPHAN_NOTICE_S = 2.0


class Fenced(NonuniformError):
    """The run goes on without this process; it must not touch anything any more."""


@dataclass(frozen=True)
class WorkerOrders:
    """All that a process is told at its start; `after`: the generation it comes after."""

    gpu: str
    life: int
    job: JobConfig
    corpus: Corpus
    address: str
    port: int
    secret: str
    after: int
    device: str
    folder: Path
    checkpoints: Path

    @property
    def patience_s(self) -> float:
        """How long a wait for others may take. The launcher gives up whoever hangs after
        hang_timeout_s and says so; only if it does not either is a rank on its own."""
        return 2 * self.job.run.hang_timeout_s + 10.0

    @property
    def grace_s(self) -> float:
        """How long a rank that has lost a peer waits to hear why. A launcher may stand still for a
        while, when its disk does; but what is this rank's own fault must come up before everybody
        is taken to wait for everybody."""
        return max(GRACE_S, self.job.run.hang_timeout_s / 2)


def worker_main(orders: WorkerOrders) -> None:
    """The whole life of a process; ends it with a status."""
    live(orders, Worker)


def live(orders: WorkerOrders, kind: Callable[[WorkerOrders, Board], Worker]) -> None:
    torch.set_num_threads(1)
    with contextlib.suppress(OSError):  # as long as this process lives; a full disk is no reason
        RunLock(orders.folder).share()
    board = connect_board(orders.address, orders.port, orders.patience_s, orders.secret)
    status = DONE
    worker: Worker | None = None
    try:
        worker = kind(orders, board)
        worker.run()
    except Fenced as error:
        mutter(str(error))
        status = FENCED
    except Exception as error:
        if worker is not None and isinstance(error, LOST) and worker.is_orphan():
            worker.rescue()
            status = ORPHANED
        else:
            board.last_words(orders.gpu, orders.life, f"{type(error).__name__}: {error}")
            mutter_exception()
            status = FAILED
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    # Not sys.exit: threads of abandoned collectives would be waited for.
    os._exit(status)


class Worker:
    """One process; `holding` is what it has, in or between generations."""

    def __init__(self, orders: WorkerOrders, board: Board) -> None:
        self.orders = orders
        self.job = orders.job
        self.board = board
        self.progress = self.make_progress()
        self.device = take_device(orders.device, orders.job, orders.gpu)
        self.plan: ModelPlan = job_plan(orders.job)
        self.holding = Holding(
            gpu=orders.gpu,
            plan=self.plan,
            seed=orders.job.run.seed,
            checkpoints=orders.checkpoints,
            dtype=DTYPES[orders.job.run.dtype],
            device=self.device,
            working=lambda: self.progress.at("loading"),
        )
        self.cycle: Cycle | None = None
        self.fabric = fabric_for(self.device, orders.address)
        self.reaper = Reaper()
        where = orders.address, orders.port, orders.patience_s
        self.clients = Clients(lambda: connect_store(*where), self.fabric.done_with_store)
        self.keeper = self.make_keeper()
        self._placed = False
        self._awaited = orders.after + 1  # the generation whose record comes next
        self._orphan = threading.Event()
        at_launcher_loss(self._orphaned)
        run = orders.job.run
        beat_s = beat_interval_s(run.hang_timeout_s)
        vital = Vital(
            gpu=orders.gpu,
            life=orders.life,
            progress=self.progress,
            beat_s=beat_s,
            patience_s=orders.patience_s,
            grace_s=orders.grace_s,
        )
        first = orders.after + 1
        self.watch = Watch(self._connect_board(), first, vital, self._orphaned, self._end_waits)
        self.pulse = Pulse(self._connect_board(), vital, self._orphaned)
        self.desk = Desk(
            gpu=orders.gpu,
            job=orders.job,
            plan=self.plan,
            windows=job_windows(self.job, orders.corpus),
            device=self.device,
            board=board,
            look_s=orders.patience_s,
        )

    # --- what a test may replace

    def make_progress(self) -> Progress:
        return Progress()

    def make_keeper(self) -> Keeper:
        orders = self.orders
        return Keeper(orders.gpu, self.plan, orders.checkpoints, self.board, self._connect_board)

    def connect(self, store: Any, name: str, rank: int, size: int, alarm: Alarm) -> Group:
        return open_group(store, name, rank, size, alarm, self.fabric)

    # --- generations

    def run(self) -> None:
        generation = self.orders.after
        self.progress.at("ready")
        self.board.ready(self.orders.gpu, self.orders.life)
        while True:
            generation += 1
            record = self._next_record(generation)
            self._check_life(record)
            if record.task == "leave":
                self.keeper.finish(self.orders.patience_s)
                return
            self._live_through(record)
            self.board.report(generation, self.holding.report(), self.orders.life)

    def _live_through(self, record: Record) -> None:
        """One generation, to its end."""
        alarm = self.watch.alarm(record.generation)
        member = record.placement.where(self.orders.gpu)
        kept: list[Any] = []
        try:
            if record.task == "save":
                self._save(record, alarm)
            elif member is None:
                self._lend(record, alarm, kept)
            else:
                self._take_part(record, member, alarm, kept)
        except GenerationDead:
            pass
        if self._orphan.is_set():
            raise GenerationDead("the launcher is gone")
        # The buffers go at once, for the next generation needs their memory. The groups stay in
        # `kept`: were their last references dropped by this thread, it would block.
        self.cycle = None
        self.holding.let_groups_go()
        self.reaper.take(kept)
        if member is None:  # nothing that could be held up
            self.reaper.drop()

    def _check_life(self, record: Record) -> None:
        """Whether the record still counts on this very process."""
        life = record.lives.get(self.orders.gpu)
        if life == self.orders.life:
            self._placed = True
        elif life is not None or self._placed:
            raise Fenced(f"generation {record.generation} goes on without this process")

    def _save(self, record: Record, alarm: Alarm) -> None:
        """Write what a checkpoint needs of this rank's shard."""
        state = self.holding.state
        if state is not None and self.orders.gpu in record.holdings:
            self.progress.at("checkpoint")
            with self.progress.waiting():  # for a disk; how long that may take is not ours to say
                self.keeper.save(record, state, alarm)

    def _lend(self, record: Record, alarm: Alarm, kept: list[Any]) -> None:
        self.progress.at("transfer")
        self.holding.lend(record, self._connector(record, alarm, kept).open)

    def _next_record(self, generation: int) -> Record:
        """Spares may wait for days; the watch notices if the launcher is gone."""
        self.progress.at("record")
        self._awaited = generation
        if self._orphan.is_set():  # who ends the waits may have looked before this one
            raise GenerationDead("the launcher is gone")
        with self.progress.waiting():  # all looks are one wait
            while True:
                with contextlib.suppress(torch.distributed.DistStoreError):
                    return self.board.wait_record(generation, self.orders.patience_s)

    def _take_part(self, record: Record, member: Member, alarm: Alarm, kept: list[Any]) -> None:
        """Settle and work until the generation ends."""
        session = self._settle(record, member, alarm, kept)
        self.cycle = Cycle(self.desk, record, session, self._after_step)
        try:
            self.cycle.run(alarm)
        finally:
            session.sync.close()

    def _settle(self, record: Record, member: Member, alarm: Alarm, kept: list[Any]) -> Session:
        """Hold the shard of the new generation, and the groups to work in."""
        start = time.monotonic()
        self.progress.at("groups")
        connector = self._connector(record, alarm, kept)
        groups = open_groups(record.placement, member, connector.open, connector.open_later)
        connector.begin_later()
        opened = time.monotonic()
        self.progress.at("transfer")
        holding = self.holding
        received = holding.settle(record, member, connector.open, groups.compute)
        assert holding.state is not None
        session = open_session(
            self.job,
            record.placement,
            member,
            holding.state,
            groups,
            self.progress,
            holding.model,
        )
        holding.model = session.model
        done = time.monotonic()
        self.board.settled(
            record.generation,
            Settled(self.orders.gpu, opened - start, done - opened, received),
        )
        return session

    def _connector(self, record: Record, alarm: Alarm, kept: list[Any]) -> Connector:
        return Connector(
            prefix=f"g{record.generation}",
            clients=self.clients,
            connect=self.connect,
            alarm=alarm,
            kept=kept,
        )

    def _connect_board(self) -> Board:
        orders = self.orders
        return connect_board(orders.address, orders.port, orders.patience_s, orders.secret)

    # --- after a step

    def _after_step(self, session: Session, record: Record, step: int) -> None:
        assert self.cycle is not None
        assert self.cycle.pending is not None
        self.reaper.drop()
        self.keeper.note(record, self.cycle.pending[2], self.cycle.rank.validated)
        if self.job.run.check_units:
            hashes = audit.dumps(audit.unit_hashes(session.state))
            self.board.say_units(record.generation, step, self.orders.gpu, hashes)
        if self.job.checkpoint.due(step, self.job.run.steps):
            self.progress.at("checkpoint")
            self.keeper.begin(record, session.state)

    # --- when the launcher is gone

    def _orphaned(self) -> None:
        """From any thread: nobody will ever tell this process anything any more."""
        if not self._orphan.is_set():
            self._orphan.set()
            threading.Thread(target=_leave_after, args=(RESCUE_S,), daemon=True).start()
            self.watch.ring_all("the launcher is gone")

    def _end_waits(self, board: Board) -> None:
        """The store still answers, so what the main thread waits for on it would never come."""
        with contextlib.suppress(RuntimeError, Forged):
            cycle = self.cycle
            if cycle is not None and cycle.rank.work.kind != "done":
                board.decide(cycle.record.generation, cycle.rank.work, ABORT)
            board.publish_nothing(self._awaited)

    def is_orphan(self) -> bool:
        return self._orphan.wait(ORPHAN_NOTICE_S)

    def rescue(self) -> None:
        """Write what this rank holds, and what it would hold if the step that it has voted for was
        committed: whoever puts the pieces together knows which of the two counts."""
        cycle, state = self.cycle, self.holding.state
        if state is None or not self.job.checkpoint.final or (cycle is not None and cycle.torn):
            return
        current = cycle if cycle is not None and cycle.session.state is state else None
        identity = Identity.of(self.job, self.orders.corpus).to_json()
        # A commit shows that all members have settled: then each has its share to write.
        settled = current is not None and current.committed > 0
        record = current.record if current is not None and settled else None
        self.keeper.rescue(state, record, identity)
        if current is None or current.pending is None:
            return
        work, _, vote = current.pending
        if work.kind == "train" and work.step == state.step + 1:
            self.keeper.note(current.record, vote, current.rank.validated)
            current.apply_pending()
            self.keeper.rescue(state, record, identity)


def _leave_after(seconds: float) -> None:
    time.sleep(seconds)
    os._exit(ORPHANED)
