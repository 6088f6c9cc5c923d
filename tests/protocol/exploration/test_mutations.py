"""The exploration can fail: with any one rule broken it finds a state that is wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from miniature.explore import Exploration
from miniature.game import Game
from miniature.policy import Policy
from miniature.world import Broken, Budget, Rules, Size

from nonuniform.protocol import control as controls
from nonuniform.protocol import generations, processes
from nonuniform.protocol import rank as ranks
from nonuniform.protocol.commit import Outcome
from nonuniform.protocol.events import Reported, Voted
from nonuniform.protocol.rank import Stage
from nonuniform.protocol.state import Control, Ending, Phase, Regroup

Patch = pytest.MonkeyPatch
WHOLE, SMALL = Rules(), Size(2, 1)


@dataclass(frozen=True)
class Mutation:
    """`found`: part of what the exploration says."""

    name: str
    budget: Budget
    found: str
    patch: Callable[[Patch], None] = lambda patch: None
    rules: Rules = WHOLE
    size: Size = SMALL


def any_vote_will_do(patch: Patch) -> None:
    def decide(votes: Any, *rest: Any) -> tuple[Outcome, str]:
        return (Outcome.COMMIT if votes else Outcome.ABORT), ""

    patch.setattr(generations, "decide", decide)


def the_last_voter_does_not_look(patch: Patch) -> None:
    looked = ranks.looked
    patch.setattr(ranks, "looked", lambda rank, complete, pause: looked(rank, True, pause))


def looks_only_at_the_exact_count(patch: Patch) -> None:
    def counted(rank: Any, votes: int) -> Any:
        return replace(rank, stage=Stage.LOOK if votes == rank.members else Stage.WAIT)

    patch.setattr(ranks, "counted", counted)


def nothing_is_settled(patch: Patch) -> None:
    patch.setattr(generations, "settle", generations._end_generation)


def only_one_transaction_is_settled(patch: Patch) -> None:
    settle = generations.settle

    def once(move: Any, why: str) -> Any:
        settling = move.state.phase is Phase.SETTLING
        return (generations._end_generation if settling else settle)(move, why)

    patch.setattr(generations, "settle", once)


def reports_of_any_life(patch: Patch) -> None:
    def reported(move: Any, event: Reported, now_s: float) -> Any:
        if move.state.phase is not Phase.HEARING:
            return move
        report = event.report
        return generations.go_on_hearing(
            move.set(reports={**move.state.reports, report.gpu: report})
        )

    patch.setitem(controls._HANDLERS, Reported, reported)


def reports_of_the_dead_stay(patch: Patch) -> None:
    bury = processes._bury

    def careless(move: Any, gpu: str, now_s: float) -> None:
        reports = move.state.reports
        bury(move, gpu, now_s)
        move.set(reports=reports)

    patch.setattr(processes, "_bury", careless)


def everything_is_current(patch: Patch) -> None:
    patch.setattr(generations, "_is_current", lambda state, event: True)


def processes_are_known_by_name(patch: Patch) -> None:
    publish, placed = generations.publish, Control.placed

    def by_name(*arguments: Any) -> Any:
        patch.setattr(Control, "placed", lambda self: set(self.members))
        try:
            return publish(*arguments)
        finally:
            patch.setattr(Control, "placed", placed)

    patch.setattr(generations, "publish", by_name)


def a_wish_to_regroup_is_not_heard(patch: Patch) -> None:
    patch.setattr(generations, "COMMIT_AND_REGROUP", "never")


def state_of_any_step_counts(patch: Patch) -> None:
    regroup = Policy.regroup

    def any_step(self: Policy, asked: Regroup) -> Any:
        step = asked.position.step
        said = tuple(replace(report, step=step) for report in asked.reports)
        return regroup(self, replace(asked, reports=said))

    patch.setattr(Policy, "regroup", any_step)


def the_step_is_written_at_once(patch: Patch) -> None:
    """The log does not wait for the outcome."""
    propose = generations.voted

    def voted(move: Any, event: Any, now_s: float) -> Any:
        if move.state.phase is Phase.SETTLING and event.votes:
            generations._write_down(move, event)
        return propose(move, event, now_s)

    patch.setitem(controls._HANDLERS, Voted, voted)


def exceptions_are_not_counted(patch: Patch) -> None:
    def count(move: Any, words: str) -> None:
        generations.end(move, Ending(True, f"failed by an exception: {words}"))

    patch.setattr(processes, "_count_exception", count)


def members_of_the_saving_generation_are_not_missed(patch: Patch) -> None:
    patch.setattr(Control, "needed", lambda self: set(self.members) & set(self.living))
    patch.setattr(processes, "_do_without", lambda move, gpu: generations.go_on_hearing(move))


KILL, KILLS = Budget(kills=1), Budget(kills=2)
MUTATIONS = [
    Mutation("any vote will do", KILL, "committed without", any_vote_will_do),
    Mutation(
        "the last voter does not look",
        Budget(doubles=1),
        "committed without",
        the_last_voter_does_not_look,
    ),
    Mutation(
        "looks only at the exact count",
        Budget(doubles=1),
        "nothing happens",
        looks_only_at_the_exact_count,
        size=Size(3, 1),
    ),
    Mutation("nothing is settled", KILL, "", nothing_is_settled),
    Mutation("one transaction is settled", KILL, "", only_one_transaction_is_settled),
    Mutation("reports of any life", Budget(), "stale", reports_of_any_life),
    Mutation(
        "reports of the dead stay",
        KILLS,
        "was not reported",
        reports_of_the_dead_stay,
        rules=Rules(eager=True, hears_singly=True),
        size=Size(3, 1),
    ),
    Mutation("everything is current", Budget(), "stale", everything_is_current),
    Mutation(
        "processes are known by name",
        Budget(kills=1, returns=1),
        "was left out",
        processes_are_known_by_name,
    ),
    Mutation(
        "a wish to regroup is not heard",
        Budget(drains=1),
        "",
        a_wish_to_regroup_is_not_heard,
    ),
    Mutation(
        "state of any step counts",
        Budget(kills=1, stalls=1),
        "was not reported",
        state_of_any_step_counts,
        rules=Rules(eager=True, settled=True),
        size=Size(2, 2, min_degree=2),
    ),
    Mutation("the step is written at once", KILL, "", the_step_is_written_at_once),
    Mutation(
        "one exception is enough",
        Budget(raises=1),
        "did not fail twice",
        exceptions_are_not_counted,
    ),
    Mutation(
        "a lost member is not missed", KILL, "", members_of_the_saving_generation_are_not_missed
    ),
    Mutation(
        "outcomes are overwritten",
        KILL,
        "committed after",
        rules=Rules(compare_and_set=False),
    ),
    Mutation(
        "who is given up enters",
        Budget(hangs=1),
        "(given up) enters",
        rules=Rules(checks_life=False),
    ),
    Mutation("a voter gives up on the alarm", KILL, "reports", rules=Rules(keeps_promise=False)),
    Mutation("votes are forgotten early", Budget(), "", rules=Rules(forget_back=0)),
    Mutation(
        "a new process reads the old record",
        Budget(kills=1, returns=1),
        "was left out",
        rules=Rules(start_back=1),
    ),
]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_broken_rule_is_found(mutation: Mutation, monkeypatch: Patch) -> None:
    mutation.patch(monkeypatch)
    game = Game(mutation.size, mutation.rules, mutation.budget)
    with pytest.raises(Broken) as broken:
        Exploration(game, limit=60_000).run()
    assert mutation.found in str(broken.value)
