"""A family: the units that several tensors are cut by, and who holds them at any degree.

In: a number of units, a base degree, a kind of ownership. Out: layouts and primaries.
DESIGN: "Nested layouts", "A unit may have several owners".
Does not know: shapes of tensors; which family a module uses (model_plan does).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from nonuniform.errors import BadInput
from nonuniform.layout.nested import nested_layout, replicated_layout, shared_layout
from nonuniform.layout.units import Layout, Ownership


@dataclass(frozen=True)
class Family:
    """`count` units; a SHARED family follows `users`, whose unit u needs the unit `uses[u]`."""

    name: str
    count: int
    base: int
    ownership: Ownership
    users: Family | None = None
    uses: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.ownership is Ownership.REPLICATED and self.count != 1:
            raise BadInput(f"family {self.name}: replicated, so 1 unit, not {self.count}")
        if self.ownership is not Ownership.SHARED:
            return
        if self.users is None or len(self.uses) != self.users.count:
            users = 0 if self.users is None else self.users.count
            raise BadInput(f"family {self.name}: {len(self.uses)} uses for {users} users")
        if set(self.uses) != set(range(self.count)):
            raise BadInput(
                f"family {self.name}: {len(set(self.uses))} units are used of {self.count}"
            )

    def at(self, degree: int) -> Layout:
        """Who holds what at this degree."""
        return _layout_of(self, degree)

    def primary(self, unit: int, sync_degree: int) -> int:
        """The label at which gradients of `unit` cross replicas: its lowest owner there."""
        return int(self.at(sync_degree).primaries[unit])


@lru_cache(maxsize=1024)
def _layout_of(family: Family, degree: int) -> Layout:
    if not 1 <= degree <= family.base:
        raise BadInput(
            f"degree = {degree}: must be between 1 and the base degree {family.base} "
            f"of family {family.name}"
        )
    if family.ownership is Ownership.REPLICATED:
        return replicated_layout(degree)
    if family.users is not None:
        return shared_layout(family.users.at(degree), family.uses)
    return nested_layout(family.count, family.base, degree)
