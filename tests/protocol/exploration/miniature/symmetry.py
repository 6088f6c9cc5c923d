"""One world for all that differ only in names.

In: a world. Out: the same world under other names of replicas and of columns, chosen by what the
GPUs are doing. Where two choices look the same to it, it takes one of them: then a few states are
kept twice, which is slower and not wrong. Knows nothing of moves.
"""

from __future__ import annotations

from typing import Any

from miniature.book import Book
from miniature.grid import Renaming
from miniature.world import Held, Pages, Proc, World

Key = tuple[Any, ...]


class Symmetry:
    def __init__(self, book: Book) -> None:
        self.book = book
        self._looks: dict[Key, int] = {}
        self._shapes: dict[tuple[Proc, ...], int] = {}

    def canonical(self, world: World) -> World:
        names = self._choice(world)
        return world if names is None else self.rename(world, names)

    def _choice(self, world: World) -> Renaming | None:
        grid, degree = self.book.grid, self.book.size.degree
        looks = self._all_looks(world)
        rows = [looks[start : start + degree] for start in range(0, len(looks), degree)]
        best: Any = None
        for columns in grid.columns:
            moved = sorted([(*[row[c] for c in columns], index) for index, row in enumerate(rows)])
            shape = [row[:-1] for row in moved]
            if best is None or shape < best[0]:
                best = (shape, columns, tuple(row[-1] for row in moved))
        _, columns, order = best
        if columns == grid.columns[0] and list(order) == sorted(order):
            return None
        return grid.renamings[order, columns]

    def _all_looks(self, world: World) -> list[int]:
        """For every GPU a number that says what it is doing."""
        page = world.pages[-1]
        ballots, settled, entered = page.ballots, page.settled, {h.gpu for h in page.entered}
        reported = {held.gpu for held in page.reports}
        state = self.book.controls[world.control]
        looks = []
        for gpu, crowd in enumerate(world.procs):
            name = self.book.grid.names[gpu]
            key = (
                self._shape(crowd),
                tuple(gpu in ballot.votes for ballot in ballots),
                (gpu in settled, gpu in entered, gpu in reported, state.living.get(name, 0)),
                world.lives[gpu],
            )
            looks.append(self._looks.setdefault(key, len(self._looks)))
        return looks

    def _shape(self, crowd: tuple[Proc, ...]) -> int:
        """The same for crowds that differ only in the units that they hold."""
        found = self._shapes.get(crowd)
        if found is None:
            blank = tuple(proc._replace(units=0) for proc in crowd)
            found = self._shapes[crowd] = self._looks.setdefault(blank, len(self._looks))
        return found

    # --- renaming

    def rename(self, world: World, names: Renaming) -> World:
        gpus = names.gpus
        procs: list[tuple[Proc, ...]] = [()] * len(gpus)
        lives = [0] * len(gpus)
        for old, new in enumerate(gpus):
            procs[new] = tuple(p._replace(units=names.bits[p.units]) for p in world.procs[old])
            lives[new] = world.lives[old]
        return world._replace(
            control=self.book.rename_control(world.control, names),
            todo=tuple(self._key(key, names) for key in world.todo),
            queue=tuple(self._key(key, names) for key in world.queue),
            procs=tuple(procs),
            pages=tuple(self._page(page, names) for page in world.pages),
            lives=tuple(lives),
        )

    def _page(self, page: Pages, names: Renaming) -> Pages:
        gpus = names.gpus
        return page._replace(
            record=self.book.rename_page(page.record, names),
            ballots=tuple(
                b._replace(votes=frozenset(gpus[gpu] for gpu in b.votes)) for b in page.ballots
            ),
            settled=frozenset(gpus[gpu] for gpu in page.settled),
            reports=self._held(page.reports, names),
            entered=self._held(page.entered, names),
            parts=frozenset(gpus[gpu] for gpu in page.parts),
        )

    def _held(self, said: frozenset[Held], names: Renaming) -> frozenset[Held]:
        return frozenset(Held(names.gpus[h.gpu], h.life, names.bits[h.units], h.past) for h in said)

    def _key(self, key: Key, names: Renaming) -> Key:
        """An order or an event that waits in a world."""
        match key[0]:
            case "publish":
                return ("publish", self.book.rename_page(key[1], names))
            case "kill" | "start" | "started" | "ready" | "ended":
                return (key[0], names.gpus[key[1]], *key[2:])
            case "voted" | "decided" | "write":
                return (*key[:-1], frozenset(names.gpus[gpu] for gpu in key[-1]))
            case _:
                return key
