"""One GPU's life through several generations, without a launcher: shards move between them.

In: the records of all generations, planned beforehand, and the batches of each. Out: what the rank
held at the end of every generation, nothing where it was dead. A GPU that is in no placement loses
all it held, as a process that was killed does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from unittest import mock

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from loopback.pool import Seat
from loopback.ranks import RankRun, degree_of, run_step, slots_of
from nonuniform.config import JobConfig
from nonuniform.errors import RunFailed
from nonuniform.layout.cuts import ModelPlan
from nonuniform.placement.placement import Member
from nonuniform.protocol.regroup import transfer_of
from nonuniform.train import transfer as transfer_module
from nonuniform.train.groups import Group
from nonuniform.train.membership import Record
from nonuniform.train.relay import Relay
from nonuniform.train.session import DTYPES, Session, job_plan, open_groups, open_session
from nonuniform.train.state import Received, ShardState, initial_state, recut
from nonuniform.train.transfer import TransferRoute, transfer

CPU = torch.device("cpu")


@dataclass(frozen=True)
class LifeOrder:
    """`batches[i]`: the whole batches of the steps of generation `records[i]`."""

    job: JobConfig
    gpu: str
    records: Sequence[Record]
    batches: Sequence[Sequence[NDArray[np.int64]]]


def live(seat: Seat, order: LifeOrder) -> list[RankRun | None]:
    state: ShardState | None = None
    runs: list[RankRun | None] = []
    for record, batches in zip(order.records, order.batches, strict=True):
        member = record.placement.where(order.gpu)
        if member is None:
            state = None
            runs.append(None)
            continue
        session = _settle(seat, order, record, member, state)
        run = RankRun(member, session.state.degree)
        for batch in batches:
            run_step(session, run, batch[_own(record, member)], {record.step + 1})
        run.slots = slots_of(session)
        runs.append(run)
        session.sync.close()
        state = session.state
    return runs


def _settle(
    seat: Seat, order: LifeOrder, record: Record, member: Member, state: ShardState | None
) -> Session:
    plan, placement = job_plan(order.job), record.placement
    where = (degree_of(placement, member), member.label)
    dtype = DTYPES[order.job.run.dtype]
    like = torch.empty(0, dtype=dtype)

    def open_one(name: str, rank: int, size: int) -> Group:
        return seat.open(f"g{record.generation}/{name}", rank, size)

    if record.step == 0:
        state = initial_state(plan, where, order.job.run.seed, dtype, CPU)
    else:
        held = state if order.gpu in record.holdings else None
        received: Received = {}
        gpus = transfer_of(plan, record).gpus()
        if order.gpu in gpus:
            group = open_one("transfer", gpus.index(order.gpu), len(gpus))
            received, _ = transfer(_route(plan, record, order.gpu), held, group, like)
        state = recut(held or like, plan, where, record.step, received)
    return open_session(
        order.job, placement, member, state, open_groups(placement, member, open_one)
    )


def _route(plan: ModelPlan, record: Record, gpu: str) -> TransferRoute:
    moves = transfer_of(plan, record)
    return TransferRoute(plan, moves, moves.gpus(), gpu)


def _own(record: Record, member: Member) -> slice:
    """The sequences of the replica of `member` in a batch."""
    start = 0
    for entry in record.placement.replicas:
        if entry.replica == member.replica:
            return slice(start, start + entry.share)
        start += entry.share
    raise AssertionError(f"{member} is in no replica")


@dataclass(frozen=True)
class DamageOrder:
    """A transfer into `record`; `wrong`: "sum" if this GPU tells wrong checksums, "wire" if what
    it receives is changed on the way."""

    job: JobConfig
    gpu: str
    record: Record
    wrong: str = ""


@dataclass(frozen=True)
class Arrival:
    """`failure`: why the transfer failed; `units`: what came; `intact`: the shard is as it was."""

    failure: str
    units: int
    intact: bool


def receive(seat: Seat, order: DamageOrder) -> Arrival:
    plan, record = job_plan(order.job), order.record
    route = _route(plan, record, order.gpu)
    held = None
    if order.gpu in record.holdings:
        where = record.holdings[order.gpu]
        held = initial_state(plan, where, order.job.run.seed, torch.float64, CPU)
    before = _bits(held)
    group = seat.open("transfer", route.gpus.index(order.gpu), len(route.gpus))
    if order.wrong == "wire":
        group = _NoisyGroup(group)
    told = _lie if order.wrong == "sum" else transfer_module.checksum
    received: Received = {}
    failure = ""
    with mock.patch.object(transfer_module, "checksum", told):
        try:
            received, _ = transfer(route, held, group, torch.empty(0, dtype=torch.float64))
        except RunFailed as error:
            failure = str(error)
    return Arrival(failure, len(received), _bits(held) == before)


_true_checksum = transfer_module.checksum


def _lie(part: Tensor) -> int:
    return _true_checksum(part) ^ (1 if part.numel() else 0)


class _NoisyGroup(Relay):
    """Changes the last bit of one element of the first message that is received."""

    quiet = False

    def exchange(
        self,
        received: Tensor,
        sent: Tensor,
        received_counts: Sequence[int],
        sent_counts: Sequence[int],
    ) -> None:
        super().exchange(received, sent, received_counts, sent_counts)
        if not self.quiet:
            received[len(received) // 2] ^= 1
        self.quiet = True


def _bits(state: ShardState | None) -> list[bytes]:
    if state is None:
        return []
    return [m.numpy().tobytes() for matrices in state.matrices.values() for m in matrices]
