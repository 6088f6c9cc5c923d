"""What a process of the pool does as one rank of a training job, without a launcher.

In: the job, the placement, the tokens of its replica. Out: numpy values, local rows as they lie in
the rank's shard; who compares them knows which logical rows those are.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from loopback.pool import Seat
from nonuniform.config import JobConfig
from nonuniform.placement.placement import Member, Placement
from nonuniform.train.session import DTYPES, Session, job_plan, open_groups, open_session
from nonuniform.train.state import initial_state
from nonuniform.train.step import StepResult, apply_step, train_step

Floats = NDArray[np.float64]
Matrices = dict[str, Floats]
"""tensor name -> [local rows, row elements]"""


@dataclass(frozen=True)
class TrainOrder:
    """`tokens[i]` [sequences, length + 1] are for step i + 1; `keep`: the steps whose gradients
    are wanted."""

    job: JobConfig
    placement: Placement
    gpu: str
    tokens: Sequence[NDArray[np.int64]]
    keep: frozenset[int]


@dataclass
class RankRun:
    """`gradients`: mean over the tokens of the step; `applied`: what the optimizer got."""

    member: Member
    degree: int
    results: list[StepResult] = field(default_factory=list)
    gradients: dict[int, Matrices] = field(default_factory=dict)
    applied: dict[int, Matrices] = field(default_factory=dict)
    slots: dict[str, tuple[Floats, ...]] = field(default_factory=dict)


def train(seat: Seat, order: TrainOrder) -> RankRun:
    """All steps of one generation, from the initial weights."""
    session = open_first_session(seat, order.job, order.placement, order.gpu)
    run = RankRun(session.member, session.state.degree)
    for tokens in order.tokens:
        run_step(session, run, tokens, order.keep)
    run.slots = slots_of(session)
    session.sync.close()
    return run


def partial_gradients(seat: Seat, order: TrainOrder) -> RankRun:
    """What backward alone leaves on this rank, before anything is summed over ranks."""
    session = open_first_session(seat, order.job, order.placement, order.gpu)
    run = RankRun(session.member, session.state.degree)
    tokens = torch.from_numpy(order.tokens[0])
    count = tokens[:, 1:].numel()
    session.sync.begin()
    session.model.loss_sum(tokens[:, :-1], tokens[:, 1:]).backward()
    run.gradients[1] = gradients_of(session, 1.0 / count)
    session.sync.finish(0.0, count)
    session.sync.close()
    return run


def open_first_session(seat: Seat, job: JobConfig, placement: Placement, gpu: str) -> Session:
    member = placement.where(gpu)
    assert member is not None
    where = (degree_of(placement, member), member.label)
    dtype = DTYPES[job.run.dtype]
    state = initial_state(job_plan(job), where, job.run.seed, dtype, torch.device("cpu"))
    groups = open_groups(placement, member, seat.open)
    return open_session(job, placement, member, state, groups)


def run_step(
    session: Session, run: RankRun, tokens: NDArray[np.int64], keep: Collection[int]
) -> None:
    """The next step of the session, written down in `run`."""
    step = session.state.step + 1
    result = train_step(session, torch.from_numpy(tokens))
    run.results.append(result)
    if step in keep:
        run.gradients[step] = gradients_of(session, 1.0 / result.tokens)
    apply_step(session, step, result)
    if step in keep:
        run.applied[step] = gradients_of(session, 1.0)


def degree_of(placement: Placement, member: Member) -> int:
    return next(r.degree for r in placement.replicas if r.replica == member.replica)


def gradients_of(session: Session, factor: float) -> Matrices:
    found = {}
    for tensor in session.state.plan.tensors:
        grad = session.model.parameters[tensor.name].grad
        assert grad is not None
        found[tensor.name] = (grad * factor).reshape(-1, tensor.row_elements).numpy()
    return found


def slots_of(session: Session) -> dict[str, tuple[Floats, ...]]:
    """name -> copies of the weight and both moments."""
    return {
        name: tuple(matrix.detach().numpy().copy() for matrix in matrices)
        for name, matrices in session.state.matrices.items()
    }
