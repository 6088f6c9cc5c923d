"""The life of one rank in one generation: every transition, and none that is not there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nonuniform.protocol import rank as ranks
from nonuniform.protocol.commit import Work, WorkOptions
from nonuniform.protocol.outcome import ABORT, COMMIT, COMMIT_AND_REGROUP
from nonuniform.protocol.rank import ENDS, Rank, Stage

OPTIONS = WorkOptions(steps=4, val_every=2)
FRESH = Rank(members=3, step=0, validated=0, options=OPTIONS)
Transition = Callable[[Rank], Rank]


def at(stage: Stage, **changes: object) -> Rank:
    return replace(FRESH, stage=stage, **changes)  # type: ignore[arg-type]


STEPS: list[tuple[Stage, Transition, Stage]] = [
    (Stage.WORK, ranks.worked, Stage.VOTE),
    (Stage.WORK, ranks.given_up, Stage.OVER),
    (Stage.VOTE, ranks.voted, Stage.COUNT),
    (Stage.COUNT, lambda rank: ranks.counted(rank, 2), Stage.WAIT),
    (Stage.COUNT, lambda rank: ranks.counted(rank, 3), Stage.LOOK),
    (Stage.COUNT, lambda rank: ranks.counted(rank, 4), Stage.LOOK),
    (Stage.LOOK, lambda rank: ranks.looked(rank, complete=True, pause=False), Stage.DECIDE),
    (Stage.LOOK, lambda rank: ranks.looked(rank, complete=True, pause=True), Stage.DECIDE),
    (Stage.LOOK, lambda rank: ranks.looked(rank, complete=False, pause=True), Stage.WAIT),
    (Stage.DECIDE, ranks.proposed, Stage.WAIT),
    (Stage.WAIT, lambda rank: ranks.decided(rank, COMMIT), Stage.APPLY),
    (Stage.WAIT, lambda rank: ranks.decided(rank, COMMIT_AND_REGROUP), Stage.APPLY),
    (Stage.WAIT, lambda rank: ranks.decided(rank, ABORT), Stage.OVER),
    (Stage.APPLY, ranks.applied, Stage.WORK),
]


@pytest.mark.parametrize(("stage", "move", "to"), STEPS)
def test_each_transition_leads_where_it_should(stage: Stage, move: Transition, to: Stage) -> None:
    assert move(at(stage)).stage is to


@pytest.mark.parametrize(("stage", "move", "to"), STEPS)
def test_a_transition_from_any_other_stage_is_our_own_fault(
    stage: Stage, move: Transition, to: Stage
) -> None:
    for other in Stage:
        if other is not stage:
            with pytest.raises(AssertionError, match=f"{other} where {stage} was expected"):
                move(at(other))


@pytest.mark.parametrize(
    ("step", "validated", "work", "stage"),
    [
        (0, 0, Work("train", 1), Stage.WORK),
        (1, 0, Work("train", 2), Stage.WORK),
        (2, 0, Work("validate", 2), Stage.WORK),
        (2, 2, Work("train", 3), Stage.WORK),
        (4, 2, Work("validate", 4), Stage.WORK),
        (4, 4, Work("done", 4), Stage.DONE),
    ],
)
def test_a_rank_enters_with_the_work_that_follows_from_what_it_holds(
    step: int, validated: int, work: Work, stage: Stage
) -> None:
    rank = ranks.settled(3, step, validated, OPTIONS)
    assert (rank.work, rank.stage) == (work, stage)


@pytest.mark.parametrize(("pause", "wish"), [(False, COMMIT), (True, COMMIT_AND_REGROUP)])
def test_the_last_voter_proposes_what_is_wished_for(pause: bool, wish: str) -> None:
    assert ranks.looked(at(Stage.LOOK), complete=True, pause=pause).wish == wish


def test_what_was_decided_counts_and_not_what_was_proposed() -> None:
    """Another one was faster, and had not seen the wish to pause, or had."""
    for mine, theirs, stage in (
        (COMMIT_AND_REGROUP, COMMIT, Stage.WORK),
        (COMMIT, COMMIT_AND_REGROUP, Stage.REST),
    ):
        rank = ranks.proposed(at(Stage.DECIDE, wish=mine))
        assert ranks.applied(ranks.decided(rank, theirs)).stage is stage
    assert ranks.decided(at(Stage.WAIT, wish=COMMIT), ABORT).stage is Stage.OVER


@pytest.mark.parametrize(
    ("step", "validated", "after", "stage"),
    [
        (0, 0, (1, 0), Stage.REST),
        (1, 0, (2, 0), Stage.REST),
        (2, 0, (2, 2), Stage.REST),
        (3, 2, (4, 2), Stage.REST),
        (4, 2, (4, 4), Stage.DONE),
    ],
)
def test_after_a_commit_that_asks_for_a_regroup_a_rank_rests_unless_all_is_done(
    step: int, validated: int, after: tuple[int, int], stage: Stage
) -> None:
    rank = at(Stage.APPLY, step=step, validated=validated, wish=COMMIT_AND_REGROUP)
    moved = ranks.applied(rank)
    assert ((moved.step, moved.validated), moved.stage) == (after, stage)


def test_a_step_that_is_aborted_or_given_up_leaves_the_rank_where_it_was() -> None:
    for moved in (
        ranks.decided(at(Stage.WAIT, step=3), ABORT),
        ranks.given_up(at(Stage.WORK, step=3)),
    ):
        assert (moved.step, moved.validated) == (3, 0)


@settings(deadline=None)  # other processes take the time
@given(
    members=st.integers(1, 5),
    steps=st.integers(0, 6),
    val_every=st.integers(0, 3),
    choices=st.lists(
        st.sampled_from([COMMIT, COMMIT, COMMIT, COMMIT_AND_REGROUP, ABORT]), max_size=40
    ),
)
def test_a_life_ends_and_applies_each_work_once_and_in_order(
    members: int, steps: int, val_every: int, choices: list[str]
) -> None:
    rank = ranks.settled(members, 0, 0, WorkOptions(steps, val_every))
    done: list[Work] = []
    outcomes = iter(choices)
    for _ in range(200):
        if rank.stage in ENDS:
            break
        outcome = next(outcomes, COMMIT)
        rank = ranks.counted(ranks.voted(ranks.worked(rank)), members - 1)
        rank = ranks.decided(rank, outcome)
        if rank.stage is Stage.APPLY:
            done.append(rank.work)
            rank = ranks.applied(rank)
    assert rank.stage in ENDS
    trained = [work.step for work in done if work.kind == "train"]
    assert trained == list(range(1, rank.step + 1))
    assert len(set(done)) == len(done)
    if rank.stage is Stage.DONE:
        assert rank.step == steps
        assert rank.validated == (steps if val_every else 0)
        validated = [work.step for work in done if work.kind == "validate"]
        due = {step for step in trained if val_every and (step % val_every == 0 or step == steps)}
        assert validated == sorted(due)
