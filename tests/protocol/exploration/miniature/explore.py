"""Every state that a miniature run can get into, and what has to hold in all of them.

In: a game. Out: a report with counts, or Broken with the way that led there. Besides what every
move checks: in every state something happens that nothing can keep from happening; such moves never
go round in a circle; and by them the run can be over from everywhere. So once the adversary has had
its say every way ends, and it ends in "over".
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from miniature.game import Game
from miniature.processes import Move
from miniature.stale import Stale
from miniature.symmetry import Symmetry
from miniature.world import Broken, World


@dataclass
class Report:
    states: int
    moves: int
    seconds: float
    endings: dict[str, int] = field(default_factory=dict)


class Exploration:
    def __init__(self, game: Game, limit: int = 5_000_000, symmetric: bool = True) -> None:
        self.game = game
        self.limit = limit
        self.symmetry = Symmetry(game.book) if symmetric else None
        self.stale = Stale(game.book)
        self._known: dict[World, int] = {}
        self._came: list[tuple[int, str]] = []
        self._must: list[list[int]] = []
        self._endings: dict[str, int] = {}
        self._over: list[int] = []
        self._moves = 0

    def run(self) -> Report:
        start = time.process_time()
        first = self.game.first()
        self._known[first] = 0
        self._came.append((-1, "begin"))
        self._must.append([])
        todo = deque([first])
        while todo:
            world = todo.popleft()
            index = self._known[world]
            try:
                todo.extend(self._expand(index, world))
            except Broken as broken:
                raise Broken(f"{broken}\n" + "\n".join(self.way(index))) from None
            if len(self._known) > self.limit:
                raise RuntimeError(f"more than {self.limit} states")
        self._check_ends()
        seconds = time.process_time() - start
        return Report(len(self._known), self._moves, seconds, dict(sorted(self._endings.items())))

    def over(self) -> list[World]:
        """The worlds in which the run is over."""
        return [world for world in self._known if world.over]

    def _expand(self, index: int, world: World) -> list[World]:
        self.stale.check(world.control)
        if world.over:
            self._over.append(index)
            self._endings[world.over] = self._endings.get(world.over, 0) + 1
            return []
        fresh, musts = [], self._must[index]
        for label, must, after in self._labelled(world):
            if self.symmetry is not None:
                after = self.symmetry.canonical(after)
            self._moves += 1
            number = self._known.get(after)
            if number is None:
                number = self._known[after] = len(self._known)
                self._came.append((index, label))
                self._must.append([])
                fresh.append(after)
            if must:
                musts.append(number)
        if not musts:
            raise Broken("nothing happens any more")
        return fresh

    def _labelled(self, world: World) -> Iterator[Move]:
        """The moves; one that breaks something is named."""
        moves = self.game.moves(world)
        last = "(none)"
        while True:
            try:
                move = next(moves, None)
            except Broken as broken:
                raise Broken(f"{broken}\n  after move {last}") from None
            except AssertionError as error:
                raise Broken(f"assertion in the machines: {error}\n  after {last}") from error
            if move is None:
                return
            last = move[0]
            yield move

    def way(self, index: int) -> list[str]:
        """The moves that led to a state; names may change on the way, as the states are renamed."""
        labels: list[str] = []
        while index >= 0:
            index, label = self._came[index]
            labels.append(label)
        return labels[::-1]

    def _check_ends(self) -> None:
        back: list[list[int]] = [[] for _ in self._must]
        for source, targets in enumerate(self._must):
            for target in targets:
                back[target].append(source)
        self._check_reach(back)
        self._check_no_circle(back)

    def _check_reach(self, back: list[list[int]]) -> None:
        reached, todo = set(self._over), list(self._over)
        while todo:
            for source in back[todo.pop()]:
                if source not in reached:
                    reached.add(source)
                    todo.append(source)
        for index in range(len(back)):
            if index not in reached:
                way = "\n".join(self.way(index))
                raise Broken(f"the run can't be over any more\n{way}")

    def _check_no_circle(self, back: list[list[int]]) -> None:
        left = [len(targets) for targets in self._must]
        todo = [index for index, count in enumerate(left) if count == 0]
        gone = 0
        while todo:
            gone += 1
            for source in back[todo.pop()]:
                left[source] -= 1
                if left[source] == 0:
                    todo.append(source)
        if gone < len(left):
            index = next(i for i, count in enumerate(left) if count)
            raise Broken("the run goes round in a circle\n" + "\n".join(self.way(index)))
