"""The crash points that a step has, one by one, on the miniature run with the real machines."""

from __future__ import annotations

import pytest
from miniature.game import Game
from miniature.play import Play
from miniature.world import Budget, Rules, Size

from nonuniform.protocol.control import advance
from nonuniform.protocol.events import Ended


def play(size: Size, **budget: int) -> Play:
    return Play(Game(size, Rules(), Budget(**budget)))


def test_an_extra_rank_that_voted_early_and_dies_takes_its_vote_along() -> None:
    """It voted before its gradients came back to the others, who can't finish without it."""
    run = play(Size(2, 2), kills=1).all_settle()
    run.do("0/1.1 votes", "0/1.1 counts", "0/1.1 is killed", "('ended', 1")
    run.do("('votes', 1", "'abort'", "('end', 1)")
    assert run.finish() == "done: done"
    assert run.world.ledger == (2, 2)


def test_an_extra_rank_that_voted_early_waits_for_the_others() -> None:
    run = play(Size(2, 2)).all_settle()
    run.do("0/1.1 votes", "0/1.1 counts")
    assert not [label for label in run.labels() if label.startswith("0/1.1")]
    assert run.finish() == "done: done"
    assert run.world.ledger == (1, 1)


def test_the_only_rank_that_saw_the_commit_dies() -> None:
    run = play(Size(2, 1), kills=1).all_settle()
    run.do("0/0.1 votes", "0/0.1 counts", "1/0.1 votes", "1/0.1 counts", "1/0.1 looks: True")
    run.do("1/0.1 proposes commit", "1/0.1 applies", "1/0.1 is killed", "('ended', 1")
    run.launcher().do("0/0.1 applies")
    assert run.proc("0/0").past == (1,)
    assert run.world.logged == (1, 0)
    assert run.finish() == "done: done"
    assert run.world.ledger == (1, 2)


@pytest.mark.parametrize("blow", ["is killed", "fails by an exception"])
def test_a_rank_fails_inside_the_optimizer(blow: str) -> None:
    """The step is committed: the others apply it, and nobody takes state from the torn one."""
    run = play(Size(1, 2), kills=1, raises=1).all_settle()
    run.do("0/0.1 votes", "0/0.1 counts", "0/1.1 votes", "0/1.1 counts", "0/1.1 looks: True")
    run.do("0/1.1 proposes commit", "('decided', 1", f"0/1.1 {blow}", "0/0.1 applies")
    assert run.finish() == "failed: lost"
    run = play(Size(2, 1), kills=1, raises=1).all_settle()
    run.do("0/0.1 votes", "0/0.1 counts", "1/0.1 votes", "1/0.1 counts", "1/0.1 looks: True")
    run.do("1/0.1 proposes commit", "('decided', 1", f"1/0.1 {blow}", "0/0.1 applies")
    assert run.finish() == "done: done"
    assert run.world.ledger == (1, 2)


def test_all_survivors_had_voted_and_a_voter_died() -> None:
    """Nobody decides, for the last one to vote died before it looked: the launcher does."""
    run = play(Size(3, 1), kills=1).all_settle()
    for gpu in ("0/0", "1/0", "2/0"):
        run.do(f"{gpu}.1 votes")
    run.do("0/0.1 counts", "1/0.1 counts", "2/0.1 is killed", "('ended', 2").launcher()
    assert run.world.logged == (1, 0)
    assert run.finish() == "done: done"
    assert run.world.ledger == (1, 2)


def test_one_that_had_not_voted_died_and_all_survivors_had() -> None:
    run = play(Size(3, 1), kills=1).all_settle()
    run.do("0/0.1 votes", "1/0.1 votes", "2/0.1 is killed", "('ended', 2").launcher()
    assert run.world.ledger[:1] == (1,)
    assert run.finish() == "done: done"


def test_a_survivor_had_not_voted_and_a_voter_died() -> None:
    run = play(Size(3, 1), kills=1).all_settle()
    run.do("0/0.1 votes", "2/0.1 votes", "2/0.1 is killed", "('ended', 2").launcher()
    assert run.world.ledger == ()
    assert run.finish() == "done: done"
    assert run.world.ledger == (2, 2)


def test_a_step_that_always_fails_ends_the_run_with_its_samples() -> None:
    run = play(Size(3, 1), raises=2).all_settle()
    run.do("0/0.1 fails", "('ended', 0").launcher()
    run.do("1/0.1 gives up", "2/0.1 gives up", "1/0.1 reports", "2/0.1 reports", "all reports")
    run.launcher().do("1/0.1 reads", "2/0.1 reads", "1/0.1 settles", "2/0.1 settles")
    state = run.game.book.controls[run.world.control]
    after, _ = advance(state, Ended("1/0", 1, "boom", raised=True), 0.0)
    assert after.ending is not None
    words = "step 1 failed by an exception again: boom; its samples: 0, 1"
    assert after.ending.reason == words
    run.do("1/0.1 fails", "('ended', 1")
    assert run.finish() == "failed: exception"


def test_exceptions_of_different_steps_do_not_end_the_run() -> None:
    run = play(Size(3, 1), raises=2).all_settle()
    run.do("0/0.1 votes", "1/0.1 votes", "2/0.1 votes", "0/0.1 counts", "1/0.1 counts")
    run.do("2/0.1 counts", "2/0.1 looks: True", "2/0.1 proposes", "2/0.1 applies")
    run.do("('decided', 1", "2/0.1 fails", "('ended', 2").launcher()
    assert run.finish() == "done: done"


@pytest.mark.parametrize(("stop", "end"), [(False, "done: done"), (True, "failed: nonfinite")])
def test_a_step_that_is_not_finite_is_committed_and_then_skipped_or_the_end(
    stop: bool, end: str
) -> None:
    run = play(Size(2, 1, nonfinite_step=1, stop_at_nonfinite=stop))
    assert run.finish() == end
    assert run.world.ledger == ((1,) if stop else (1, 1))
    assert run.world.logged == (len(run.world.ledger), 0)


def test_a_gpu_that_comes_back_during_the_regroup_that_it_caused_joins() -> None:
    run = play(Size(2, 1), kills=1, returns=1).all_settle()
    run.do("1/0.1 is killed", "('ended', 1").launcher()
    run.do("0/0.1 gives up", "('returned', 1)", "0/0.1 reports", "all reports").launcher()
    run.do("0/0.1 reads", "1/0.2 is ready", "('ready', 1").launcher()
    assert run.finish() == "done: done"
    assert run.proc("1/0").past == (2, 3)
