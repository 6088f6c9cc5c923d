"""Everybody settles at once, over real exchanges: nobody waits for one who does not come, and each
then holds what its place wants, bit for bit."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from standins.shards import CPU, KV_GROUPS, SHARED_KV, cut, plan_of, same_bits, some_whole
from standins.threads import Meeting, run_ranks

from nonuniform.cluster.health import ClusterState, EventKind, HealthEvent
from nonuniform.cluster.topology import parse_gpu
from nonuniform.errors import RunFailed
from nonuniform.placement.ntp import NtpOptions
from nonuniform.protocol.record import Position, Record
from nonuniform.protocol.regroup import next_record
from nonuniform.train.groups import Group
from nonuniform.train.holding import Holding

REPLICAS, DEGREE, MIN_DEGREE, SPARES = 2, 4, 2, 1
GPUS = [f"{replica}/{index}" for replica in range(REPLICAS) for index in range(DEGREE)]
GPUS += [f"{REPLICAS}/{index}" for index in range(SPARES)]
PLANS = [plan_of(KV_GROUPS, DEGREE, MIN_DEGREE), plan_of(SHARED_KV, DEGREE, 2, empty=True)]
WHOLES = [some_whole(plan, seed) for seed, plan in enumerate(PLANS)]
OPTIONS = NtpOptions(MIN_DEGREE, sequences=12)


class Job:
    """All processes of a run after their first step, and what each holds."""

    def __init__(self, number: int) -> None:
        self.plan, self.whole = PLANS[number], WHOLES[number]
        self.state = ClusterState(REPLICAS, DEGREE, frozenset(), SPARES)
        self.step = 1
        self.generation = 1
        self.processes = {gpu: self._process(gpu) for gpu in GPUS}
        self.record = self._next()
        for member in self.record.placement.members():
            shard = cut(self.plan, self.whole, DEGREE, member.label, self.step)
            self.processes[member.gpu].hold(shard)

    def _process(self, gpu: str) -> Holding:
        return Holding(gpu, self.plan, 1, Path("nowhere"), torch.float64, CPU)

    def _next(self, before: Record | None = None) -> Record:
        reports = [holding.report() for holding in self.processes.values()]
        position = Position(self.step if before else 0, 0)
        placed = before.placement if before else None
        rest = self.generation, placed
        return next_record(self.plan, OPTIONS, self.state, reports, position, *rest)[0]

    def change(self, kind: EventKind, gpu: str) -> None:
        """A GPU is lost or returns, and all settle into the generation that follows."""
        if (kind == "failed") == (parse_gpu(gpu) in self.state.down):
            return
        self.state = self.state.apply(HealthEvent(kind, parse_gpu(gpu)))
        self.processes.pop(gpu, None)
        if kind == "returned":
            self.processes[gpu] = self._process(gpu)
        self.generation += 1
        self.record = self._next(self.record)
        self._settle()

    def commit(self) -> None:
        self.step += 1
        for member in self.record.placement.members():
            state = self.processes[member.gpu].state
            assert state is not None
            state.step = self.step

    def _settle(self) -> None:
        placement = self.record.placement
        meetings = {entry.replica: Meeting(len(entry.gpus)) for entry in placement.replicas}
        between: dict[str, Meeting] = {}

        def open_group(name: str, rank: int, size: int) -> Group:
            group: Group = between.setdefault(name, Meeting(size)).group(rank)
            assert group.size == size
            return group

        def rank(gpu: str) -> None:
            holding, member = self.processes[gpu], placement.where(gpu)
            if member is None:
                holding.lend(self.record, open_group)
                return
            compute = meetings[member.replica].group(member.label)
            holding.settle(self.record, member, open_group, compute)

        run_ranks([partial(rank, gpu) for gpu in self.processes], list(meetings.values()))
        for entry in placement.replicas:
            for label, gpu in enumerate(entry.gpus):
                expected = cut(self.plan, self.whole, entry.degree, label, self.step)
                state = self.processes[gpu].state
                assert state is not None
                assert same_bits(state, expected), gpu


@pytest.mark.parametrize("number", range(len(PLANS)))
def test_a_spare_takes_a_label_while_others_of_its_crew_move_nothing(number: int) -> None:
    job = Job(number)
    job.change("failed", "1/1")
    crew = next(entry.gpus for entry in job.record.placement.replicas if entry.replica == 1)
    assert "2/0" in crew
    assert set(crew) <= set(job.record.moving)


changes = st.lists(
    st.tuples(st.sampled_from(["failed", "returned", "commit"]), st.sampled_from(GPUS)),
    min_size=1,
    max_size=8,
)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(range(len(PLANS))), changes)
def test_whoever_comes_and_goes_all_settle(number: int, story: list[tuple[str, str]]) -> None:
    job = Job(number)
    for kind, gpu in story:
        if kind == "commit":
            job.commit()
            continue
        try:
            job.change("failed" if kind == "failed" else "returned", gpu)
        except RunFailed:  # nobody is left, or nobody holds some unit
            return
