"""Which rows of one rank meet which rows of which other rank, for one way of cutting.

In: a family, rows per unit, a degree, a label, a sync degree. Out: a `RowFlow` in rows, so that
all tensors that are cut alike share it. DESIGN: "A unit may have several owners".
Two places of a row: *local*, in the shard that a rank holds at its degree, and *home*, where the
rank at which it crosses replicas keeps it: `own | gained` if sharded, else the units whose
primary that rank is, in local order at the sync degree.
Does not know: elements, buffers, tensors.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from nonuniform.layout.family import Family
from nonuniform.layout.units import IntArray

Run = tuple[int, int]  # (first row, rows)


@dataclass(frozen=True)
class Cut:
    """All that decides the rows of a tensor's units: equal for gate, up and down of all layers."""

    family: Family
    rows: int
    unit_rows: int


@dataclass(frozen=True)
class RowFlow:
    local_rows: int
    home_rows: int
    outgoing: tuple[tuple[int, tuple[Run, ...]], ...]  # (home label, local runs)
    incoming: tuple[tuple[int, tuple[Run, ...]], ...]  # (source label, home runs)
    own: tuple[tuple[int, int, int], ...]  # (local row, home row, rows) that stay on this rank
    strange: tuple[Run, ...]  # home runs of which this rank holds no copy itself


@lru_cache(maxsize=4096)
def row_flow(cut: Cut, degree: int, label: int, sync_degree: int) -> RowFlow:
    """Sources list rows in their own local order; both sides of a message derive it alike."""
    at_degree, at_sync = cut.family.at(degree), cut.family.at(sync_degree)
    primaries = at_sync.primaries
    local = at_degree.orders[label]
    home = np.zeros(0, dtype=np.int64)
    if label < sync_degree:
        home = at_sync.orders[label][primaries[at_sync.orders[label]] == label]
    local_place, home_place = _placed(cut, local), _placed(cut, home)
    outgoing, incoming = [], []
    for peer in range(degree):
        if peer == label:
            continue
        leaving = local[primaries[local] == peer]
        if leaving.size:
            outgoing.append((peer, _runs(cut, leaving, local_place)))
        theirs = at_degree.orders[peer]
        arriving = theirs[primaries[theirs] == label]
        if arriving.size:
            incoming.append((peer, _runs(cut, arriving, home_place)))
    staying = local[primaries[local] == label]
    strange = home[~np.isin(home, staying)]
    return RowFlow(
        local_rows=int(_lengths(cut, local).sum()),
        home_rows=int(_lengths(cut, home).sum()),
        outgoing=tuple(outgoing),
        incoming=tuple(incoming),
        own=_pairs(cut, staying, local_place, home_place),
        strange=_runs(cut, strange, home_place),
    )


def _lengths(cut: Cut, units: IntArray) -> IntArray:
    starts = units * cut.unit_rows
    return np.minimum(starts + cut.unit_rows, cut.rows) - starts


def _placed(cut: Cut, units: IntArray) -> IntArray:
    """[all units]: first row of each of `units` when they are stored in this order, else -1."""
    place = np.full(cut.family.count, -1, dtype=np.int64)
    lengths = _lengths(cut, units)
    place[units] = np.cumsum(lengths) - lengths
    return place


def _runs(cut: Cut, units: IntArray, place: IntArray) -> tuple[Run, ...]:
    """Rows of `units` at `place`, neighbours joined."""
    return tuple((start, rows) for start, _, rows in _pairs(cut, units, place, place))


def _pairs(
    cut: Cut, units: IntArray, place: IntArray, other: IntArray
) -> tuple[tuple[int, int, int], ...]:
    """(place, other place, rows) of `units` in order, joined where both places go on."""
    if not units.size:
        return ()
    lengths, here, there = _lengths(cut, units), place[units], other[units]
    broken = (here[1:] != here[:-1] + lengths[:-1]) | (there[1:] != there[:-1] + lengths[:-1])
    firsts = np.concatenate(([0], np.flatnonzero(broken) + 1))
    rows = np.add.reduceat(lengths, firsts)
    return tuple(zip(here[firsts].tolist(), there[firsts].tolist(), rows.tolist(), strict=True))
