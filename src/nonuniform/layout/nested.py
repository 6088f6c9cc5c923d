"""Nested layouts: a pure function of (units, base degree, degree).

In: numbers of units and ranks. Out: a `Layout`. DESIGN: "Nested layouts".
The units of the rank that goes are dealt, one after the other, to the remaining rank that holds
fewest (ties: the lowest label). So at every degree sizes differ by at most one, what a label holds
at degree m starts with what it holds at any n > m, and only units of the ranks that went move.
Does not know: what a unit is made of.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise

from nonuniform.errors import BadInput
from nonuniform.layout.units import Layout


@lru_cache(maxsize=512)
def nested_layout(units: int, base: int, degree: int) -> Layout:
    """The layout of `units` at `degree`, nested below the contiguous cut at `base`."""
    if units < 1:
        raise BadInput(f"units = {units}: must be at least 1")
    if base < 1:
        raise BadInput(f"base = {base}: must be at least 1")
    if not 1 <= degree <= base:
        raise BadInput(f"degree = {degree}: must be between 1 and the base degree {base}")
    held = _contiguous(units, base)
    while len(held) > degree:
        _deal(held.pop(), held)
    return Layout(degree, tuple(tuple(run) for run in held))


def _contiguous(units: int, ranks: int) -> list[list[int]]:
    """Runs of neighbouring units, the larger ones first."""
    size, larger = divmod(units, ranks)
    stops = [label * size + min(label, larger) for label in range(ranks + 1)]
    return [list(range(start, stop)) for start, stop in pairwise(stops)]


def _deal(units: list[int], held: list[list[int]]) -> None:
    """Append each unit to the label that holds fewest, ties to the lowest.

    Sizes differ by at most one, so that is first every smaller label once, then all in turn.
    """
    smallest = min(len(run) for run in held)
    turn = [label for label, run in enumerate(held) if len(run) == smallest]
    first, rest = units[: len(turn)], units[len(turn) :]
    for label, unit in zip(turn, first, strict=False):
        held[label].append(unit)
    for label, run in enumerate(held):
        run.extend(rest[label :: len(held)])


def shared_layout(users: Layout, uses: tuple[int, ...]) -> Layout:
    """What `users` need of things they share: `uses[user unit]` is the shared unit.

    Local order is the order of first use: a label whose users only grow at the end then only
    gains shared units at the end, so this layout keeps the prefix as well.
    """
    held = tuple(tuple(dict.fromkeys(uses[unit] for unit in units)) for units in users.held)
    return Layout(users.degree, held)


@lru_cache(maxsize=512)
def replicated_layout(degree: int) -> Layout:
    """One unit that every label holds."""
    return Layout(degree, ((0,),) * degree)
