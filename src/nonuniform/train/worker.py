"""One process of a run: from generation to generation until the work is done.

In: what the launcher hands over at the start (job, corpus, where the store is). Out: votes and
reports on the board; its exit status. DESIGN "Generations". A process never decides who belongs
to a generation; it settles into the one that is published, works, and gives up when told.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from nonuniform.config import JobConfig
from nonuniform.layout.cuts import ModelPlan
from nonuniform.placement.placement import Member
from nonuniform.train import audit
from nonuniform.train.alarm import Alarm, GenerationDead
from nonuniform.train.commit import Vote, Work, WorkOptions, work_after
from nonuniform.train.data import Corpus, job_windows, split_by_share
from nonuniform.train.device import take_device
from nonuniform.train.groups import (
    Group,
    Reaper,
    fabric_for,
    open_group,
)
from nonuniform.train.membership import (
    COMMIT_AND_REGROUP,
    Board,
    Record,
    Report,
    Settled,
    connect_store,
    is_commit,
)
from nonuniform.train.regroup import digest_of, transfer_of
from nonuniform.train.session import DTYPES, Session, job_plan, open_groups, open_session
from nonuniform.train.state import Received, ShardState, initial_state, recut
from nonuniform.train.step import StepResult, apply_step, train_step, validation_step
from nonuniform.train.transfer import TransferRoute, participants, transfer
from nonuniform.train.watch import Watch

DONE, FAILED = 0, 1


@dataclass(frozen=True)
class WorkerOrders:
    """All that a process is told at its start; `after`: the generation it comes after."""

    gpu: str
    life: int
    job: JobConfig
    corpus: Corpus
    address: str
    port: int
    after: int
    device: str


def worker_main(orders: WorkerOrders) -> None:
    """The whole life of a process; ends it with a status."""
    torch.set_num_threads(1)
    board = Board(connect_store(orders.address, orders.port, orders.job.run.hang_timeout_s))
    status = DONE
    try:
        Worker(orders, board).run()
    except Exception as error:
        traceback.print_exc()
        board.last_words(orders.gpu, orders.life, f"{type(error).__name__}: {error}")
        status = FAILED
    sys.stdout.flush()
    # Not sys.exit: threads of abandoned collectives would be waited for.
    os._exit(status)


OpenGroup = Callable[[str, int, int], Group]
"""(name, rank, size) -> a connected group of the generation."""


class Worker:
    """One process; `state` is what it holds, in or between generations."""

    def __init__(self, orders: WorkerOrders, board: Board) -> None:
        self.orders = orders
        self.job = orders.job
        self.board = board
        self.patience_s = orders.job.run.hang_timeout_s
        self.device = take_device(orders.device, orders.job, orders.gpu)
        self.plan: ModelPlan = job_plan(orders.job)
        self.state: ShardState | None = None
        self.fabric = fabric_for(self.device, orders.address)
        self.reaper = Reaper()
        self.watch = Watch(Board(self._connect()), orders.after + 1, self.patience_s)
        self.windows = job_windows(self.job, orders.corpus)

    def run(self) -> None:
        generation = self.orders.after
        self.board.ready(self.orders.gpu, self.orders.life)
        while True:
            generation += 1
            record = self._next_record(generation)
            alarm = self.watch.alarm(generation)
            member = record.placement.where(self.orders.gpu)
            kept: list[Any] = []
            try:
                if member is None:
                    self._lend(record, alarm, kept)
                elif self._take_part(record, member, alarm, kept):
                    return
            except GenerationDead:
                pass
            self.board.report(generation, self._report(), self.orders.life)
            self.reaper.drop(kept)

    def _lend(self, record: Record, alarm: Alarm, kept: list[Any]) -> None:
        """A spare keeps its shard as long as it is that of the committed step: it may be the last
        copy of a unit, and then it is asked to send it."""
        if self.state is None or self.state.step < record.step:
            self.state = None
        elif record.step > 0:
            self._exchange_units(record, self._group_opener(record, alarm, kept), self.state)

    def _next_record(self, generation: int) -> Record:
        """Spares may wait for days; the watch ends the process if the launcher is gone."""
        while True:
            try:
                return self.board.wait_record(generation, self.patience_s)
            except torch.distributed.DistStoreError:
                continue

    def _take_part(self, record: Record, member: Member, alarm: Alarm, kept: list[Any]) -> bool:
        """Settle and work; True when all is done, False when the generation ends at a commit."""
        session = self._settle(record, member, alarm, kept)
        cycle = Cycle(self, record, session)
        try:
            return cycle.run(alarm)
        finally:
            session.sync.close()

    def _settle(self, record: Record, member: Member, alarm: Alarm, kept: list[Any]) -> Session:
        """Hold the shard of the new generation, and the groups to work in."""
        start = time.monotonic()
        open_one = self._group_opener(record, alarm, kept)
        groups = open_groups(record.placement, member, open_one)
        opened = time.monotonic()
        received = self._hold_shard(record, member, open_one)
        session = open_session(self.job, record.placement, member, self._held(), groups)
        kept.append(session)
        done = time.monotonic()
        self.board.settled(
            record.generation,
            Settled(self.orders.gpu, opened - start, done - opened, received),
        )
        return session

    def _group_opener(self, record: Record, alarm: Alarm, kept: list[Any]) -> OpenGroup:
        """Connects groups of a generation; what must be dropped after it goes to `kept`."""
        store = self._connect()
        kept.append(store)

        def open_one(name: str, rank: int, size: int) -> Group:
            full = f"g{record.generation}/{name}"
            group = alarm.run_aside(lambda: open_group(store, full, rank, size, alarm, self.fabric))
            kept.append(group)
            return group

        return open_one

    def _hold_shard(self, record: Record, member: Member, open_one: OpenGroup) -> int:
        """Make `state` the shard of this generation; the bytes that came from others."""
        degrees = {entry.replica: entry.degree for entry in record.placement.replicas}
        where = (degrees[member.replica], member.label)
        if record.step == 0:
            if self.state is None or (self.state.degree, self.state.label) != where:
                dtype = DTYPES[self.job.run.dtype]
                seed = self.job.run.seed
                self.state = initial_state(self.plan, where, seed, dtype, self.device)
            return 0
        held = self.state if self.orders.gpu in record.holdings else None
        received, count = self._exchange_units(record, open_one, held)
        self.state = recut(held or self._like(), self.plan, where, record.step, received)
        return count

    def _exchange_units(
        self, record: Record, open_one: OpenGroup, held: ShardState | None
    ) -> tuple[Received, int]:
        """Send and receive what the plan says; (what was received, its bytes)."""
        moves = transfer_of(self.plan, record)
        gpus = participants(moves)
        if self.orders.gpu not in gpus:
            return {}, 0
        group = open_one("transfer", gpus.index(self.orders.gpu), len(gpus))
        route = TransferRoute(self.plan, moves, gpus, self.orders.gpu)
        return transfer(route, held, group, self._like())

    def _like(self) -> torch.Tensor:
        """Nothing, of the job's dtype on this rank's device."""
        return torch.empty(0, dtype=DTYPES[self.job.run.dtype], device=self.device)

    def _held(self) -> ShardState:
        assert self.state is not None
        return self.state

    def _report(self) -> Report:
        if self.state is None:
            return Report(self.orders.gpu, step=-1, degree=0, label=0)
        state = self.state
        return Report(self.orders.gpu, state.step, state.degree, state.label)

    def _connect(self) -> Any:
        return connect_store(self.orders.address, self.orders.port, self.patience_s)


class Cycle:
    """The transactions of one generation on one rank."""

    def __init__(self, worker: Worker, record: Record, session: Session) -> None:
        self.worker = worker
        self.record = record
        self.session = session
        self.validated = record.validated
        self.digest = digest_of(worker.plan, record.placement)
        run = worker.job.run
        self.options = WorkOptions(run.steps, run.val_every)

    def run(self, alarm: Alarm) -> bool:
        """Work until all is done (True) or a commit asks to regroup (False)."""
        while True:
            alarm.check()
            work = self._next_work()
            if work.kind == "done":
                return True
            result = self._do(work)
            outcome = self._vote(work, result)
            if not is_commit(outcome):
                raise GenerationDead(outcome)
            self._commit(work, result)
            if outcome == COMMIT_AND_REGROUP and not self._done():
                return False

    def _next_work(self) -> Work:
        return work_after(self.session.state.step, self.validated, self.options)

    def _done(self) -> bool:
        return self._next_work().kind == "done"

    def _do(self, work: Work) -> StepResult:
        if work.kind == "validate":
            return validation_step(self.session, self._validation_tokens())
        ids = self.worker.windows.step_ids(work.step)
        return train_step(self.session, self._tokens(self._mine(ids)))

    def _mine(self, ids: tuple[int, ...]) -> tuple[int, ...]:
        placement = self.session.placement
        replicas = [entry.replica for entry in placement.replicas]
        parts = split_by_share(ids, placement.shares)
        return parts[replicas.index(self.session.member.replica)]

    def _validation_tokens(self) -> torch.Tensor:
        """Held-out windows, every replica's share by its speed; a small set may leave one out."""
        ids = self.worker.windows.validation_ids(self.worker.job.run.val_sequences)
        placement = self.session.placement
        whole = sum(placement.shares)
        bounds = [0]
        for share in placement.shares:
            bounds.append(bounds[-1] + share)
        index = [entry.replica for entry in placement.replicas].index(self.session.member.replica)
        start, stop = (len(ids) * bound // whole for bound in bounds[index : index + 2])
        return self._tokens(ids[start:stop])

    def _tokens(self, ids: tuple[int, ...]) -> torch.Tensor:
        batch = self.worker.windows.batch(ids)
        return torch.from_numpy(batch).to(self.worker.device)

    def _vote(self, work: Work, result: StepResult) -> str:
        assert work.kind != "done"
        worker, record = self.worker, self.record
        vote = Vote(
            gpu=worker.orders.gpu,
            generation=record.generation,
            kind=work.kind,
            step=work.step,
            digest=self.digest,
            loss_sum=result.loss_sum,
            tokens=result.tokens,
            grad_norm=result.grad_norm,
            finite=result.finite,
        )
        worker.board.vote(vote, len(record.placement.members()))
        while True:  # a launcher that is slow is not gone: then the watch ends the process
            with contextlib.suppress(torch.distributed.DistStoreError):
                return worker.board.wait_outcome(record.generation, work, worker.patience_s)

    def _commit(self, work: Work, result: StepResult) -> None:
        if work.kind == "train":
            apply_step(self.session, work.step, result)
            if self.worker.job.run.check_units:
                hashes = audit.dumps(audit.unit_hashes(self.session.state))
                gpu = self.worker.orders.gpu
                self.worker.board.say_units(self.record.generation, work.step, gpu, hashes)
        else:
            self.validated = work.step
