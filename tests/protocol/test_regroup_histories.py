"""Random histories of losses, returns and drains, with spares that are borrowed, where any regroup
may be cut short by the next change."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from standins.shards import KV_GROUPS, SHARED_KV, plan_of

from nonuniform.cluster.health import ClusterState, EventKind, HealthEvent
from nonuniform.cluster.topology import parse_gpu
from nonuniform.errors import RunFailed
from nonuniform.placement.ntp import NtpOptions
from nonuniform.protocol.regroup import Position, next_record, transfer_of
from nonuniform.train.membership import Record, Report

REPLICAS, DEGREE, MIN_DEGREE = 2, 4, 2
SPARES = 2
GPUS = [f"{replica}/{index}" for replica in range(REPLICAS) for index in range(DEGREE)]
GPUS += [f"{REPLICAS}/{index}" for index in range(SPARES)]
SMALL_SHARED = replace(SHARED_KV, layers=1)
PLANS = [plan_of(KV_GROUPS, DEGREE, MIN_DEGREE), plan_of(SMALL_SHARED, DEGREE, 2, empty=True)]


EVENTS: dict[str, EventKind] = {"lose": "failed", "return": "returned", "drain": "drained"}


@dataclass
class History:
    """What the launcher and the GPUs know; `held`: gpu -> (step, degree, label); `lenders` are
    drained and still run."""

    plan_index: int
    state: ClusterState = field(default_factory=lambda: ClusterState(REPLICAS, DEGREE))
    lenders: set[str] = field(default_factory=set)
    step: int = 0
    generation: int = 0
    held: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    record: Record | None = None

    @property
    def living(self) -> list[str]:
        return [str(gpu) for gpu in self.state.healthy()]

    def regroup(self) -> None:
        self.generation += 1
        speakers = [*self.living, *self.lenders]
        reports = [Report(gpu, *self.held[gpu]) for gpu in speakers if gpu in self.held]
        options = NtpOptions(MIN_DEGREE, sequences=12)
        plan = PLANS[self.plan_index]
        position = Position(self.step, 0)
        before = self.record.placement if self.record else None
        self.record, _ = next_record(
            plan, options, self.state, reports, position, self.generation, before, self.lenders
        )

    def change(self, kind: str, gpu: str) -> None:
        """A GPU is lost, returns, or is drained, which one that is down cannot be."""
        if kind == "drain" and gpu in self.living:
            self.lenders.add(gpu)
        elif kind == "lose" or parse_gpu(gpu) in self.state.down:
            self.lenders.discard(gpu)  # one that returns is a new process
            self.held.pop(gpu, None)
        self.state = self.state.apply(HealthEvent(EVENTS[kind], parse_gpu(gpu)))

    def settle(self, some: set[str]) -> None:
        """These members come as far as holding their shard; a spare drops what it has."""
        assert self.record is not None
        degrees = {entry.replica: entry.degree for entry in self.record.placement.replicas}
        for member in self.record.placement.members():
            if member.gpu in some:
                self.held[member.gpu] = (self.step, degrees[member.replica], member.label)
        for gpu in self.record.placement.spares:
            self.held.pop(gpu, None)

    def commit(self) -> None:
        assert self.record is not None
        self.step += 1
        self.settle(set(self.living))
        for gpu in self.lenders:
            self.held.pop(gpu, None)
        self.lenders.clear()


def check_places(before: Record | None, record: Record, state: ClusterState) -> None:
    """Members and spares are the healthy GPUs, and who works goes on where it works."""
    placement = record.placement
    placed = [member.gpu for member in placement.members()] + list(placement.spares)
    assert sorted(placed) == sorted(map(str, state.healthy()))
    if before is None:
        return
    lived = {entry.replica: set(entry.gpus) & set(placed) for entry in before.placement.replicas}
    for member in placement.members():
        was = before.placement.where(member.gpu)
        if was is not None and len(lived[was.replica]) >= MIN_DEGREE:
            assert member.replica == was.replica
        if was is not None and member.gpu in record.home:
            assert record.home[member.gpu] == was.replica


def check(record: Record, plan_index: int) -> None:
    """What every record promises."""
    plan, placement = PLANS[plan_index], record.placement
    for entry in placement.replicas:
        assert MIN_DEGREE <= entry.degree <= DEGREE
    assert sum(placement.shares) == 12
    moves = transfer_of(plan, record)
    if record.step == 0:
        return
    assert not moves.missing
    holds = {
        gpu: {(f.name, u) for f in plan.families for u in f.at(degree).held[label]}
        for gpu, (degree, label) in record.holdings.items()
    }
    for move in moves.moves:
        assert (move.family, move.unit) in holds[move.source]
    degrees = {entry.replica: entry.degree for entry in placement.replicas}
    for member in placement.members():
        got = [(m.family, m.unit) for m in moves.moves if m.target == member.gpu]
        assert len(got) == len(set(got))
        has = holds.get(member.gpu, set())
        assert not has & set(got)
        degree = degrees[member.replica]
        wants = {(f.name, u) for f in plan.families for u in f.at(degree).held[member.label]}
        assert wants <= has | set(got)


HURT = [gpu for gpu in GPUS if gpu.startswith("0/")]
CHANGES = st.tuples(
    st.sampled_from(["lose", "lose", "return", "return", "drain"]),
    st.sampled_from(GPUS) | st.sampled_from(HURT),
    st.sampled_from([False, False, True]),  # whether the generation comes to a commit
    st.sets(st.sampled_from(HURT)),  # else who has settled when it is cut short
)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1), st.integers(0, SPARES), st.lists(CHANGES, min_size=3, max_size=12))
def test_every_history_goes_on_or_ends_with_a_reason(
    plan_index: int, spares: int, changes: list[tuple[str, str, bool, set[str]]]
) -> None:
    history = History(plan_index, ClusterState(REPLICAS, DEGREE, spares=spares))
    history.regroup()
    history.commit()
    for kind, gpu, commits, settled in changes:
        if parse_gpu(gpu) not in replace(history.state, down=frozenset()).healthy():
            continue
        history.change(kind, gpu)
        before = history.record
        try:
            history.regroup()
        except RunFailed:
            return
        assert history.record is not None
        check_places(before, history.record, history.state)
        check(history.record, plan_index)
        history.settle(settled & set(history.living))
        if commits:
            history.commit()


def test_a_unit_is_only_lost_when_nobody_alive_holds_it() -> None:
    """Two replicas may lose different labels in one change, but not the same one."""
    for second, lost in (("1/1", False), ("1/2", True)):
        history = History(0)
        history.regroup()
        history.commit()
        for gpu in ("0/2", second):
            history.state = history.state.apply(HealthEvent("failed", parse_gpu(gpu)))
            history.held.pop(gpu)
        if lost:
            with pytest.raises(RunFailed, match="no living GPU holds"):
                history.regroup()
        else:
            history.regroup()
            assert history.record is not None
            check(history.record, 0)
