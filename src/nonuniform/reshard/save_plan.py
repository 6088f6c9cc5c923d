"""Who writes which unit of a checkpoint, so that each is written once over all replicas.

In: what living GPUs hold. Out: for each GPU the units it writes, and the units that nobody holds.
DESIGN: "Generations" (a unit stands for all its tensors and their optimizer state, as in a state
transfer). Replicas hold the same values, so which of them writes a unit does not matter; spreading
the units by elements makes the slowest writer as fast as it can be. Each GPU gets neighbouring
units where it can, since those become one piece of a file.
Does not know: dtypes, bytes, files, folders.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from nonuniform.errors import BadInput
from nonuniform.layout.cuts import ModelPlan
from nonuniform.layout.family import Family
from nonuniform.reshard.transfer import Holding

UnitName = tuple[str, int]
"""(family, unit)."""


@dataclass(frozen=True)
class SavePlan:
    """`units`: for every GPU that holds something the units it writes, sorted by family (in the
    order of the model plan) and unit; `missing` are units nobody holds."""

    units: Mapping[str, tuple[UnitName, ...]]
    missing: tuple[UnitName, ...]

    def elements(self, plan: ModelPlan) -> dict[str, int]:
        """gpu -> elements it writes, over all tensors (one copy of the weights)."""
        return {
            gpu: sum(int(plan.unit_elements(family)[unit]) for family, unit in units)
            for gpu, units in self.units.items()
        }


@dataclass(frozen=True)
class _Group:
    """Units of one family that the same GPUs hold."""

    family: str
    units: tuple[int, ...]
    able: tuple[str, ...]
    elements: int


def plan_save(plan: ModelPlan, holdings: Sequence[Holding]) -> SavePlan:
    """Every unit once, by a GPU that holds it. The order of the input does not matter."""
    holders = sorted(holdings)
    if len({holding.gpu for holding in holders}) < len(holders):
        gpus = len({holding.gpu for holding in holders})
        raise BadInput(f"holdings: {len(holders)} for {gpus} GPUs")
    groups = [group for family in plan.families for group in _groups(plan, family, holders)]
    missing = [(group.family, unit) for group in groups if not group.able for unit in group.units]
    load = {holding.gpu: 0 for holding in holders}
    writes: dict[str, list[UnitName]] = {gpu: [] for gpu in load}
    # Units with few holders first: those with many can still even the loads out afterwards.
    for group in sorted(groups, key=lambda group: (len(group.able), -group.elements)):
        if group.able:
            _share_out(plan, group, load, writes)
    order = {family.name: index for index, family in enumerate(plan.families)}
    units = {
        gpu: tuple(sorted(names, key=lambda name: (order[name[0]], name[1])))
        for gpu, names in writes.items()
    }
    return SavePlan(units, tuple(sorted(missing)))


def _groups(plan: ModelPlan, family: Family, holders: Sequence[Holding]) -> list[_Group]:
    elements = plan.unit_elements(family.name)
    gpus_of: dict[tuple[int, int], list[str]] = {}
    for holding in holders:
        gpus_of.setdefault((holding.degree, holding.label), []).append(holding.gpu)
    places: list[list[tuple[int, int]]] = [[] for _ in range(family.count)]
    for degree, label in sorted(gpus_of):
        for unit in family.at(degree).held[label]:
            places[unit].append((degree, label))
    by_places = sorted(range(family.count), key=lambda unit: (places[unit], unit))
    groups = []
    for where, together in groupby(by_places, key=lambda unit: places[unit]):
        units = tuple(together)
        able = tuple(sorted(gpu for place in where for gpu in gpus_of[place]))
        total = sum(int(elements[unit]) for unit in units)
        groups.append(_Group(family.name, units, able, total))
    return groups


def _share_out(
    plan: ModelPlan, group: _Group, load: dict[str, int], writes: dict[str, list[UnitName]]
) -> None:
    """How many units each GPU takes is decided one by one, which ones so that they are neighbours.

    Units of a family are of one size but for the last, so the loads come out as if dealt singly.
    """
    elements = plan.unit_elements(group.family)
    count = dict.fromkeys(group.able, 0)
    queue = [(load[gpu], gpu) for gpu in group.able]
    heapq.heapify(queue)
    for unit in group.units:
        carried, gpu = queue[0]
        count[gpu] += 1
        heapq.heapreplace(queue, (carried + int(elements[unit]), gpu))
    units = iter(group.units)
    for gpu in group.able:
        for _ in range(count[gpu]):
            unit = next(units)
            writes[gpu].append((group.family, unit))
            load[gpu] += int(elements[unit])
