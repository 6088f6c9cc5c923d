"""Whether a miniature run that is over says the right thing about how it ended.

In: the last world, the verdict. Out: nothing, or Broken. A verdict needs its cause: the adversary
has done what it speaks of, or the ledger and the living processes say so. Knows nothing of moves.
"""

from __future__ import annotations

from miniature.book import Book
from miniature.policy import covers
from miniature.world import Budget, World, check


class Judge:
    """`budget`: what the adversary had at the start."""

    def __init__(self, book: Book, budget: Budget) -> None:
        self.book = book
        self.budget = budget

    def check_verdict(self, world: World, failed: bool, kind: str) -> None:
        check(failed == (kind != "done"), f"the run is over: failed is {failed}, {kind}")
        done = len(world.ledger)
        told = world.logged[0] == done
        check(told or kind == "interrupted", f"{world.logged} is logged, committed is {done}")
        match kind:
            case "done":
                self._check_done(world)
            case "interrupted":
                check(self._spent(world, "interrupts") > 0, "nobody interrupted it")
            case "exception":
                check(self._spent(world, "raises") > 1, "it did not fail twice")
            case "stalled":
                check(self._spent(world, "stalls") > 1, "it did not stall twice")
            case "nonfinite":
                check(self.book.size.stop_at_nonfinite, "it should go on")
                check(self.book.size.nonfinite_step == done, f"after step {done}")
            case "nobody":
                self._check_nobody(world)
            case "lost":
                check(world.shelf is None, "there was a checkpoint")
                check(not self._holders_cover(world), "all units are there")
            case _:
                check(False, f"unknown end: {kind}")

    def _spent(self, world: World, name: str) -> int:
        before, left = getattr(self.budget, name), getattr(world.budget, name)
        return int(before - left)

    def _check_done(self, world: World) -> None:
        size = self.book.size
        check(len(world.ledger) == size.steps, f"done after {world.ledger}")
        due = size.steps if size.validate_every else 0
        check(world.logged[1] == due, f"validated is {world.logged[1]} of {due}")
        if size.validate_every:
            steps = [step for step, _ in world.checked]
            every = range(1, size.steps + 1)
            wanted = [s for s in every if s % size.validate_every == 0 or s == size.steps]
            check(steps == wanted, f"validated are {steps} of {wanted}")

    def _check_nobody(self, world: World) -> None:
        """By what was taken out, for more may have come back since."""
        size = self.book.size
        lost = sum(self._spent(world, name) for name in ("kills", "raises", "hangs", "drains"))
        needed = size.replicas * (size.degree - size.min_degree + 1)
        check(lost >= needed, f"no replica is left after {lost} losses")

    def _holders_cover(self, world: World) -> bool:
        state, number = self.book.controls[world.control], self.book.grid.number
        living = [world.current(number[gpu], life) for gpu, life in state.living.items()]
        holding = [p.units for p in living if p is not None and p.past == world.ledger]
        return covers(holding, self.book.size.degree)
