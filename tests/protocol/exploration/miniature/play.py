"""One way through a miniature run, told move by move.

In: a game, parts of the labels of moves. Out: the worlds on the way. Knows nothing of what is
right.
"""

from __future__ import annotations

from miniature.game import Game
from miniature.world import Proc, World


class Play:
    def __init__(self, game: Game) -> None:
        self.game = game
        self.world: World = game.first()

    def labels(self) -> list[str]:
        return [label for label, _, _ in self.game.moves(self.world)]

    def do(self, *words: str) -> Play:
        """The moves whose labels have these words, one after the other."""
        for some in words:
            found = [move for move in self.game.moves(self.world) if some in move[0]]
            assert len(found) == 1, f"{some}: {[m[0] for m in found]} of {self.labels()}"
            self.world = found[0][2]
        return self

    def all_settle(self) -> Play:
        """Everybody reads the record and settles."""
        for name in self.game.book.grid.names:
            self.do(f"{name}.1 reads")
        for name in self.game.book.grid.names:
            self.do(f"{name}.1 settles")
        return self

    def launcher(self) -> Play:
        """The launcher does all that it has to, until it has to hear something new."""
        while self.world.todo or self.world.queue:
            self.world = next(iter(self.game.moves(self.world)))[2]
        return self

    def finish(self) -> str:
        """Without any more trouble, to the end; what the run says."""
        while not self.world.over:
            musts = [after for _, must, after in self.game.moves(self.world) if must]
            assert musts, "nothing happens any more"
            self.world = musts[0]
        return self.world.over

    def proc(self, gpu: str) -> Proc:
        """The newest process of a GPU."""
        return self.world.procs[self.game.book.grid.number[gpu]][-1]
