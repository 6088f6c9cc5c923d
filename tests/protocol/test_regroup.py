"""From who is alive and what it holds to the record of the next generation."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from standins.shards import KV_GROUPS, SHARED_KV, plan_of

from nonuniform.cluster.health import ClusterState
from nonuniform.cluster.topology import Gpu
from nonuniform.errors import RunFailed
from nonuniform.layout.cuts import ModelPlan
from nonuniform.placement.ntp import NtpOptions
from nonuniform.placement.placement import Placement, ReplicaPlacement
from nonuniform.protocol.record import Position, Record, Report
from nonuniform.protocol.regroup import digest_of, next_record, transfer_of

PLAN = plan_of(KV_GROUPS, 4, 2)
OPTIONS = NtpOptions(min_degree=2, sequences=12)
STEP = 6


def cluster(*down: str, replicas: int = 2, degree: int = 4) -> ClusterState:
    gpus = [Gpu(*map(int, gpu.split("/"))) for gpu in down]
    return ClusterState(replicas, degree, frozenset(gpus))


def full(*gone: str, replicas: int = 2, step: int = STEP) -> list[Report]:
    """Everybody's report after a generation of all GPUs, without those that are gone."""
    everyone = [Report(f"{r}/{i}", step, 4, i) for r in range(replicas) for i in range(4)]
    return [report for report in everyone if report.gpu not in gone]


def record_of(
    state: ClusterState, reports: list[Report], step: int = STEP, plan: ModelPlan = PLAN
) -> Record:
    record, reason = next_record(plan, OPTIONS, state, reports, Position(step, 0), 2)
    assert reason
    return record


def gpus_of(record: Record, replica: int) -> tuple[str, ...]:
    return next(entry.gpus for entry in record.placement.replicas if entry.replica == replica)


def receivers(record: Record) -> set[str]:
    return {move.target for move in transfer_of(PLAN, record).moves}


def test_the_first_record_needs_no_reports() -> None:
    record, reason = next_record(PLAN, OPTIONS, cluster(), [], Position(0, 0), 1)
    assert [entry.gpus for entry in record.placement.replicas] == [
        ("0/0", "0/1", "0/2", "0/3"),
        ("1/0", "1/1", "1/2", "1/3"),
    ]
    assert (record.generation, record.step, record.validated) == (1, 0, 0)
    assert (record.holdings, record.home) == ({}, {})
    assert record.placement.shares == (6, 6)
    assert "healthy" in reason


def test_when_the_last_label_is_lost_survivors_keep_theirs_and_only_append() -> None:
    record = record_of(cluster("0/3"), full("0/3"))
    assert gpus_of(record, 0) == ("0/0", "0/1", "0/2")
    assert gpus_of(record, 1) == ("1/0", "1/1", "1/2", "1/3")
    assert receivers(record) <= {"0/0", "0/1", "0/2"}
    senders = {move.source for move in transfer_of(PLAN, record).moves}
    assert senders == {"1/3"}  # the one copy of what 0/3 held
    assert record.placement.shares == (5, 7)
    assert record.step == STEP


def test_when_another_label_is_lost_the_last_one_takes_it() -> None:
    record = record_of(cluster("0/1"), full("0/1"))
    assert gpus_of(record, 0) == ("0/0", "0/3", "0/2")


def test_of_several_losses_only_those_beyond_the_end_move() -> None:
    record = record_of(cluster("0/0", "0/2", "1/3"), full("0/0", "0/2", "1/3"))
    assert gpus_of(record, 0) == ("0/3", "0/1")
    assert gpus_of(record, 1) == ("1/0", "1/1", "1/2")
    assert record.placement.sync_degree == 2


def test_a_gpu_that_returns_gets_the_free_label_and_all_its_units() -> None:
    reports = [Report(f"0/{gpu}", STEP, 3, label) for label, gpu in enumerate((0, 3, 2))]
    reports += [Report(f"1/{i}", STEP, 4, i) for i in range(4)]
    record = record_of(cluster(), reports)
    assert gpus_of(record, 0) == ("0/0", "0/3", "0/2", "0/1")
    assert "0/1" not in record.holdings
    assert "0/1" in receivers(record)
    got = {(m.family, m.unit) for m in transfer_of(PLAN, record).moves if m.target == "0/1"}
    wanted = {(family.name, unit) for family in PLAN.families for unit in family.at(4).held[3]}
    assert got == wanted


def test_a_replica_below_the_least_degree_is_dissolved_and_later_rebuilt() -> None:
    down = ("0/0", "0/1", "0/2")
    record = record_of(cluster(*down), full(*down))
    assert [entry.replica for entry in record.placement.replicas] == [1]
    assert record.placement.spares == ("0/3",)
    assert record.placement.shares == (12,)
    # 0/3 has nothing any more when 0/1 returns; all comes from replica 1.
    reports = [Report(f"1/{i}", STEP + 2, 4, i) for i in range(4)]
    reports.append(Report("0/3", step=-1, degree=0, label=0))
    rebuilt = record_of(cluster("0/0", "0/2"), reports, STEP + 2)
    assert gpus_of(rebuilt, 0) == ("0/1", "0/3")
    assert rebuilt.placement.spares == ()
    moves = transfer_of(PLAN, rebuilt).moves
    assert {move.target for move in moves} == {"0/1", "0/3"}
    assert {move.source for move in moves} == {f"1/{i}" for i in range(4)}
    assert "0/3" not in rebuilt.holdings


def test_labels_follow_the_degree_that_most_hold_after_a_regroup_cut_short() -> None:
    """0/3 was lost, then 1/2 before all of replica 0 had been cut anew."""
    reports = [Report("0/0", STEP, 3, 0), Report("0/1", STEP, 4, 1), Report("0/2", STEP, 3, 2)]
    reports += [Report(f"1/{i}", STEP, 4, i) for i in (0, 1, 3)]
    record = record_of(cluster("0/3", "1/2"), reports)
    assert gpus_of(record, 0) == ("0/0", "0/1", "0/2")
    assert gpus_of(record, 1) == ("1/0", "1/1", "1/3")
    assert record.holdings["0/1"] == (4, 1)
    needs = {(m.family, m.unit) for m in transfer_of(PLAN, record).moves if m.target == "0/1"}
    lacks = {
        (family.name, unit)
        for family in PLAN.families
        for unit in set(family.at(3).held[1]) - set(family.at(4).held[1])
    }
    assert needs == lacks


def test_two_gpus_that_hold_the_same_place_are_both_used() -> None:
    """Two regroups cut short: 0/1 still has label 3 of the old degree 4, 0/3 got it anew."""
    reports = [Report("0/0", STEP, 4, 0), Report("0/1", STEP, 4, 3), Report("0/3", STEP, 4, 3)]
    reports += [Report(f"1/{i}", STEP, 4, i) for i in range(4)]
    record = record_of(cluster("0/2"), reports)
    assert sorted(gpus_of(record, 0)) == ["0/0", "0/1", "0/3"]
    assert set(record.holdings) == {report.gpu for report in reports}


def test_what_is_stale_is_no_source_and_no_reason_for_a_label() -> None:
    reports = full("0/3")
    reports[1] = replace(reports[1], step=STEP - 1)
    record = record_of(cluster("0/3"), reports)
    assert "0/1" not in record.holdings
    assert "0/1" not in record.home
    assert gpus_of(record, 0) == ("0/0", "0/1", "0/2")
    moves = transfer_of(PLAN, record).moves
    assert "0/1" not in {move.source for move in moves}
    got = {(m.family, m.unit) for m in moves if m.target == "0/1"}
    assert got == {(f.name, unit) for f in PLAN.families for unit in f.at(3).held[1]}


def test_units_that_nobody_holds_end_the_run_by_name() -> None:
    state = cluster("0/1", replicas=1)
    with pytest.raises(RunFailed, match=r"after step 6 no living GPU holds .*ffn \d") as error:
        record_of(state, full("0/1", replicas=1))
    assert "\n" not in str(error.value)


def test_few_lost_units_are_all_named() -> None:
    """Both holders of the same label die: four units of the model are in no memory."""
    gone = ("0/3", "1/3")
    with pytest.raises(RunFailed) as error:
        record_of(cluster(*gone), full(*gone))
    lost = [(f.name, u) for f in PLAN.families for u in f.at(4).held[3] if f.name != "replicated"]
    named = [f"{family} {unit}" for family, unit in sorted(lost)]
    assert ", ".join(named[:4]) in str(error.value)
    if len(named) > 4:
        assert f"and {len(named) - 4} more" in str(error.value)


def test_before_the_first_commit_nothing_can_be_lost() -> None:
    record = record_of(cluster("0/1", replicas=1), full("0/1", replicas=1, step=0), step=0)
    assert gpus_of(record, 0) == ("0/0", "0/3", "0/2")


def test_when_no_replica_is_left_the_run_ends() -> None:
    with pytest.raises(RunFailed, match="no replica is left"):
        record_of(cluster("0/0", "0/1", "0/2", replicas=1), [])


def test_the_digest_covers_placement_and_layout() -> None:
    whole = record_of(cluster(), full())
    hurt = record_of(cluster("0/3"), full("0/3"))
    assert whole.digest != hurt.digest
    other = plan_of(SHARED_KV, 3)
    assert digest_of(PLAN, whole.placement) != digest_of(other, whole.placement)
    assert digest_of(PLAN, whole.placement) == whole.digest


def after(
    before: Placement,
    state: ClusterState,
    reports: list[Report],
    lenders: tuple[str, ...] = (),
) -> Record:
    position = Position(STEP, 0)
    record, _ = next_record(PLAN, OPTIONS, state, reports, position, 3, before, lenders)
    return record


WHOLE = record_of(cluster(), full()).placement
THREE = record_of(cluster(replicas=3), full(replicas=3)).placement


def arriving(record: Record, gpu: str) -> set[tuple[str, int]]:
    return {(m.family, m.unit) for m in transfer_of(PLAN, record).moves if m.target == gpu}


def all_of(degree: int, label: int) -> set[tuple[str, int]]:
    return {
        (family.name, unit) for family in PLAN.families for unit in family.at(degree).held[label]
    }


def test_a_borrowed_gpu_that_holds_the_lost_shard_takes_its_label_and_needs_nothing() -> None:
    down = ("0/0", "0/1", "0/3", "1/2")
    record = after(WHOLE, cluster(*down), full(*down))
    assert [row.gpus for row in record.placement.replicas] == [("1/0", "1/1", "0/2", "1/3")]
    assert transfer_of(PLAN, record).moves == ()
    assert record.home["0/2"] == 0, "in which it has worked until now"


def test_a_borrowed_gpu_takes_the_label_it_holds_among_several_that_are_free() -> None:
    """Replica 1 ran at degree 4 of 6; a spare and one with label 5 of degree 6 make it whole."""
    plan, options = plan_of(KV_GROUPS, 6, 3), NtpOptions(min_degree=3, sequences=12)
    six, four = (tuple(f"{r}/{i}" for i in range(n)) for r, n in ((0, 6), (1, 4)))
    before = Placement((ReplicaPlacement(0, six, 8), ReplicaPlacement(1, four, 4)))
    reports = [Report("0/5", STEP, 6, 5), *(Report(gpu, STEP, 4, i) for i, gpu in enumerate(four))]
    state = replace(cluster(*six[:5], "1/4", "1/5", degree=6), spares=1)
    record, _ = next_record(plan, options, state, reports, Position(STEP, 0), 3, before)
    assert gpus_of(record, 1) == (*four, "2/0", "0/5")
    moves = transfer_of(plan, record).moves
    assert "0/5" not in {move.target for move in moves}
    assert "2/0" in {move.target for move in moves}


def test_a_borrowed_shard_counts_also_where_the_degree_falls() -> None:
    """1/1 and 1/2 are lost, label 1 of replica 0 comes: it has all but what label 3 hands out."""
    down = ("0/0", "0/2", "0/3", "1/1", "1/2")
    record = after(THREE, cluster(*down, replicas=3), full(*down, replicas=3))
    assert gpus_of(record, 1) == ("1/0", "0/1", "1/3")
    assert arriving(record, "0/1") == all_of(3, 1) - all_of(4, 1)


def test_who_belongs_to_a_replica_keeps_the_label_that_a_borrowed_one_also_holds() -> None:
    down = ("0/0", "0/1", "0/3", "1/3")
    record = after(THREE, cluster(*down, replicas=3), full(*down, replicas=3))
    assert gpus_of(record, 1) == ("1/0", "1/1", "1/2", "0/2")
    assert arriving(record, "0/2") == all_of(4, 3) - all_of(4, 2)


def test_a_spare_joins_with_nothing_and_is_at_home_where_it_works() -> None:
    record = after(WHOLE, replace(cluster("1/2"), spares=1), full("1/2"))
    assert gpus_of(record, 1) == ("1/0", "1/1", "2/0", "1/3")
    assert arriving(record, "2/0") == all_of(4, 2)
    assert {move.source for move in transfer_of(PLAN, record).moves} <= {
        *("1/0", "1/1", "1/3"),
        "0/2",
    }
    reports = [Report(m.gpu, STEP, 4, m.label) for m in record.placement.members()]
    again = after(record.placement, replace(cluster("1/2"), spares=1), reports)
    assert again.placement == record.placement
    assert again.home["2/0"] == 1
    assert transfer_of(PLAN, again).moves == ()


def test_a_drained_gpu_lends_what_only_it_holds_and_has_no_work() -> None:
    """The only replica shrinks by one that still runs: nothing is lost."""
    state = cluster("0/1", replicas=1)
    before = Placement((ReplicaPlacement(0, ("0/0", "0/1", "0/2", "0/3"), 12),))
    reports = full(replicas=1)
    with pytest.raises(RunFailed, match="no living GPU holds"):
        after(before, state, reports)
    for known_as_down in (True, False):
        seen = state if known_as_down else cluster(replicas=1)
        record = after(before, seen, reports, lenders=("0/1",))
        assert record.placement.where("0/1") is None
        assert record.placement.spares == ()
        lent = {(m.family, m.unit) for m in transfer_of(PLAN, record).moves if m.source == "0/1"}
        assert lent == {unit for unit in all_of(4, 1) if unit[0] != "replicated"}


def test_a_lender_sends_nothing_that_another_one_can_send() -> None:
    record = after(WHOLE, cluster("0/1"), full(), lenders=("0/1",))
    assert record.holdings["0/1"] == (4, 1)
    assert "0/1" not in {move.source for move in transfer_of(PLAN, record).moves}


reports_strategy = st.permutations(full("0/1", "1/3"))


@settings(max_examples=30)
@given(reports_strategy)
def test_the_order_of_reports_does_not_matter(reports: list[Report]) -> None:
    state = cluster("0/1", "1/3")
    one, other = record_of(state, reports), record_of(state, full("0/1", "1/3"))
    assert one == other
    assert transfer_of(PLAN, one) == transfer_of(PLAN, other)


@settings(max_examples=40)
@given(st.sets(st.sampled_from([r.gpu for r in full()]), max_size=3), st.integers(0, 2))
def test_a_record_survives_the_store(down: set[str], validated: int) -> None:
    position = Position(STEP, validated)
    try:
        record, _ = next_record(PLAN, OPTIONS, cluster(*down), full(*down), position, 5)
    except RunFailed:
        return
    again = Record.from_json(record.to_json())
    assert again == record
    assert Record.from_json(record.to_json().encode()) == record
    assert again.to_json() == record.to_json()
    assert transfer_of(PLAN, again) == transfer_of(PLAN, record)


@settings(max_examples=40)
@given(st.sets(st.sampled_from([r.gpu for r in full()]), max_size=3))
def test_the_record_names_those_who_take_part_in_an_exchange(down: set[str]) -> None:
    """Who sends or receives, and of a replica inside which units move the whole crew."""
    try:
        record = record_of(cluster(*down), full(*down))
    except RunFailed:
        return
    moves = transfer_of(PLAN, record)
    crews = [set(entry.gpus) for entry in record.placement.replicas]
    inside = [c for c in crews if any({m.source, m.target} <= c for m in moves.moves)]
    assert set(record.moving) == set(moves.gpus()).union(*inside)
    assert list(record.moving) == sorted(record.moving)


def test_a_large_job_is_gone_through_a_few_times_and_not_once_for_each_gpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With 2,048 GPUs once for each took five seconds, in which everybody stands still."""
    replicas = 64
    options, position = NtpOptions(2, sequences=3 * replicas), Position(STEP, 0)
    whole, reports = cluster(replicas=replicas), full(replicas=replicas)
    before = next_record(PLAN, options, whole, reports, position, 2)[0].placement
    walks: list[int] = []
    members = Placement.members
    monkeypatch.setattr(Placement, "members", lambda p: walks.append(1) or members(p))
    hurt, left = cluster("5/1", replicas=replicas), full("5/1", replicas=replicas)
    next_record(PLAN, options, hurt, left, position, 3, before)
    assert 0 < len(walks) < 10
