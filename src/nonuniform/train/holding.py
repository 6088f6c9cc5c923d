"""What one process holds between generations: its shard, and the model that is cut around it.

In: the record of a generation, groups to move units over. Out: the shard that the record wants of
this rank, from the seed, a checkpoint, or made of what is there and what others send. The model
goes on for as long as the shard stays. DESIGN "Generations". Knows nothing of votes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch

from nonuniform.layout.cuts import ModelPlan
from nonuniform.placement.placement import Member
from nonuniform.protocol.record import Record, Report
from nonuniform.protocol.regroup import transfer_of
from nonuniform.reshard.transfer import split_by_replica
from nonuniform.train.checkpoint.load import load_shard
from nonuniform.train.cut import CutModel
from nonuniform.train.groups import Group
from nonuniform.train.state import Received, ShardState, initial_state, recut
from nonuniform.train.transfer import TransferRoute, transfer

Open = Callable[[str, int, int], Group]
"""(name, rank, size) -> a connected group of the generation."""


@dataclass
class Holding:
    """`state`: the shard, None for a process that has none; `model`: around that very shard.
    `working`: called with every tensor that is read or made, for what takes long is no hang."""

    gpu: str
    plan: ModelPlan
    seed: int
    checkpoints: Path
    dtype: torch.dtype
    device: torch.device
    working: Callable[[], object] = lambda: None
    state: ShardState | None = None
    model: CutModel | None = field(default=None, repr=False)

    def report(self) -> Report:
        state = self.state
        if state is None:
            return Report(self.gpu, step=-1, degree=0, label=0)
        return Report(self.gpu, state.step, state.degree, state.label)

    def settle(self, record: Record, member: Member, open_group: Open, compute: Group) -> int:
        """Make `state` the shard of this generation; the bytes that came from others."""
        degrees = {entry.replica: entry.degree for entry in record.placement.replicas}
        where = (degrees[member.replica], member.label)
        if record.load:
            self.hold(None)  # before the other one comes in: memory for one, not for two
            folder = self.checkpoints / record.load
            whole = folder, self.plan, where, self.dtype, self.device
            self.hold(load_shard(*whole, self.working))
            return 0
        if record.step == 0:
            if self.state is None or (self.state.degree, self.state.label) != where:
                begun = self.plan, where, self.seed, self.dtype, self.device
                self.hold(initial_state(*begun, self.working))
            return 0
        held = self.state if self.gpu in record.holdings else None
        received, count = self._exchange_units(record, open_group, held, compute)
        self.hold(recut(held or self._like(), self.plan, where, record.step, received))
        return count

    def lend(self, record: Record, open_group: Open) -> None:
        """A spare keeps its shard as long as it is that of the committed step: it may be the last
        copy of a unit, and then it is asked to send it."""
        if self.state is None or self.state.step != record.step or record.load:
            self.hold(None)
        elif record.step > 0:
            self._exchange_units(record, open_group, self.state, None)

    def hold(self, state: ShardState | None) -> None:
        """The model around another shard would keep that one in memory."""
        if state is not self.state:
            self.model = None
        self.state = state

    def let_groups_go(self) -> None:
        """The model waits for the group of the next generation. Its gradients lie in the buckets of
        the last one, which are not needed any more."""
        if self.model is not None:
            self.model.group.let_go()
            for parameter in self.model.parameters.values():
                parameter.grad = None

    def _exchange_units(
        self, record: Record, open_group: Open, held: ShardState | None, compute: Group | None
    ) -> tuple[Received, int]:
        """Send and receive what the plan says; (what was received, its bytes). What moves inside a
        replica uses the group that is there already."""
        if self.gpu not in record.moving:
            return {}, 0
        placement = record.placement
        crews = {entry.replica: entry.gpus for entry in placement.replicas}
        replicas = {member.gpu: member.replica for member in placement.members()}
        inside, others = split_by_replica(transfer_of(self.plan, record), replicas)
        received: dict[tuple[str, int], tuple[torch.Tensor, ...]] = {}
        count = 0
        mine = inside.get(replicas.get(self.gpu, -1))
        if mine is not None and compute is not None:
            route = TransferRoute(self.plan, mine, crews[replicas[self.gpu]], self.gpu)
            units, count = transfer(route, held, compute, self._like())
            received.update(units)
        gpus = others.gpus()
        if self.gpu in gpus:
            group = open_group("transfer", gpus.index(self.gpu), len(gpus))
            route = TransferRoute(self.plan, others, gpus, self.gpu)
            units, more = transfer(route, held, group, self._like())
            received.update(units)
            count += more
        return received, count

    def _like(self) -> torch.Tensor:
        """Nothing, of the job's dtype on this rank's device."""
        return torch.empty(0, dtype=self.dtype, device=self.device)
