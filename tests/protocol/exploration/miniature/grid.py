"""GPUs as numbers and as names, and the renamings that change nothing.

In: replicas and degree. Out: all renamings that permute the columns (the same in every replica) and
whole replicas, as maps of numbers, names and unit bits. Knows nothing of worlds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations, product

from nonuniform.cluster.topology import Gpu, parse_gpu
from nonuniform.placement.placement import Placement, ReplicaPlacement


@dataclass(frozen=True, eq=False)
class Renaming:
    """`gpus[old] = new`; `bits[old set of units] = new set`."""

    degree: int
    rows: tuple[int, ...]
    gpus: tuple[int, ...]
    bits: tuple[int, ...]

    def name(self, name: str) -> str:
        old = parse_gpu(name)
        new = self.gpus[old.replica * self.degree + old.index]
        return f"{new // self.degree}/{new % self.degree}"

    def names(self, names: Iterable[str]) -> list[str]:
        return [self.name(name) for name in names]

    def down(self, down: Iterable[Gpu]) -> frozenset[Gpu]:
        return frozenset(parse_gpu(self.name(str(gpu))) for gpu in down)

    def placement(self, placement: Placement) -> Placement:
        replicas = [
            ReplicaPlacement(
                self.rows[entry.replica], tuple(sorted(self.names(entry.gpus))), entry.share
            )
            for entry in placement.replicas
        ]
        replicas.sort(key=lambda entry: entry.replica)
        return Placement(tuple(replicas), tuple(sorted(self.names(placement.spares))))


@dataclass(frozen=True)
class Grid:
    replicas: int
    degree: int

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(f"{r}/{i}" for r in range(self.replicas) for i in range(self.degree))

    @cached_property
    def number(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.names)}

    @cached_property
    def columns(self) -> tuple[tuple[int, ...], ...]:
        """All orders of columns: `order[new] = old`."""
        return tuple(permutations(range(self.degree)))

    @cached_property
    def renamings(self) -> dict[tuple[tuple[int, ...], tuple[int, ...]], Renaming]:
        """By (old row of every new row, old column of every new column)."""
        rows = permutations(range(self.replicas))
        return {pair: self._renaming(*pair) for pair in product(rows, self.columns)}

    def _renaming(self, rows: tuple[int, ...], columns: tuple[int, ...]) -> Renaming:
        new_row = tuple(rows.index(old) for old in range(self.replicas))
        new_column = [columns.index(old) for old in range(self.degree)]
        gpus = tuple(
            new_row[r] * self.degree + new_column[i]
            for r in range(self.replicas)
            for i in range(self.degree)
        )
        bits = tuple(
            sum(1 << new_column[i] for i in range(self.degree) if some >> i & 1)
            for some in range(1 << self.degree)
        )
        return Renaming(self.degree, new_row, gpus, bits)
