"""One step of one rank that is alone: sums over tokens, micro-batches, what is not finite."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from standins.shards import CPU
from torch import Tensor

from nonuniform.config import (
    BatchConfig,
    JobConfig,
    ModelConfig,
    OptimizerConfig,
    ParallelConfig,
    RunConfig,
)
from nonuniform.placement.placement import Placement, ReplicaPlacement
from nonuniform.train.cut import IGNORED
from nonuniform.train.groups import SoloGroup
from nonuniform.train.session import RankGroups, Session, job_plan, open_groups, open_session
from nonuniform.train.state import initial_state
from nonuniform.train.step import StepResult, apply_step, train_step, validation_step

JOB = JobConfig(
    ModelConfig(layers=1, hidden=8, heads=2, vocab=256, ffn=16),
    ParallelConfig(1, 1),
    BatchConfig(sequences=5, length=6),
    RunConfig(steps=4, dtype="float64"),
    optimizer=OptimizerConfig(lr=0.01, warmup=0, clip=0.0),
)
PLACEMENT = Placement((ReplicaPlacement(0, ("0/0",), 5),))


@pytest.fixture
def sessions() -> Iterator[list[Session]]:
    opened: list[Session] = []
    yield opened
    for session in opened:
        session.sync.close()


def start(sessions: list[Session], job: JobConfig = JOB) -> Session:
    solo = SoloGroup()
    state = initial_state(job_plan(job), (1, 0), 1, torch.float64, CPU)
    groups = RankGroups(solo, solo, solo)
    sessions.append(open_session(job, PLACEMENT, PLACEMENT.members()[0], state, groups))
    return sessions[-1]


def tokens(sequences: int = 5) -> Tensor:
    drawn = torch.randint(0, 256, (sequences, 7), generator=torch.Generator().manual_seed(2))
    drawn[0, -1] = IGNORED
    return drawn


def gradients(session: Session) -> dict[str, Tensor]:
    grads = {name: p.grad for name, p in session.model.parameters.items()}
    return {name: grad.clone() for name, grad in grads.items() if grad is not None}


@pytest.mark.parametrize("accumulation", [2, 3, 5, 9])
def test_micro_batches_add_up_to_the_batch(sessions: list[Session], accumulation: int) -> None:
    whole = start(sessions)
    result = train_step(whole, tokens())
    parts = start(sessions, replace(JOB, batch=replace(JOB.batch, accumulation=accumulation)))
    other = train_step(parts, tokens())
    assert result.tokens == other.tokens == 29
    assert other.loss_sum == pytest.approx(result.loss_sum, rel=1e-14)
    assert other.grad_norm == pytest.approx(result.grad_norm, rel=1e-12)
    for name, gradient in gradients(whole).items():
        assert torch.allclose(gradients(parts)[name], gradient, rtol=1e-11, atol=1e-13)


def test_gradients_are_sums_and_the_norm_is_of_the_mean(sessions: list[Session]) -> None:
    session = start(sessions)
    result = train_step(session, tokens())
    flat = torch.cat([gradient.ravel() for gradient in gradients(session).values()])
    assert result.grad_norm == pytest.approx(float(flat.norm()) / 29, rel=1e-13)
    assert result.finite
    again = train_step(session, tokens())
    assert again == result  # nothing was changed, and nothing is left over


@pytest.mark.parametrize("clip", [0.0, 1e-3, 1e9])
def test_what_is_applied_is_the_clipped_mean(sessions: list[Session], clip: float) -> None:
    session = start(sessions, replace(JOB, optimizer=replace(JOB.optimizer, clip=clip)))
    result = train_step(session, tokens())
    summed = gradients(session)
    apply_step(session, 1, result)
    factor = min(1.0, clip / result.grad_norm) / 29 if clip else 1 / 29
    for name, gradient in gradients(session).items():
        assert torch.allclose(gradient, summed[name] * factor, rtol=1e-12, atol=0.0)
    assert session.state.step == 1


def test_a_committed_step_brings_the_loss_down(sessions: list[Session]) -> None:
    session = start(sessions)
    losses = []
    for step in range(1, 5):
        result = train_step(session, tokens())
        apply_step(session, step, result)
        losses.append(result.loss_sum / result.tokens)
    assert losses == sorted(losses, reverse=True)
    assert losses[0] == pytest.approx(math.log(256), abs=0.1)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_step_that_is_not_finite_changes_nothing_but_counts(
    sessions: list[Session], bad: float
) -> None:
    session = start(sessions)
    with torch.no_grad():
        session.model.parameters["norm.weight"][3] = bad
    before = {name: slots[0].clone() for name, slots in session.state.matrices.items()}
    result = train_step(session, tokens())
    assert not result.finite
    assert not math.isfinite(result.grad_norm)
    apply_step(session, 1, result)
    assert session.state.step == 1
    for name, slots in session.state.matrices.items():
        assert torch.equal(slots[0].nan_to_num(7.0), before[name].nan_to_num(7.0))
        assert not slots[1].any()


def test_a_loss_that_is_not_finite_shows_in_the_norm(
    sessions: list[Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other replicas see only the norm: they must not update while this one's step is skipped."""
    session = start(sessions)
    loss_sum = session.model.loss_sum

    def infinite(inputs: Tensor, targets: Tensor) -> Tensor:
        return loss_sum(inputs, targets) + math.inf

    monkeypatch.setattr(session.model, "loss_sum", infinite)
    result = train_step(session, tokens())
    assert not result.finite
    assert not math.isfinite(result.grad_norm)


def test_validation_changes_nothing_and_leaves_no_graph(sessions: list[Session]) -> None:
    session = start(sessions)
    result = validation_step(session, tokens())
    trained = train_step(session, tokens())
    assert (result.tokens, result.grad_norm) == (29, 0.0)
    assert result.loss_sum == pytest.approx(trained.loss_sum, rel=1e-14)
    assert validation_step(session, tokens()[:0]) == StepResult(0.0, 0, 0.0)


def test_groups_are_opened_by_every_member_under_the_same_names() -> None:
    placement = Placement(
        (
            ReplicaPlacement(0, ("0/0", "0/1", "0/2"), 3),
            ReplicaPlacement(2, ("2/1", "2/0"), 2),
            ReplicaPlacement(5, ("5/0", "5/3", "5/1"), 3),
        )
    )
    asked: dict[str, list[tuple[str, int, int]]] = {}
    order: dict[str, list[str]] = {}
    for member in placement.members():

        def note(name: str, rank: int, size: int, gpu: str = member.gpu) -> SoloGroup:
            asked.setdefault(name, []).append((gpu, rank, size))
            order.setdefault(gpu, []).append(name)
            return SoloGroup(rank, size)

        groups = open_groups(placement, member, note)
        assert groups.compute.rank == groups.reshard.rank == member.label
        assert groups.across.size == (3 if member.label < 2 else 1)
    assert asked["compute/2"] == [("2/1", 0, 2), ("2/0", 1, 2)]
    assert asked["across/1"] == [("0/1", 0, 3), ("2/0", 1, 3), ("5/3", 2, 3)]
    assert asked["extra/0/2"] == [("0/2", 0, 1)]
    for ranks in asked.values():
        assert [rank for _, rank, _ in ranks] == list(range(len(ranks)))
        assert {size for *_, size in ranks} == {len(ranks)}
    # nobody waits in one group for a member that waits for it in another
    kinds = [[name.split("/")[0] for name in names] for names in order.values()]
    assert {tuple(names[:2]) for names in kinds} == {("compute", "reshard")}


def test_the_model_goes_on_while_the_shard_stays(sessions: list[Session]) -> None:
    """Cut once; the next generation brings groups, buckets and an optimizer of its own."""
    kept, fresh = start(sessions), start(sessions)
    for step in (1, 2, 3):
        kept.sync.close()
        kept.model.group.let_go()
        solo, before = SoloGroup(), kept.model
        groups = RankGroups(solo, solo, solo)
        member = PLACEMENT.members()[0]
        kept = open_session(JOB, PLACEMENT, member, kept.state, groups, before=before)
        sessions.append(kept)
        assert kept.model is before
        for session in (kept, fresh):
            apply_step(session, step, train_step(session, tokens()))
    for name, (weight, *_) in fresh.state.matrices.items():
        assert torch.equal(kept.state.matrices[name][0], weight)


def test_a_model_around_another_shard_is_not_used(sessions: list[Session]) -> None:
    session, other = start(sessions), start(sessions)
    solo = SoloGroup()
    groups, member = RankGroups(solo, solo, solo), PLACEMENT.members()[0]
    sessions.append(open_session(JOB, PLACEMENT, member, session.state, groups, before=other.model))
    assert sessions[-1].model is not other.model
