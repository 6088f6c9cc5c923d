"""A group that lends its place: what was built around it goes on with the group of the next
generation.

In: a connected group. Out: a `Group` that is handed over when a generation ends. Knows nothing of
generations and of what is built around it.
"""

from __future__ import annotations

from nonuniform.train.groups import CarriedGroup, Group


class Relay(CarriedGroup):
    """The same rank of the same size, whoever carries it."""

    def __init__(self, group: Group) -> None:
        super().__init__(group.rank, group.size)
        self._group: Group | None = group

    def hand_over(self, group: Group) -> None:
        assert (group.rank, group.size) == (self.rank, self.size), "cut for another place"
        self._group = group

    def let_go(self) -> None:
        """Keep no reference: the last one to a group must not be dropped where nobody may wait."""
        self._group = None

    def _carrier(self) -> Group:
        assert self._group is not None, "between two generations"
        return self._group
