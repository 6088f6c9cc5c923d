"""A group that lends its place: what was built around it goes on with the group of the next
generation.

In: a connected group. Out: a `Group` that is handed over when a generation ends. Knows nothing of
generations and of what is built around it.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from nonuniform.train.groups import Group, Reduction


class Relay:
    """The same rank of the same size, whoever carries it."""

    def __init__(self, group: Group) -> None:
        self.rank, self.size = group.rank, group.size
        self._group: Group | None = group

    def hand_over(self, group: Group) -> None:
        assert (group.rank, group.size) == (self.rank, self.size), "cut for another place"
        self._group = group

    def let_go(self) -> None:
        """Keep no reference: the last one to a group must not be dropped where nobody may wait."""
        self._group = None

    def all_reduce(self, tensor: Tensor, op: Reduction = "sum") -> None:
        self._carrier.all_reduce(tensor, op)

    def exchange(
        self,
        received: Tensor,
        sent: Tensor,
        received_counts: Sequence[int],
        sent_counts: Sequence[int],
    ) -> None:
        self._carrier.exchange(received, sent, received_counts, sent_counts)

    @property
    def _carrier(self) -> Group:
        assert self._group is not None, "between two generations"
        return self._group
