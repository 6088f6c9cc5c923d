"""One rank's way from transaction to transaction, without its groups and its model."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist

from nonuniform.config import (
    BatchConfig,
    JobConfig,
    ModelConfig,
    ParallelConfig,
    RunConfig,
)
from nonuniform.placement.placement import Placement, ReplicaPlacement
from nonuniform.protocol.commit import Vote, Work
from nonuniform.protocol.outcome import ABORT, COMMIT, COMMIT_AND_REGROUP
from nonuniform.protocol.rank import Stage
from nonuniform.protocol.record import Record
from nonuniform.protocol.vital import Beat
from nonuniform.train.alarm import Alarm, GenerationDead
from nonuniform.train.cycle import Cycle, Desk
from nonuniform.train.membership import Board
from nonuniform.train.progress import Progress
from nonuniform.train.seal import SealedStore
from nonuniform.train.session import job_plan
from nonuniform.train.step import StepResult

PLACEMENT = Placement(
    (
        ReplicaPlacement(0, ("0/0", "0/1"), 5),
        ReplicaPlacement(2, ("2/0", "2/1"), 3),
        ReplicaPlacement(3, ("3/0",), 1),
    )
)
RESULT = StepResult(loss_sum=3.0, tokens=7, grad_norm=0.5)


def cycle_of(
    board: Board, gpu: str = "2/1", step: int = 0, validated: int = 0, **run: Any
) -> tuple[Cycle, list[tuple[str, int]]]:
    """A cycle whose steps do nothing but write down what was done."""
    model = ModelConfig(layers=1, hidden=8, heads=2)
    job = JobConfig(
        model, ParallelConfig(4, 2), BatchConfig(9, 4), RunConfig(**{"steps": 4, **run})
    )
    windows = SimpleNamespace(
        step_ids=lambda step: tuple(range((step - 1) * 9, step * 9)),
        validation_ids=lambda count: tuple(range(100, 100 + count)),
        batch=lambda ids: np.array([[sample] * 5 for sample in ids]).reshape(len(ids), 5),
    )
    desk = Desk(
        gpu=gpu,
        job=job,
        plan=job_plan(job),
        windows=windows,  # type: ignore[arg-type]
        device=torch.device("cpu"),
        board=board,
        look_s=0.2,
    )
    record = Record(3, PLACEMENT, step, validated, "digest", {}, {})
    session: Any = SimpleNamespace(
        placement=PLACEMENT,
        member=PLACEMENT.where(gpu),
        state=SimpleNamespace(step=step),
        progress=Progress(),
    )
    done: list[tuple[str, int]] = []

    class Written(Cycle):
        def _do(self, work: Work) -> StepResult:
            return RESULT

        def apply(self, work: Work) -> None:
            assert self.pending is not None
            assert self.pending[:2] == (work, RESULT)
            done.append((work.kind, work.step))
            super().apply(work)

        def apply_pending(self) -> None:
            assert self.pending is not None
            self.session.state.step = self.pending[0].step

    def after_step(session: Any, record: Record, step: int) -> None:
        assert session.state.step == step, "told after it was applied"
        told.append(step)

    told: list[int] = []
    cycle = Written(desk, record, session, after_step)
    cycle.told = told  # type: ignore[attr-defined]
    return cycle, done


def decide(board: Board, outcomes: Iterable[tuple[str, int, str]]) -> None:
    for kind, step, outcome in outcomes:
        board.decide(3, Work(kind, step), outcome)  # type: ignore[arg-type]


@pytest.fixture
def board() -> Board:
    store: Any = dist.HashStore()
    return Board(SealedStore(store, "only the job knows"))


def test_all_work_is_done_once_and_in_order(board: Board) -> None:
    cycle, done = cycle_of(board, val_every=2)
    order = [("train", 1), ("train", 2), ("validate", 2)]
    order += [("train", 3), ("train", 4), ("validate", 4)]
    decide(board, [(*work, COMMIT) for work in order])
    assert cycle.run(Alarm(5.0)) is Stage.DONE
    assert done == order
    assert cycle.run(Alarm(5.0)) is Stage.DONE, "nothing is left"
    assert done == order


def test_it_goes_on_where_the_record_says(board: Board) -> None:
    cycle, done = cycle_of(board, step=2, validated=2, val_every=2)
    order = [("train", 3), ("train", 4), ("validate", 4)]
    decide(board, [(*work, COMMIT) for work in order])
    assert cycle.run(Alarm(5.0)) is Stage.DONE
    assert done == order


def test_a_rank_votes_for_what_it_did_and_obeys(board: Board) -> None:
    cycle, done = cycle_of(board)
    decide(board, [("train", 1, COMMIT), ("train", 2, ABORT)])
    assert cycle.run(Alarm(5.0)) is Stage.OVER
    assert done == [("train", 1)]
    assert cycle.session.state.step == 1
    (given,) = board.votes(3, Work("train", 2), ["2/1", "2/0"]).values()
    expected = Vote("2/1", 3, "train", 2, cycle.digest, 3.0, 7, 0.5, True, given.busy_s)
    assert given == expected
    assert 0.0 <= given.busy_s < 1.0


def test_what_a_rank_has_voted_for_is_kept_until_its_outcome_is_known(board: Board) -> None:
    """Then it can still be written down when the launcher is lost."""
    cycle, done = cycle_of(board, steps=1)
    heard: list[str] = []
    wait = board.wait_outcome

    def lose_the_launcher(generation: int, work: Work, timeout_s: float) -> str:
        assert cycle.pending is not None
        heard.append(cycle.pending[2].gpu)
        board.decide(3, work, COMMIT)
        return wait(generation, work, timeout_s)

    board.wait_outcome = lose_the_launcher  # type: ignore[method-assign]
    assert cycle.run(Alarm(5.0)) is Stage.DONE
    assert heard == ["2/1"]
    assert cycle.pending is None
    assert done == [("train", 1)]


def test_each_step_is_told_once_it_is_applied(board: Board) -> None:
    cycle, _ = cycle_of(board, val_every=2)
    order = [("train", 1), ("train", 2), ("validate", 2), ("train", 3)]
    decide(board, [*((*work, COMMIT) for work in order), ("train", 4, ABORT)])
    assert cycle.run(Alarm(5.0)) is Stage.OVER
    assert cycle.told == [1, 2, 3]  # type: ignore[attr-defined]


def test_a_step_that_fails_while_it_is_applied_leaves_a_torn_state(board: Board) -> None:
    cycle, _ = cycle_of(board)
    decide(board, [("train", 1, COMMIT)])

    def fail() -> None:
        Cycle.apply_pending(cycle)

    cycle.apply_pending = fail  # type: ignore[method-assign]
    cycle.session.sync = None  # type: ignore[assignment]
    with pytest.raises(AttributeError):
        cycle.run(Alarm(5.0))
    assert cycle.torn


def test_a_launcher_that_is_slow_is_waited_for(board: Board) -> None:
    """Several looks at the board may end without an answer."""
    cycle, done = cycle_of(board, steps=1)
    threading.Timer(0.5, lambda: decide(board, [("train", 1, COMMIT)])).start()
    assert cycle.run(Alarm(5.0)) is Stage.DONE
    assert done == [("train", 1)]


def test_a_wait_is_one_wait_however_often_it_looks(board: Board) -> None:
    """Else nobody would ever have waited for long, and a standstill would not be found."""
    cycle, _ = cycle_of(board, steps=1)
    beats: list[Beat] = []

    def answer() -> None:
        beats.append(cycle.session.progress.beat())
        decide(board, [("train", 1, COMMIT)])

    threading.Timer(0.9, answer).start()
    cycle.run(Alarm(5.0))
    assert beats[0].waiting
    assert beats[0].age_s > 0.6, "longer than a look takes"


def test_the_last_of_all_voters_decides(board: Board) -> None:
    for gpu in ("0/0", "0/1", "2/0", "3/0"):
        other, _ = cycle_of(board, gpu, steps=1)
        other._result = RESULT
        board.put_vote(other._vote(Work("train", 1)))
        board.count_vote(3, Work("train", 1))
    assert board.outcome(3, Work("train", 1)) is None
    cycle, done = cycle_of(board, steps=1)
    assert cycle.run(Alarm(5.0)) is Stage.DONE
    assert board.outcome(3, Work("train", 1)) == COMMIT
    assert done == [("train", 1)]


def test_what_was_committed_is_done_before_the_alarm_is_obeyed(board: Board) -> None:
    """The outcome came late: the rank rolls forward, then gives up."""
    alarm = Alarm(5.0)
    cycle, done = cycle_of(board)
    decide(board, [("train", 1, COMMIT)])
    vote = cycle._vote

    def vote_while_somebody_dies(work: Work) -> Vote:
        alarm.ring("0/1 failed")
        return vote(work)

    cycle._vote = vote_while_somebody_dies  # type: ignore[method-assign]
    assert cycle.run(alarm) is Stage.OVER
    assert done == [("train", 1)]


def test_one_that_wakes_up_after_all_is_forgotten_gives_up(board: Board) -> None:
    """Also where it looks just as the outcome is deleted."""
    cycle, done = cycle_of(board)
    alarm = Alarm(5.0)
    looks: list[int] = []
    vote = cycle._vote

    def vote_late(work: Work) -> Vote:
        alarm.ring("it was given up")
        return vote(work)

    def forgotten(generation: int, work: Work) -> str | None:
        looks.append(work.step)
        if len(looks) == 1:
            raise torch.distributed.DistStoreError("deleted since it was found")
        return None

    cycle._vote = vote_late  # type: ignore[method-assign]
    board.outcome = forgotten  # type: ignore[method-assign]
    assert cycle.run(alarm) is Stage.OVER
    assert looks == [1, 1]
    assert done == []


def test_work_that_is_given_up_is_neither_voted_for_nor_kept(board: Board) -> None:
    cycle, done = cycle_of(board)

    def give_up(work: Work) -> StepResult:
        raise GenerationDead("0/1 failed")

    cycle._do = give_up  # type: ignore[method-assign]
    decide(board, [("train", 1, COMMIT)])
    assert cycle.run(Alarm(5.0)) is Stage.OVER
    assert done == []
    assert board.votes(3, Work("train", 1), ["2/1"]) == {}


def test_no_work_is_begun_after_the_alarm(board: Board) -> None:
    cycle, done = cycle_of(board)
    alarm = Alarm(5.0)
    alarm.ring("0/1 failed")
    decide(board, [("train", 1, COMMIT)])
    assert cycle.run(alarm) is Stage.OVER
    assert done == []
    assert board.votes(3, Work("train", 1), ["2/1"]) == {}


def test_a_wish_to_regroup_ends_the_generation_after_the_commit(board: Board) -> None:
    cycle, done = cycle_of(board)
    decide(board, [("train", 1, COMMIT), ("train", 2, COMMIT_AND_REGROUP)])
    assert cycle.run(Alarm(5.0)) is Stage.REST
    assert done == [("train", 1), ("train", 2)]


@pytest.mark.parametrize("val_every", [0, 4])
def test_a_wish_to_regroup_at_the_very_end_comes_too_late(board: Board, val_every: int) -> None:
    """The launcher does not regroup when all is done, so nobody may wait for it."""
    cycle, done = cycle_of(board, step=3, val_every=val_every)
    last = ("validate", 4) if val_every else ("train", 4)
    decide(board, [(*last, COMMIT_AND_REGROUP), ("train", 4, COMMIT)])
    assert cycle.run(Alarm(5.0)) is Stage.DONE
    assert done[-1] == last


def test_a_wish_to_regroup_before_the_last_validation_is_heard(board: Board) -> None:
    cycle, done = cycle_of(board, step=3, val_every=4)
    decide(board, [("train", 4, COMMIT_AND_REGROUP)])
    assert cycle.run(Alarm(5.0)) is Stage.REST
    assert done == [("train", 4)]
    assert cycle.rank.work == Work("validate", 4)


def test_replicas_share_the_samples_of_a_step_by_their_shares(board: Board) -> None:
    ids = tuple(range(18, 27))
    mine = {}
    for member in PLACEMENT.members():
        cycle, _ = cycle_of(board, member.gpu)
        mine.setdefault(member.replica, set()).add(cycle._mine(ids))
    assert mine == {0: {ids[:5]}, 2: {ids[5:8]}, 3: {ids[8:]}}


@pytest.mark.parametrize("count", [1, 2, 3, 9, 10, 100])
def test_every_held_out_sample_is_measured_by_one_replica(board: Board, count: int) -> None:
    seen: list[int] = []
    for gpu in ("0/0", "2/0", "3/0"):
        cycle, _ = cycle_of(board, gpu, val_sequences=count)
        rows = cycle._validation_tokens()
        assert rows.shape[1:] == (5,)
        seen += rows[:, 0].tolist()
    assert seen == list(range(100, 100 + count))
