"""Ways through runs that are too large to be explored: 3 replicas of 3, 4 steps, much trouble."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from miniature.game import Game
from miniature.stale import Stale
from miniature.world import Budget, Rules, Size

MOST_MOVES = 3000
TROUBLE = Budget(kills=3, raises=2, hangs=1, returns=3, drains=1, stalls=1, doubles=1)
Picks = st.lists(st.integers(0, 1000), min_size=5, max_size=20)


class LargeRun(RuleBasedStateMachine):
    """Every move checks what has to hold where it is made; the end is checked here."""

    @initialize(checkpoint=st.integers(0, 2), least=st.integers(1, 3), eager=st.booleans())
    def begin(self, checkpoint: int, least: int, eager: bool) -> None:
        size = Size(3, 3, 4, validate_every=3, checkpoint=checkpoint, min_degree=least)
        self.game = Game(size, Rules(eager=eager, settled=True), TROUBLE)
        self.stale = Stale(self.game.book)
        self.world = self.game.first()

    @rule(picks=Picks)
    def go_on(self, picks: list[int]) -> None:
        """What has to happen, in any order."""
        for pick in picks:
            moves = [move for move in self.game.steps(self.world) if move[1]]
            if moves:
                self.world = moves[pick % len(moves)][2]

    @rule(pick=st.integers(0, 1000))
    def trouble(self, pick: int) -> None:
        """What may happen: the adversary, and work that ends although somebody is missing."""
        moves = [move for move in self.game.moves(self.world) if not move[1]]
        if moves:
            self.world = moves[pick % len(moves)][2]

    @invariant()
    def late_events_change_nothing(self) -> None:
        if hasattr(self, "world"):
            self.stale.check(self.world.control)

    def teardown(self) -> None:
        """Once the trouble is over the run comes to its end."""
        if not hasattr(self, "world"):
            return
        for _ in range(MOST_MOVES):
            if self.world.over:
                break
            after = next((after for _, must, after in self.game.steps(self.world) if must), None)
            assert after is not None, "nothing happens any more"
            self.world = after
        assert self.world.over
        if self.world.over == "done: done":
            assert self.world.logged[0] == len(self.world.ledger) == 4


def case_of(examples: int, steps: int) -> type:
    """A test of its own, of so many runs with so many times of trouble in each."""
    name = f"LargeRun{examples}"
    case: type = type(name, (LargeRun,), {}).TestCase
    case.settings = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    return case


TestLargeRun = case_of(examples=8, steps=12)
TestManyLargeRuns = pytest.mark.soak(case_of(examples=500, steps=25))
