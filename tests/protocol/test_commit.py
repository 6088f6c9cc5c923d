"""The step transaction: what comes next, when it is committed, what is written down."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nonuniform.errors import RunFailed
from nonuniform.protocol.commit import (
    Outcome,
    Vote,
    Work,
    WorkOptions,
    decide,
    step_totals,
    work_after,
)

GPUS = ("0/0", "0/1", "0/2", "1/0", "1/1")


def vote(gpu: str, **changes: object) -> Vote:
    base = Vote(gpu, 3, "train", 7, "digest", 10.0, 4, 0.5, True)
    return replace(base, **changes)  # type: ignore[arg-type]


def outcome(
    votes: dict[str, Vote], living: set[str], members: tuple[str, ...] = GPUS
) -> tuple[Outcome, str]:
    return decide(votes, living, members, generation=3, step=7, digest="digest")


def test_validation_comes_after_its_steps_and_after_the_last() -> None:
    options = WorkOptions(steps=5, val_every=2)
    step = validated = 0
    done = []
    while (work := work_after(step, validated, options)).kind != "done":
        done.append((work.kind, work.step))
        if work.kind == "train":
            step = work.step
        else:
            validated = work.step
    kinds = [("train", 1), ("train", 2), ("validate", 2), ("train", 3), ("train", 4)]
    assert done == [*kinds, ("validate", 4), ("train", 5), ("validate", 5)]
    assert work == Work("done", 5)


@given(st.integers(1, 30), st.integers(0, 8))
def test_every_step_is_trained_once_and_every_run_ends(steps: int, val_every: int) -> None:
    options = WorkOptions(steps, val_every)
    step = validated = 0
    trained, measured = [], []
    for _ in range(2 * steps + 1):
        work = work_after(step, validated, options)
        if work.kind == "train":
            step = work.step
            trained.append(step)
        elif work.kind == "validate":
            validated = work.step
            measured.append(validated)
    assert work.kind == "done"
    assert trained == list(range(1, steps + 1))
    due = [s for s in trained if val_every and (s % val_every == 0 or s == steps)]
    assert measured == due


def test_a_run_that_went_back_to_a_checkpoint_validates_again() -> None:
    assert work_after(30, 40, WorkOptions(50, 10)) == Work("validate", 30)
    assert work_after(31, 40, WorkOptions(50, 10)) == Work("train", 32)


STATES = ("voted", "late", "silent")


@pytest.mark.parametrize("living_count", range(4))
def test_all_cases_of_three_ranks(living_count: int) -> None:
    """Every rank has voted, voted for an older step, or not at all, and lives or not."""
    members = GPUS[:3]
    living = set(members[:living_count])
    for states in product(STATES, repeat=3):
        votes = {
            gpu: vote(gpu, step=7 if state == "voted" else 6)
            for gpu, state in zip(members, states, strict=True)
            if state != "silent"
        }
        voted = {gpu for gpu, state in zip(members, states, strict=True) if state == "voted"}
        found, reason = outcome(votes, living, members)
        if living and living <= voted:
            assert found == Outcome.COMMIT
        elif living_count < 3:
            assert found == Outcome.ABORT
        else:
            assert found == Outcome.WAIT
        assert reason


def test_reasons_name_the_ranks() -> None:
    votes = {gpu: vote(gpu) for gpu in GPUS[:3]}
    assert outcome(votes, set(GPUS)) == (Outcome.WAIT, "waiting for 1/0, 1/1")
    assert outcome(votes, {"0/0", "0/1", "0/2", "1/0"}) == (
        Outcome.ABORT,
        "1/1 died and 1/0 had not voted",
    )
    assert outcome(votes, set(GPUS[:3])) == (
        Outcome.COMMIT,
        "all 3 living members voted, 1/0, 1/1 died",
    )
    everyone = {gpu: vote(gpu) for gpu in GPUS}
    assert outcome(everyone, set(GPUS)) == (Outcome.COMMIT, "all 5 living members voted")


def test_a_voter_that_died_does_not_undo_the_step() -> None:
    votes = {gpu: vote(gpu) for gpu in GPUS}
    for gpu in GPUS:
        assert outcome(votes, set(GPUS) - {gpu})[0] == Outcome.COMMIT


def test_nobody_alive_commits_nothing() -> None:
    votes = {gpu: vote(gpu) for gpu in GPUS}
    assert outcome(votes, set()) == (Outcome.ABORT, "none of 5 members is alive")


def test_spares_and_late_votes_of_other_generations_do_not_count() -> None:
    votes = {gpu: vote(gpu) for gpu in GPUS[:4]}
    votes["9/9"] = vote("9/9")
    votes["1/1"] = vote("1/1", generation=2, digest="old")
    assert outcome(votes, {*GPUS, "9/9", "8/8"}) == (Outcome.WAIT, "waiting for 1/1")


def test_another_digest_is_an_error_that_names_both() -> None:
    votes = {gpu: vote(gpu) for gpu in GPUS}
    votes["0/2"] = vote("0/2", digest="other")
    with pytest.raises(RunFailed, match="0/2 voted for placement other, the run has digest"):
        outcome(votes, set(GPUS))


def test_votes_to_train_and_to_validate_do_not_mix() -> None:
    votes = {gpu: vote(gpu) for gpu in GPUS}
    votes["0/2"] = vote("0/2", kind="validate")
    with pytest.raises(RunFailed, match=r'"train" by .* and "validate" by 0/2'):
        outcome(votes, set(GPUS))


@given(
    st.sets(st.sampled_from(GPUS)),
    st.sets(st.sampled_from(GPUS)),
    st.lists(st.sampled_from(GPUS)),
)
def test_more_votes_and_more_deaths_never_undo_a_commit(
    voted: set[str], living: set[str], deaths: list[str]
) -> None:
    """Two launchers that look one after the other must not decide differently after a commit."""
    votes = {gpu: vote(gpu) for gpu in voted}
    if outcome(votes, living)[0] != Outcome.COMMIT:
        return
    later = {gpu: vote(gpu) for gpu in GPUS if gpu in voted or gpu in living}
    survivors = living - set(deaths)
    if survivors:
        assert outcome(later, survivors)[0] == Outcome.COMMIT


def test_the_loss_is_the_mean_over_tokens() -> None:
    votes = {gpu: vote(gpu, loss_sum=8.0, tokens=4) for gpu in GPUS}
    totals = step_totals(votes, "digest")
    assert (totals.loss, totals.tokens, totals.grad_norm, totals.finite) == (2.0, 4, 0.5, True)


@given(st.permutations(GPUS), st.sets(st.sampled_from(GPUS), min_size=1))
def test_any_votes_in_any_order_have_the_same_totals(order: list[str], voted: set[str]) -> None:
    """Every vote speaks of the whole step, so the dead need not have voted."""
    votes = {gpu: vote(gpu) for gpu in order if gpu in voted}
    assert step_totals(votes, "digest") == step_totals({"0/0": vote("0/0")}, "digest")


@pytest.mark.parametrize("name", ["loss_sum", "grad_norm"])
def test_ranks_must_agree_to_the_last_bit(name: str) -> None:
    mine = getattr(vote("0/0"), name)
    other = math.nextafter(mine, math.inf)
    votes = {gpu: vote(gpu) for gpu in GPUS} | {"1/0": vote("1/0", **{name: other})}
    with pytest.raises(
        RunFailed, match=rf"disagree on {name}: 0/0 has {mine!r}, 1/0 has {other!r}"
    ):
        step_totals(votes, "digest")


def test_ranks_that_saw_different_tokens_end_the_run() -> None:
    votes = {gpu: vote(gpu) for gpu in GPUS} | {"0/2": vote("0/2", tokens=5)}
    with pytest.raises(RunFailed, match=r"disagree on tokens: 0/0 has 4\.0, 0/2 has 5\.0"):
        step_totals(votes, "digest")


def test_a_vote_for_another_placement_ends_the_run() -> None:
    votes = {gpu: vote(gpu) for gpu in GPUS} | {"0/2": vote("0/2", digest="other")}
    with pytest.raises(RunFailed, match="0/2 voted for placement other, the run has digest"):
        step_totals(votes, "digest")


def test_a_non_finite_step_has_totals_too() -> None:
    votes = {gpu: vote(gpu, grad_norm=math.nan, loss_sum=math.nan, finite=False) for gpu in GPUS}
    totals = step_totals(votes, "digest")
    assert not totals.finite
    assert math.isnan(totals.loss)
    assert math.isnan(totals.grad_norm)


def test_no_votes_and_no_tokens_have_no_loss() -> None:
    with pytest.raises(RunFailed, match="without a vote"):
        step_totals({}, "digest")
    with pytest.raises(RunFailed, match="no target counts"):
        step_totals({"0/0": vote("0/0", tokens=0)}, "digest")


@given(st.floats(), st.floats(), st.integers(0, 2**40), st.booleans())
def test_a_vote_reads_back_bit_for_bit(
    loss_sum: float, grad_norm: float, tokens: int, finite: bool
) -> None:
    sent = vote("0/0", loss_sum=loss_sum, grad_norm=grad_norm, tokens=tokens, finite=finite)
    text = json.dumps(sent.to_json(), allow_nan=False)
    read = Vote.from_json(json.loads(text))
    assert (read.loss_sum.hex(), read.grad_norm.hex()) == (loss_sum.hex(), grad_norm.hex())
    assert replace(read, loss_sum=0.0, grad_norm=0.0) == replace(sent, loss_sum=0.0, grad_norm=0.0)
