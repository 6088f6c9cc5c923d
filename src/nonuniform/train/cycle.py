"""The transactions of one generation on one rank: does what `protocol.rank` says comes next.

In: a session, the record of its generation, the board. Out: how the generation ended for this rank.
DESIGN "The step is a transaction". Knows nothing of who else is there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass

import torch

from nonuniform.config import JobConfig
from nonuniform.layout.cuts import ModelPlan
from nonuniform.protocol import rank as ranks
from nonuniform.protocol.commit import Vote, Work, WorkOptions
from nonuniform.protocol.outcome import ABORT
from nonuniform.protocol.rank import ENDS, Rank, Stage
from nonuniform.protocol.record import Record
from nonuniform.protocol.regroup import digest_of
from nonuniform.train.alarm import Alarm, GenerationDead
from nonuniform.train.data import Windows, split_by_share
from nonuniform.train.membership import Board
from nonuniform.train.session import Session
from nonuniform.train.step import StepResult, apply_step, train_step, validation_step

AfterStep = Callable[[Session, Record, int], None]
"""Called once a training step is applied, with its number."""


@dataclass(frozen=True)
class Desk:
    """What a rank works with in every generation; `look_s`: how long one look at the board may take
    before the next."""

    gpu: str
    job: JobConfig
    plan: ModelPlan
    windows: Windows
    device: torch.device
    board: Board
    look_s: float


class Cycle:
    """`pending`: the result of the work that this rank has voted for, until its outcome is known;
    `torn`: a step is being applied, so the state is of no step at all."""

    def __init__(self, desk: Desk, record: Record, session: Session, after_step: AfterStep) -> None:
        self.desk = desk
        self.record = record
        self.session = session
        self.pending: tuple[Work, StepResult, Vote] | None = None
        self.members = [member.gpu for member in record.placement.members()]
        self.digest = digest_of(desk.plan, record.placement)
        self.torn = False
        self.committed = 0
        self._result: StepResult | None = None
        self._after_step = after_step
        run = desk.job.run
        options = WorkOptions(run.steps, run.val_every)
        step = session.state.step
        self.rank: Rank = ranks.settled(len(self.members), step, record.validated, options)

    def run(self, alarm: Alarm) -> Stage:
        """Work until the generation ends; how it ended."""
        while self.rank.stage not in ENDS:
            self.rank = self._act(alarm)
        return self.rank.stage

    def _act(self, alarm: Alarm) -> Rank:
        rank, board, generation = self.rank, self.desk.board, self.record.generation
        work = rank.work
        match rank.stage:
            case Stage.WORK:
                return self._work(alarm)
            case Stage.VOTE:
                board.put_vote(self._vote(work))
                return ranks.voted(rank)
            case Stage.COUNT:
                return ranks.counted(rank, board.count_vote(generation, work))
            case Stage.LOOK:
                complete = board.all_voted(generation, work, self.members)
                return ranks.looked(rank, complete, board.pause_wanted(generation))
            case Stage.DECIDE:
                board.decide(generation, work, rank.wish)
                return ranks.proposed(rank)
            case Stage.WAIT:
                return ranks.decided(rank, self._outcome(work, alarm))
            case _:
                self.apply(work)
                return ranks.applied(rank)

    def _work(self, alarm: Alarm) -> Rank:
        try:
            alarm.check()
            self._result = self._do(self.rank.work)
        except GenerationDead:
            return ranks.given_up(self.rank)
        return ranks.worked(self.rank)

    def _do(self, work: Work) -> StepResult:
        progress = self.session.progress
        progress.begin_step()
        if work.kind == "validate":
            progress.at("validation")
            return validation_step(self.session, self._validation_tokens())
        progress.at("data")
        ids = self.desk.windows.step_ids(work.step)
        return train_step(self.session, self._tokens(self._mine(ids)))

    def _mine(self, ids: tuple[int, ...]) -> tuple[int, ...]:
        placement = self.session.placement
        replicas = [entry.replica for entry in placement.replicas]
        parts = split_by_share(ids, placement.shares)
        return parts[replicas.index(self.session.member.replica)]

    def _validation_tokens(self) -> torch.Tensor:
        """Held-out windows, every replica's share by its speed; a small set may leave one out."""
        ids = self.desk.windows.validation_ids(self.desk.job.run.val_sequences)
        placement = self.session.placement
        whole = sum(placement.shares)
        bounds = [0]
        for share in placement.shares:
            bounds.append(bounds[-1] + share)
        index = [entry.replica for entry in placement.replicas].index(self.session.member.replica)
        start, stop = (len(ids) * bound // whole for bound in bounds[index : index + 2])
        return self._tokens(ids[start:stop])

    def _tokens(self, ids: tuple[int, ...]) -> torch.Tensor:
        batch = self.desk.windows.batch(ids)
        return torch.from_numpy(batch).to(self.desk.device)

    def _vote(self, work: Work) -> Vote:
        assert work.kind != "done"
        result = self._result
        assert result is not None
        self.session.progress.at("vote")
        vote = Vote(
            gpu=self.desk.gpu,
            generation=self.record.generation,
            kind=work.kind,
            step=work.step,
            digest=self.digest,
            loss_sum=result.loss_sum,
            tokens=result.tokens,
            grad_norm=result.grad_norm,
            finite=result.finite,
            busy_s=self.session.progress.busy_s(),
        )
        self.pending = (work, result, vote)
        return vote

    def _outcome(self, work: Work, alarm: Alarm) -> str:
        self.session.progress.at("outcome")
        board, generation = self.desk.board, self.record.generation
        with self.session.progress.waiting():  # all looks are one wait
            while True:  # a launcher that is slow is not gone: then the watch says so
                with contextlib.suppress(torch.distributed.DistStoreError):
                    return board.wait_outcome(generation, work, self.desk.look_s)
                # What was decided is forgotten once all have told what they hold: all but this
                # rank, so it was given up. It may be forgotten while one looks.
                with contextlib.suppress(torch.distributed.DistStoreError):
                    if alarm.ringing and board.outcome(generation, work) is None:
                        return ABORT

    def apply(self, work: Work) -> None:
        """Do to the state what was committed."""
        self.session.progress.at("optimizer")
        if work.kind == "train":
            self.apply_pending()
            self._after_step(self.session, self.record, work.step)
        self.pending = None
        self.committed += 1

    def apply_pending(self) -> None:
        assert self.pending is not None
        work, result, _ = self.pending
        self.torn = True
        apply_step(self.session, work.step, result)
        self.torn = False
