"""All moves of a miniature run together.

In: a size, rules, a budget. Out: the first world, and the moves of any. With `eager` rules a
process does at once what only it can see: it reads a record that is there, applies or drops what is
decided, and tells what it holds. Such moves commute with those of all others: keys that they read
do not change any more, and what they write is read only by the launcher, once all have written. A
process that is killed before such a move leaves the same world as one that is killed after it.
(Not so one that fails by an exception, for then it counts at which work: while that may happen,
such moves wait.) Once a transaction is decided nobody's way depends on its count any more, nor on
its votes if it was dropped; whoever is still on the way to vote for it ends at the same report.
"""

from __future__ import annotations

from collections.abc import Iterator

from miniature.adversary import Adversary
from miniature.book import Book
from miniature.launching import Launching
from miniature.processes import Move, Processes
from miniature.world import Budget, Pages, Proc, Rules, Size, World

from nonuniform.protocol.outcome import ABORT, is_commit
from nonuniform.protocol.rank import ENDS, Stage

NOBODY: frozenset[int] = frozenset()


class Game:
    def __init__(self, size: Size, rules: Rules, budget: Budget) -> None:
        self.size = size
        self.rules = rules
        self.budget = budget
        self.book = Book(size)
        self.processes = Processes(self.book, rules)
        self.launching = Launching(self.book, rules, self.processes, budget)
        self.adversary = Adversary(self.book, rules, self.launching)

    def first(self) -> World:
        control, orders = self.book.first()
        count = self.size.replicas * self.size.degree
        page = next(order[1] for order in orders if order[0] == "publish")
        world = World(
            control=control,
            todo=(),
            queue=(),
            procs=((Proc(1, "next", 0),),) * count,
            pages=(Pages(1, page),),
            ledger=(),
            checked=(),
            logged=(0, 0),
            shelf=None,
            budget=self.budget,
            lives=(1,) * count,
        )
        return self._settle(world) if self.rules.settled else self._tidy(world)

    def _settle(self, world: World) -> World:
        """The first generation after all have settled."""
        for _ in range(2 * len(world.procs)):
            for _, _, after in self.processes.moves(world):
                procs = [crowd[0] for crowd in after.procs]
                if all(p.mode != "cycle" or self.book.stages[p.rank] == Stage.WORK for p in procs):
                    world = after
                    break
        return self._tidy(world)

    def moves(self, world: World) -> Iterator[Move]:
        """Nothing happens once the run is over."""
        yield from self.steps(world)
        yield from self.troubles(world)

    def steps(self, world: World) -> Iterator[Move]:
        """What the run does by itself."""
        for part in () if world.over else (self.launching, self.processes):
            for label, must, after in part.moves(world):
                yield label, must, self._tidy(after)

    def troubles(self, world: World) -> Iterator[Move]:
        for label, must, after in () if world.over else self.adversary.moves(world):
            yield label, must, self._tidy(after)

    def _tidy(self, world: World) -> World:
        if self.rules.eager and not world.over:
            world = self._hurry(world)
            for page in world.pages:
                shorter = self._forget_unread(page)
                if shorter is not page:
                    world = world.with_page(shorter)
        return self._drop_pages(world)

    def _hurry(self, world: World) -> World:
        again = True
        while again:
            again = False
            for gpu, crowd in enumerate(world.procs):
                for proc in crowd:
                    after = self._hurry_one(world, gpu, proc)
                    if after is not world:
                        world, again = after, True
                        break  # at most one of a crowd, which has changed
        return world

    def _hurry_one(self, world: World, gpu: int, proc: Proc) -> World:
        if proc.mode == "cycle":
            if not self._hurries(world, proc):
                return world
        elif proc.mode not in ("start", "next", "lend", "tell"):
            return world
        for _, _, after in self.processes.moves_of(world, gpu, proc):
            return after
        return world

    def _hurries(self, world: World, proc: Proc) -> bool:
        stage = self.book.stages[proc.rank]
        if stage in ENDS:
            return True
        page = world.page(proc.generation)
        assert page is not None
        outcome = page.ballot(self.book.works[proc.rank]).outcome
        if stage in (Stage.WORK, Stage.WAIT) and world.budget.raises:
            return False  # it may still fail there by an exception
        return outcome == ABORT if stage == Stage.WORK else bool(outcome)

    def _forget_unread(self, page: Pages) -> Pages:
        """Without what nobody's way depends on any more."""
        for ballot in page.ballots:
            votes = ballot.votes if is_commit(ballot.outcome) else NOBODY
            if ballot.outcome and (ballot.count or ballot.votes != votes):
                page = page.with_ballot(ballot._replace(votes=votes, count=0))
        if page.entered and page.settled >= self.book.pages[page.record].members:
            page = page._replace(entered=frozenset())
        return page

    def _drop_pages(self, world: World) -> World:
        """Without generations that nobody is in or will look at."""
        oldest = world.pages[-1].number
        for crowd in world.procs:
            for proc in crowd:
                if proc.alive:
                    needed = proc.generation + (proc.mode in ("next", "start"))
                    oldest = min(oldest, needed)
        if world.pages[0].number >= oldest:
            return world
        return world._replace(pages=tuple(p for p in world.pages if p.number >= oldest))
