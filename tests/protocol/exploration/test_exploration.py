"""Every state of small runs, with the real machines and an adversary that may do anything."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from miniature.explore import Exploration
from miniature.game import Game
from miniature.world import Budget, Rules, Size

WHOLE = Rules()  # one operation on the board at a time, whatever it is
EAGER = Rules(eager=True)  # what only a process itself can see is done at once
SETTLED = Rules(eager=True, settled=True)
COARSE = Rules(eager=True, settled=True, coarse=True)
SINGLY = Rules(hears_singly=True)
IMPATIENT = Rules(patient=False)

DONE = frozenset({"done: done"})
NOBODY = DONE | {"failed: nobody"}
LOST = DONE | {"failed: lost"}
EXCEPTION = DONE | {"failed: exception"}
INTERRUPTED = DONE | {"failed: interrupted"}


@dataclass(frozen=True)
class Case:
    """`ends`: all the ways in which such a run can end, and each does occur; `least`: states."""

    size: Size
    rules: Rules
    ends: frozenset[str] = DONE
    least: int = 100
    budget: dict[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        size, default = self.size, Rules()
        rules = [name for name, on in vars(self.rules).items() if on != getattr(default, name)]
        trouble = [f"{count} {name}" for name, count in self.budget.items()]
        return f"{size.replicas}x{size.degree}, {', '.join(trouble)}, {', '.join(rules)}"


def case(size: Size, rules: Rules, ends: frozenset[str], least: int, **budget: int) -> Case:
    return Case(size, rules, ends, least, budget)


VALIDATED = Size(2, 1, validate_every=2, checkpoint=1)
SAVED = Size(1, 2, checkpoint=1)
QUICK = [
    case(Size(1, 2), WHOLE, NOBODY | LOST, 1500, kills=2),
    case(Size(2, 1), WHOLE, NOBODY, 1500, kills=2),
    case(Size(2, 1), SINGLY, NOBODY, 1500, kills=2),
    case(Size(2, 1), IMPATIENT, NOBODY, 2000, kills=2),
    case(VALIDATED, WHOLE, NOBODY, 3000, kills=1, raises=1),
    case(Size(1, 2), WHOLE, LOST, 3000, hangs=1),
    case(Size(2, 1), WHOLE, DONE, 3000, kills=1, returns=1),
    case(Size(2, 1), WHOLE, INTERRUPTED, 3000, kills=1, interrupts=1),
    case(Size(2, 1), WHOLE, DONE | {"failed: stalled"}, 4000, stalls=2),
    case(Size(2, 1), EAGER, NOBODY, 1500, kills=1, hangs=1),
    case(Size(2, 1), EAGER, DONE, 2500, hangs=1, returns=1),
    case(Size(2, 1), EAGER, NOBODY, 800, drains=2, returns=1),
    case(Size(2, 1, final=False), EAGER, INTERRUPTED, 100, interrupts=2),
    case(SAVED, EAGER, NOBODY, 400, kills=2),
    case(Size(3, 1), EAGER, DONE, 1500, kills=2),
    case(Size(3, 1), EAGER, EXCEPTION, 500, raises=2),
    case(Size(3, 1), EAGER, DONE, 1000, kills=1, returns=1),
    case(Size(3, 1), EAGER, DONE, 1000, hangs=1),
    case(Size(2, 2), EAGER, DONE, 700, doubles=2),
    case(Size(2, 1), WHOLE, DONE, 2500, kills=1, doubles=1),
    case(Size(2, 1), EAGER, NOBODY, 1600, kills=2, doubles=2),
    case(Size(3, 1), EAGER, DONE, 4500, kills=2, doubles=1),
    case(Size(2, 2), EAGER, DONE, 7000, kills=1, doubles=1),
    case(Size(2, 2), SETTLED, LOST, 16_000, kills=2, doubles=1),
    case(Size(2, 2), EAGER, LOST, 20_000, kills=2),
    case(Size(2, 2, min_degree=2), SETTLED, NOBODY, 2000, kills=2),
    case(Size(2, 2), SETTLED, DONE, 2000, kills=1, returns=1),
    case(Size(2, 2), SETTLED, DONE, 1000, hangs=1),
]
# Larger ones leave out what smaller ones have explored: how the first generation settles, that a
# vote is put and counted apart, and processes that go on after they were given up.
SOAK = [
    case(Size(2, 1), WHOLE, NOBODY, 10_000, kills=1, hangs=1),
    case(Size(2, 2), WHOLE, DONE, 30_000, kills=1),
    case(Size(2, 3), SETTLED, DONE, 5000, kills=1),
    case(Size(3, 2), SETTLED, DONE, 5000, kills=1),
    case(Size(3, 3), SETTLED, DONE, 80_000, kills=1),
    case(Size(3, 2), COARSE, DONE, 12_000, kills=2),
    case(Size(3, 3), COARSE, DONE, 170_000, kills=2),
    case(Size(3, 3), COARSE, DONE, 9000, hangs=1),
    case(Size(3, 3), COARSE, DONE, 40_000, kills=1, returns=1),
]


def explore(what: Case) -> None:
    game = Game(what.size, what.rules, Budget(**what.budget))
    report = Exploration(game).run()
    assert report.endings.keys() == what.ends
    assert report.states >= what.least, "less was explored than there was once"


@pytest.mark.parametrize("what", QUICK, ids=str)
def test_whatever_happens_steps_are_committed_once_and_by_all(what: Case) -> None:
    explore(what)


@pytest.mark.soak
@pytest.mark.parametrize("what", SOAK, ids=str)
def test_whatever_happens_in_larger_runs(what: Case) -> None:
    explore(what)


def test_the_renaming_of_gpus_hides_nothing() -> None:
    """As many ways to end with it as without it, in fewer states."""
    size, budget = Size(1, 2, checkpoint=1), Budget(kills=1)
    renamed = Exploration(Game(size, WHOLE, budget)).run()
    plain = Exploration(Game(size, WHOLE, budget), symmetric=False).run()
    assert renamed.endings.keys() == plain.endings.keys()
    assert plain.states / 2 <= renamed.states < plain.states


BUDGETS = [Budget(kills=2), Budget(raises=2), Budget(hangs=1), Budget(kills=1, returns=1)]


@pytest.mark.parametrize("budget", BUDGETS, ids=str)
@pytest.mark.parametrize("size", [Size(2, 1), Size(1, 2)], ids=str)
def test_what_larger_runs_leave_out_hides_nothing(size: Size, budget: Budget) -> None:
    """The ledgers and verdicts at the end are the same, in fewer and fewer states."""
    ends, states = [], []
    for rules in (WHOLE, EAGER, SETTLED, COARSE):
        exploration = Exploration(Game(size, rules, budget))
        states.append(exploration.run().states)
        ends.append({(world.over, world.ledger, world.logged) for world in exploration.over()})
    assert ends == [ends[0]] * 4
    assert states == sorted(states, reverse=True)
    assert states[0] > states[-1]
