"""Events that come late, twice, or from a life or a generation that is over change nothing.

In: states of the control. Out: nothing, or Broken. Every event that could still be on its way is
put to the real control: it must stay as it is and order nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from miniature.book import Book
from miniature.world import check

from nonuniform.protocol.outcome import ABORT, COMMIT
from nonuniform.protocol.state import Control, Phase

Key = tuple[Any, ...]


class Stale:
    def __init__(self, book: Book) -> None:
        self.book = book
        self._seen: set[int] = set()

    def check(self, control: int) -> None:
        if control in self._seen:
            return
        self._seen.add(control)
        for event in self._events(self.book.controls[control]):
            after, orders = self.book.hear(control, event)
            check((after, orders) == (control, ()), f"stale {event} leads to {orders}")

    def _events(self, state: Control) -> Iterator[Key]:
        generation, done = state.record.generation, state.position.step
        for gpu, name in enumerate(self.book.grid.names):
            life = state.living.get(name, 0)
            for old in {life - 1, 0, life + 1} - {life}:
                yield ("ended", gpu, old, True)
                yield ("hung", gpu, old)
                yield ("ready", gpu, old)
                yield ("reported", gpu, old, generation, 1, done)
            if life:
                yield ("reported", gpu, life, generation - 1, 1, done)
            yield ("settled", gpu, generation - 1)
        everybody = frozenset(range(len(self.book.grid.names)))
        here, work = state.record.generation, (state.work.kind, state.work.step)
        late = [(here - 1, work)]
        if done:
            late.append((here, ("train", done)))
        for number, what in late:
            yield ("voted", number, what, everybody)
            for outcome in (COMMIT, ABORT):
                yield ("decided", number, what, outcome, everybody)
        yield ("saved", generation - 1)
        if state.phase is not Phase.RECALLING:
            yield ("found", 1, 0)
            yield ("found",)
