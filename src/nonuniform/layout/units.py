"""The values every cut is made of: kinds of ownership and a layout.

In: integers. Out: which label holds which units, in which local order.
DESIGN: "Nested layouts" and "A unit may have several owners".
Does not know: tensors, bytes, GPUs, how a layout came to be.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


class Ownership(enum.Enum):
    """How the gradient of a unit is spread over the ranks that own it."""

    SHARDED = "sharded"  # one owner, which has the whole gradient
    REPLICATED = "replicated"  # every rank owns it and has the same gradient
    SHARED = "shared-partial"  # some ranks own it, each has a partial gradient


@dataclass(frozen=True)
class Layout:
    """`held[label]` are the units of that label in local order: the order in its memory."""

    degree: int
    held: tuple[tuple[int, ...], ...]

    def owners(self, unit: int) -> tuple[int, ...]:
        """Labels that hold `unit`, ascending."""
        return tuple(int(label) for label in np.flatnonzero(self.membership[:, unit]))

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        return tuple(len(units) for units in self.held)

    @cached_property
    def units(self) -> int:
        """Number of units: ids run from 0 to one less."""
        return 1 + max((max(units) for units in self.held if units), default=-1)

    @cached_property
    def orders(self) -> tuple[IntArray, ...]:
        """`held` as arrays, for plans that must not loop over units."""
        return tuple(_frozen(np.array(units, dtype=np.int64)) for units in self.held)

    @cached_property
    def membership(self) -> BoolArray:
        """[degree, units]: True where the label holds the unit."""
        member = np.zeros((self.degree, self.units), dtype=np.bool_)
        for label, units in enumerate(self.orders):
            member[label, units] = True
        member.setflags(write=False)
        return member

    @cached_property
    def primaries(self) -> IntArray:
        """[units]: the lowest label that holds each unit."""
        return _frozen(self.membership.argmax(axis=0).astype(np.int64))


def _frozen(array: IntArray) -> IntArray:
    array.setflags(write=False)
    return array
