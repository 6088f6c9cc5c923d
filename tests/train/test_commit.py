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
from nonuniform.train.commit import (
    Outcome,
    Vote,
    Work,
    WorkOptions,
    decide,
    step_totals,
    total_loss,
    work_after,
)

GPUS = ("0/0", "0/1", "0/2", "1/0", "1/1")
MEMBERS = (("0/0", 0, 0), ("0/1", 0, 1), ("0/2", 0, 2), ("1/1", 1, 0), ("1/0", 1, 1))


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


def test_the_loss_is_the_mean_over_tokens_not_over_replicas() -> None:
    """Replica 0: 3 tokens of loss 1 each; replica 1: one token of loss 5. Mean 2, not 3."""
    votes = {gpu: vote(gpu, loss_sum=3.0, tokens=3) for gpu in GPUS[:3]}
    votes |= {gpu: vote(gpu, loss_sum=5.0, tokens=1) for gpu in GPUS[3:]}
    assert total_loss(votes, MEMBERS) == 2.0
    totals = step_totals(votes, MEMBERS)
    assert (totals.tokens, totals.grad_norm, totals.finite, totals.silent) == (4, 0.5, True, ())


def test_the_lowest_label_that_voted_speaks_for_its_replica() -> None:
    votes = {gpu: vote(gpu, loss_sum=float(n), tokens=1) for n, gpu in enumerate(GPUS)}
    assert total_loss(votes, MEMBERS) == (0.0 + 4.0) / 2, "label 0 of replica 1 is GPU 1/1"
    del votes["0/0"], votes["1/1"]
    assert total_loss(votes, MEMBERS) == (1.0 + 3.0) / 2


@given(st.permutations(GPUS), st.permutations(MEMBERS), st.sets(st.sampled_from(GPUS), min_size=1))
def test_totals_do_not_depend_on_any_order(
    order: list[str], members: list[tuple[str, int, int]], voted: set[str]
) -> None:
    votes = {gpu: vote(gpu, loss_sum=0.1 * (1 + GPUS.index(gpu))) for gpu in GPUS if gpu in voted}
    shuffled = {gpu: votes[gpu] for gpu in order if gpu in votes}
    assert step_totals(shuffled, members) == step_totals(votes, MEMBERS)


def test_a_replica_that_died_as_a_whole_is_reported() -> None:
    totals = step_totals({gpu: vote(gpu) for gpu in GPUS[:2]}, MEMBERS)
    assert (totals.tokens, totals.silent) == (4, (1,))


def test_late_and_foreign_votes_are_not_in_the_totals() -> None:
    votes = {gpu: vote(gpu) for gpu in GPUS[:4]}
    votes["1/1"] = vote("1/1", step=6, tokens=99, grad_norm=9.0, finite=False)
    votes["9/9"] = vote("9/9", tokens=99, finite=False)
    totals = step_totals(votes, MEMBERS)
    assert (totals.tokens, totals.grad_norm, totals.finite) == (8, 0.5, True)


def test_ranks_of_a_replica_that_saw_different_tokens_end_the_run() -> None:
    votes = {gpu: vote(gpu) for gpu in GPUS} | {"0/2": vote("0/2", tokens=5)}
    with pytest.raises(RunFailed, match=r"replica 0 disagree .* 0/0 has 4, 0/2 has 5"):
        total_loss(votes, MEMBERS)


def test_norms_must_be_equal_to_the_last_bit() -> None:
    other = math.nextafter(0.5, 1.0)
    votes = {gpu: vote(gpu) for gpu in GPUS} | {"1/0": vote("1/0", grad_norm=other)}
    with pytest.raises(RunFailed, match=rf"0/0 has 0\.5, 1/0 has {other!r}"):
        total_loss(votes, MEMBERS)


def test_a_non_finite_step_has_totals_too() -> None:
    votes = {gpu: vote(gpu, grad_norm=math.nan, loss_sum=math.nan) for gpu in GPUS}
    votes["0/1"] = replace(votes["0/1"], finite=False)
    totals = step_totals(votes, MEMBERS)
    assert not totals.finite
    assert math.isnan(totals.loss)
    assert math.isnan(totals.grad_norm)


def test_no_votes_have_no_loss() -> None:
    with pytest.raises(RunFailed, match="0 replicas voted"):
        total_loss({}, MEMBERS)


@given(st.floats(), st.floats(), st.integers(0, 2**40), st.booleans())
def test_a_vote_reads_back_bit_for_bit(
    loss_sum: float, grad_norm: float, tokens: int, finite: bool
) -> None:
    sent = vote("0/0", loss_sum=loss_sum, grad_norm=grad_norm, tokens=tokens, finite=finite)
    text = json.dumps(sent.to_json(), allow_nan=False)
    read = Vote.from_json(json.loads(text))
    assert (read.loss_sum.hex(), read.grad_norm.hex()) == (loss_sum.hex(), grad_norm.hex())
    assert replace(read, loss_sum=0.0, grad_norm=0.0) == replace(sent, loss_sum=0.0, grad_norm=0.0)
