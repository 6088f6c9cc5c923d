"""One rank's way from transaction to transaction, without its groups and its model."""

from __future__ import annotations

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
from nonuniform.train.alarm import Alarm, GenerationDead
from nonuniform.train.commit import Vote, Work, work_after
from nonuniform.train.membership import ABORT, COMMIT, COMMIT_AND_REGROUP, Board, Record
from nonuniform.train.session import job_plan
from nonuniform.train.step import StepResult
from nonuniform.train.worker import Cycle

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
    worker = SimpleNamespace(
        job=job,
        board=board,
        patience_s=5.0,
        orders=SimpleNamespace(gpu=gpu),
        plan=job_plan(job),
        windows=windows,
        device=torch.device("cpu"),
    )
    record = Record(3, PLACEMENT, step, validated, "digest", {}, {})
    state = SimpleNamespace(step=step)
    session = SimpleNamespace(placement=PLACEMENT, member=PLACEMENT.where(gpu), state=state)
    done: list[tuple[str, int]] = []

    class Written(Cycle):
        def _do(self, work: Work) -> StepResult:
            return RESULT

        def _commit(self, work: Work, result: StepResult) -> None:
            assert result is RESULT
            done.append((work.kind, work.step))
            if work.kind == "train":
                self.session.state.step = work.step
            else:
                self.validated = work.step

    return Written(worker, record, session), done  # type: ignore[arg-type]


def decide(board: Board, outcomes: Iterable[tuple[str, int, str]]) -> None:
    for kind, step, outcome in outcomes:
        board.decide(3, Work(kind, step), outcome)  # type: ignore[arg-type]


@pytest.fixture
def board() -> Board:
    return Board(dist.HashStore())


def test_all_work_is_done_once_and_in_order(board: Board) -> None:
    cycle, done = cycle_of(board, val_every=2)
    order = [("train", 1), ("train", 2), ("validate", 2)]
    order += [("train", 3), ("train", 4), ("validate", 4)]
    decide(board, [(*work, COMMIT) for work in order])
    assert cycle.run(Alarm(5.0)) is True
    assert done == order
    assert cycle.run(Alarm(5.0)) is True  # nothing is left
    assert done == order


def test_it_goes_on_where_the_record_says(board: Board) -> None:
    cycle, done = cycle_of(board, step=2, validated=2, val_every=2)
    order = [("train", 3), ("train", 4), ("validate", 4)]
    decide(board, [(*work, COMMIT) for work in order])
    assert cycle.run(Alarm(5.0)) is True
    assert done == order


def test_a_rank_votes_for_what_it_did_and_obeys(board: Board) -> None:
    cycle, done = cycle_of(board)
    decide(board, [("train", 1, COMMIT), ("train", 2, ABORT)])
    with pytest.raises(GenerationDead, match=ABORT):
        cycle.run(Alarm(5.0))
    assert done == [("train", 1)]
    expected = Vote("2/1", 3, "train", 2, cycle.digest, 3.0, 7, 0.5, True)
    assert board.votes(3, Work("train", 2), ["2/1", "2/0"]) == {"2/1": expected}


def test_what_was_committed_is_done_before_the_alarm_is_obeyed(board: Board) -> None:
    """The outcome came late: the rank rolls forward, then gives up."""
    alarm = Alarm(5.0)
    cycle, done = cycle_of(board)
    decide(board, [("train", 1, COMMIT)])
    vote = cycle._vote

    def vote_while_somebody_dies(work: Work, result: StepResult) -> str:
        alarm.ring("0/1 failed")
        return vote(work, result)

    cycle._vote = vote_while_somebody_dies  # type: ignore[method-assign]
    with pytest.raises(GenerationDead, match="0/1 failed"):
        cycle.run(alarm)
    assert done == [("train", 1)]


def test_no_work_is_begun_after_the_alarm(board: Board) -> None:
    cycle, done = cycle_of(board)
    alarm = Alarm(5.0)
    alarm.ring("0/1 failed")
    decide(board, [("train", 1, COMMIT)])
    with pytest.raises(GenerationDead, match="0/1 failed"):
        cycle.run(alarm)
    assert done == []
    assert board.votes(3, Work("train", 1), ["2/1"]) == {}


def test_a_wish_to_regroup_ends_the_generation_after_the_commit(board: Board) -> None:
    cycle, done = cycle_of(board)
    decide(board, [("train", 1, COMMIT), ("train", 2, COMMIT_AND_REGROUP)])
    assert cycle.run(Alarm(5.0)) is False
    assert done == [("train", 1), ("train", 2)]


@pytest.mark.parametrize("val_every", [0, 4])
def test_a_wish_to_regroup_at_the_very_end_comes_too_late(board: Board, val_every: int) -> None:
    """The launcher does not regroup when all is done, so nobody may wait for it."""
    cycle, done = cycle_of(board, step=3, val_every=val_every)
    last = ("validate", 4) if val_every else ("train", 4)
    decide(board, [(*last, COMMIT_AND_REGROUP), ("train", 4, COMMIT)])
    assert cycle.run(Alarm(5.0)) is True
    assert done[-1] == last


def test_a_wish_to_regroup_before_the_last_validation_is_heard(board: Board) -> None:
    cycle, done = cycle_of(board, step=3, val_every=4)
    decide(board, [("train", 4, COMMIT_AND_REGROUP)])
    assert cycle.run(Alarm(5.0)) is False
    assert done == [("train", 4)]
    assert work_after(4, 0, cycle.options) == Work("validate", 4)


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
