"""The different states that a history passes through: few, however often it changes.

In: items that change their kind at instants. Out: the distinct states as numbers of items by kind,
and which of them holds at each instant. An item is a domain, its kind what it still can do; or, for
placements that stay in place, a replica. DESIGN "Policies". Knows neither costs nor time.

A state is a row of running sums, one per kind. The rows are never laid side by side: they are told
apart by one integer each, made column by column, so that memory grows with the instants alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

_MOST_KEYS = 2**62
_FEW_KEYS_PER_INSTANT = 8


@dataclass(frozen=True)
class KindChanges:
    """Row i: at instant `instant[i]` one item goes from kind `before[i]` to kind `after[i]`.

    Kinds are 0, 1, ...; at first `items` items are of kind `first`.
    """

    items: int
    first: int
    instant: Ints
    before: Ints
    after: Ints


@dataclass(frozen=True)
class States:
    """`numbers`: of each distinct state, (kind, number of items) by kind, numbers above 0;
    `at[i]`: the state of instant i."""

    numbers: Sequence[tuple[tuple[int, int], ...]]
    at: Ints


def states(changes: KindChanges, instants: int) -> States:
    """Of a history of that many instants."""
    real = changes.before != changes.after
    instant = changes.instant[real]
    before, after = changes.before[real], changes.after[real]
    kinds = np.flatnonzero(np.bincount(np.concatenate([[changes.first], before, after]))).tolist()
    columns = _Columns(changes.items, changes.first, instant, before, after, instants)
    keys, ways = np.zeros(instants, np.int64), 1
    for kind in kinds:
        # The number of the first kind follows from those of the others.
        if kind != changes.first:
            keys, ways = _with_column(keys, ways, columns.of(kind))
    heads, at = _distinct(keys, ways)
    rows = np.stack([columns.of(kind)[heads] for kind in kinds], axis=1)
    return States(
        [
            tuple((kind, number) for kind, number in zip(kinds, row, strict=True) if number)
            for row in rows.tolist()
        ],
        at,
    )


@dataclass(frozen=True)
class _Columns:
    items: int
    first: int
    instant: Ints
    before: Ints
    after: Ints
    instants: int

    def of(self, kind: int) -> Ints:
        """How many items are of this kind, by instant."""
        gains = np.bincount(self.instant[self.after == kind], minlength=self.instants)
        losses = np.bincount(self.instant[self.before == kind], minlength=self.instants)
        return np.cumsum(gains - losses) + (self.items if kind == self.first else 0)


def _with_column(keys: Ints, ways: int, column: Ints) -> tuple[Ints, int]:
    """Keys that tell apart what `keys` or the column tell apart. They are below `ways`."""
    low = int(column.min())
    span = int(column.max()) - low + 1
    if ways * span > _MOST_KEYS:
        heads, keys = _distinct(keys, ways)
        ways = len(heads)
    return keys * span + (column - low), ways * span


def _distinct(keys: Ints, ways: int) -> tuple[Ints, Ints]:
    """Of keys from 0 to below `ways`: where each different one comes first, and for each key which
    of these it is."""
    if ways > _FEW_KEYS_PER_INSTANT * len(keys):
        _, heads, which = np.unique(keys, return_index=True, return_inverse=True)
        return heads, which
    first = np.full(ways, -1, np.int64)
    # Written backwards, so that of equal keys the first one stays.
    first[keys[::-1]] = np.arange(len(keys) - 1, -1, -1)
    met = first >= 0
    return first[met], (np.cumsum(met) - 1)[keys]
