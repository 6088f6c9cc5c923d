"""What may go wrong in a miniature run, as long as the budget lasts.

In: a world. Out: (label, False, world after it). Processes are killed or fail by an exception, also
inside the optimizer; well ones are declared hung, or told to go; GPUs come back; people interrupt.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from miniature.book import Book
from miniature.launching import Launching
from miniature.processes import Move
from miniature.world import Proc, Rules, World

from nonuniform.protocol.outcome import is_commit
from nonuniform.protocol.rank import Stage
from nonuniform.protocol.state import Phase

Key = tuple[Any, ...]


class Adversary:
    def __init__(self, book: Book, rules: Rules, launching: Launching) -> None:
        self.book = book
        self.rules = rules
        self.launching = launching

    def moves(self, world: World) -> Iterator[Move]:
        for gpu, crowd in enumerate(world.procs):
            for proc in crowd:
                if proc.alive and not proc.fenced:
                    yield from self._blows(world, gpu, proc)
        free = not world.todo and (not world.queue or not self.rules.patient)
        if free:
            for name, event in self._words(world):
                spent = world._replace(budget=world.budget.spend(name))
                yield f"{event}", False, self.launching.feed(spent, event)

    def _blows(self, world: World, gpu: int, proc: Proc) -> Iterator[Move]:
        dead = Proc(proc.life, "dead", 0, ended="died", warm=proc.warm)
        name = f"{self.book.grid.names[gpu]}.{proc.life}"
        if world.budget.kills:
            spent = world._replace(budget=world.budget.spend("kills"))
            yield f"{name} is killed", False, spent.with_proc(gpu, proc, dead)
        if world.budget.raises and self._may_raise(world, proc):
            spent = world._replace(budget=world.budget.spend("raises"))
            dead = dead._replace(ended="raised")
            yield f"{name} fails by an exception", False, spent.with_proc(gpu, proc, dead)

    def _may_raise(self, world: World, proc: Proc) -> bool:
        """In its work, or inside the optimizer: the outcome is a commit and not yet applied."""
        page = world.page(proc.generation)
        if proc.mode != "cycle" or page is None:
            return False
        stage, work = self.book.stages[proc.rank], self.book.works[proc.rank]
        torn = stage == Stage.WAIT and is_commit(page.ballot(work).outcome)
        return stage == Stage.WORK or torn

    def _words(self, world: World) -> Iterator[tuple[str, Key]]:
        state, budget = self.book.controls[world.control], world.budget
        number = self.book.grid.number
        for gpu, life in sorted(state.living.items()):
            if budget.hangs and not self._is_dead(world, number[gpu], life):
                yield "hangs", ("hung", number[gpu], life)
            if budget.drains and gpu not in state.leaving:
                yield "drains", ("drained", number[gpu])
        if budget.returns:
            for gpu in self.book.grid.names:
                # As the launcher sees it: a process whose end it has not noticed is there.
                gone = not any(not proc.fenced for proc in world.procs[number[gpu]])
                if gone or gpu in state.leaving:
                    yield "returns", ("returned", number[gpu])
        if budget.interrupts:
            yield "interrupts", ("interrupted", True)
            yield "interrupts", ("interrupted", False)
        if budget.stalls and state.phase is Phase.RUNNING:
            yield "stalls", ("stalled",)

    def _is_dead(self, world: World, gpu: int, life: int) -> bool:
        return world.current(gpu, life) is None
