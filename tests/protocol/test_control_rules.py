"""Single rules of the control: what exceptions cost, what a rewind and a drain undo."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nonuniform.cluster.health import ClusterState
from nonuniform.cluster.quarantine import FlapOptions, Quarantine
from nonuniform.placement.placement import Placement, ReplicaPlacement
from nonuniform.protocol.commit import Vote, WorkOptions
from nonuniform.protocol.control import advance
from nonuniform.protocol.events import (
    Decided,
    Drained,
    Ended,
    Event,
    Found,
    Order,
    Reported,
    Returned,
    Rewind,
    Start,
    Tick,
)
from nonuniform.protocol.outcome import ABORT, COMMIT
from nonuniform.protocol.processes import SETTLING_TRIES
from nonuniform.protocol.record import Position, Record, Report
from nonuniform.protocol.state import Control, Options, Phase, Regroup

GPUS = tuple(f"{replica}/0" for replica in range(8))


def place(cluster: ClusterState, before: Placement) -> Placement:
    return Placement(
        tuple(ReplicaPlacement(gpu.replica, (str(gpu),), 1) for gpu in cluster.healthy())
    )


def regroup(proposal: Regroup) -> tuple[Record, str]:
    """Everybody who is well goes on by itself: each replica is one GPU."""
    position = proposal.position
    holdings = {report.gpu: (report.degree, report.label) for report in proposal.reports}
    record = Record(
        proposal.generation,
        place(proposal.cluster, proposal.before),
        position.step,
        position.validated,
        "digest",
        holdings,
        dict.fromkeys(holdings, 0),
        load=proposal.load,
    )
    return record, "regrouped"


def running() -> Control:
    cluster = ClusterState(len(GPUS), 1)
    placement = place(cluster, Placement((ReplicaPlacement(0, (GPUS[0],), 1),)))
    lives = dict.fromkeys(GPUS, 1)
    options = Options(
        work=WorkOptions(steps=20),
        regroup=regroup,
        place=place,
        savers=lambda record: (),
        lenders=lambda record: (),
        samples=lambda work: (3, 1),
    )
    return Control(
        options,
        Record(1, placement, 4, 0, "digest", {}, {}, lives),
        cluster,
        Position(4, 0),
        Quarantine(FlapOptions(0, 100.0, 50.0, 50.0)),
        living=lives,
        settled=frozenset(GPUS),
    )


def after(state: Control, *events: Event, now_s: float = 0.0) -> tuple[Control, list[Order]]:
    orders: list[Order] = []
    for event in events:
        state, more = advance(state, event, now_s)
        orders += more
    return state, orders


def failing(state: Control, gpu: str, working: bool) -> Control:
    """A member fails by an exception, and the others go on to the next generation, if any."""
    generation = state.record.generation
    boom = Ended(gpu, 1, f"boom of {gpu}", raised=True, working=working)
    state, _ = after(state, boom, Decided(generation, state.work, ABORT))
    return heard(state)


def heard(state: Control) -> Control:
    assert state.phase is Phase.HEARING
    generation, step = state.record.generation, state.position.step
    said = [Reported(Report(gpu, step, 1, 0), 1, generation) for gpu in sorted(state.living)]
    state, _ = after(state, *said)
    return state


# --- exceptions


def test_an_exception_of_the_step_that_comes_again_ends_the_run() -> None:
    state = failing(running(), GPUS[0], working=True)
    assert (state.phase, state.ending, state.record.generation) == (Phase.RUNNING, None, 2)
    state = failing(state, GPUS[1], working=True)
    assert state.ending is not None
    assert state.ending.reason == (
        "step 5 failed by an exception again: boom of 1/0; its samples: 3, 1"
    )
    assert state.phase is Phase.OVER


def test_an_exception_before_a_rank_holds_its_shard_may_be_tried_three_times() -> None:
    """It is not the step's: a group that does not come about may do so the next time."""
    state = running()
    for count in range(SETTLING_TRIES):
        state = failing(state, GPUS[count], working=False)
        assert (state.phase, state.ending) == (Phase.RUNNING, None)
    assert (SETTLING_TRIES, state.record.generation) == (3, 4)
    state = failing(state, GPUS[SETTLING_TRIES], working=False)
    assert state.ending is not None
    assert state.ending.reason.startswith("step 5 failed by an exception again: boom of 3/0")


def test_exceptions_of_both_kinds_are_counted_apart() -> None:
    state = running()
    for count, working in enumerate((False, True, False, False)):
        state = failing(state, GPUS[count], working)
        assert (state.phase, state.ending) == (Phase.RUNNING, None)
    assert failing(state, GPUS[4], working=True).ending is not None
    assert failing(state, GPUS[4], working=False).ending is not None


@pytest.mark.parametrize("working", [True, False])
def test_exceptions_of_one_generation_are_one_try(working: bool) -> None:
    """What one rank throws, its neighbours do, too."""
    boom = [Ended(gpu, 1, "boom", raised=True, working=working) for gpu in GPUS[:5]]
    state, _ = after(running(), *boom)
    assert state.ending is None
    state, _ = after(state, Decided(1, state.work, ABORT))
    state = heard(state)
    assert (state.phase, state.members) == (Phase.RUNNING, GPUS[5:])


def test_after_a_commit_exceptions_are_counted_anew() -> None:
    state = failing(running(), GPUS[0], working=True)
    votes = {gpu: Vote(gpu, 2, "train", 5, "digest", 1.0, 1, 1.0, True) for gpu in state.members}
    state, _ = after(state, Decided(2, state.work, COMMIT, votes))
    assert state.work.step == 6
    state = failing(state, GPUS[1], working=True)
    assert (state.phase, state.ending) == (Phase.RUNNING, None)


# --- a return to a checkpoint


@pytest.mark.parametrize(("saved", "later"), [(8, 4), (4, 4), (2, 2)])
def test_who_goes_back_has_saved_no_more_than_that(saved: int, later: int) -> None:
    """Else the last checkpoint of the steps that are done again would be left out."""
    lost = replace(
        running(), phase=Phase.RECALLING, position=Position(9, 0), saved=saved, why="units lost"
    )
    state, orders = after(lost, Found(Position(4, 3), "step-00000004"))
    assert (state.phase, state.position, state.saved) == (Phase.RUNNING, Position(4, 3), later)
    assert state.record.load == "step-00000004"
    text = "units lost: going on from checkpoint step-00000004, 5 steps are done again"
    assert Rewind(Position(4, 3), text, 5) in orders


# --- drains


def waiting_for_its_quarantine() -> Control:
    state, _ = after(running(), Ended("1/0", 1, "killed"))
    state, _ = after(state, Decided(1, state.work, ABORT))
    state, orders = after(heard(state), Returned("1/0"))
    assert state.waiting == {"1/0": 50.0}
    assert not [order for order in orders if isinstance(order, Start)]
    return state


def test_one_that_waits_comes_back_when_its_quarantine_is_over() -> None:
    state = waiting_for_its_quarantine()
    assert after(state, Tick(), now_s=49.0) == (state, [])
    state, orders = after(state, Tick(), now_s=51.0)
    assert (orders, state.waiting) == ([Start("1/0")], {})


def test_one_that_waits_and_is_drained_does_not_come_back() -> None:
    state = replace(waiting_for_its_quarantine(), paused=False)
    waiting = {**state.waiting, "9/9": 70.0}
    state, orders = after(replace(state, waiting=waiting), Drained("1/0", "XID 79"), now_s=10.0)
    assert state.waiting == {"9/9": 70.0}, "another one still waits"
    assert [getattr(order, "kind", None) for order in orders] == ["drained"]
    assert after(state, Tick(), now_s=60.0) == (state, [])
    _, orders = after(state, Returned("1/0"), now_s=60.0)
    assert orders == [Start("1/0")], "until it is said to be well again"
