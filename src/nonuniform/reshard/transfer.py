"""Who sends which units to whom, so that every GPU holds what its new label holds.

In: what living GPUs hold now, what they shall hold, the replica each was in. Out: moves of units,
and the units that nobody alive holds. DESIGN: "Generations": missing units come from replicas
that hold them, spread over senders. A unit stands for all its tensors and their optimizer state.
Does not know: dtypes, bytes, transport, checkpoints.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from nonuniform.errors import BadInput
from nonuniform.layout.family import Family
from nonuniform.layout.model_plan import ModelPlan
from nonuniform.layout.units import BoolArray


@dataclass(frozen=True, order=True)
class Holding:
    """What a living GPU holds now; a GPU with nothing valid has no holding."""

    gpu: str
    degree: int
    label: int


def holders(places: Mapping[str, tuple[int, int]]) -> list[Holding]:
    """From gpu -> (degree, label)."""
    return [Holding(gpu, degree, label) for gpu, (degree, label) in places.items()]


@dataclass(frozen=True, order=True)
class Target:
    """What a GPU shall hold in the next generation."""

    gpu: str
    replica: int
    degree: int
    label: int


@dataclass(frozen=True)
class UnitMove:
    family: str
    unit: int
    source: str
    target: str


@dataclass(frozen=True)
class TransferPlan:
    """`moves` sorted by (source, target, family, unit); `missing` are units nobody holds."""

    moves: tuple[UnitMove, ...]
    missing: tuple[tuple[str, int], ...]

    def between(self, source: str, target: str) -> tuple[UnitMove, ...]:
        return self._by_pair.get((source, target), ())

    def gpus(self) -> tuple[str, ...]:
        """Who sends or receives, ascending."""
        return tuple(sorted({gpu for move in self.moves for gpu in (move.source, move.target)}))

    def elements(self, plan: ModelPlan) -> int:
        """Elements that travel, over all tensors (one copy of the weights)."""
        return sum(int(plan.unit_elements(move.family)[move.unit]) for move in self.moves)

    @cached_property
    def _by_pair(self) -> dict[tuple[str, str], tuple[UnitMove, ...]]:
        pairs: dict[tuple[str, str], list[UnitMove]] = {}
        for move in self.moves:
            pairs.setdefault((move.source, move.target), []).append(move)
        return {pair: tuple(moves) for pair, moves in pairs.items()}


def split_by_replica(
    moves: TransferPlan, replicas: Mapping[str, int]
) -> tuple[dict[int, TransferPlan], TransferPlan]:
    """(moves inside a replica, by replica; all the others). `replicas`: gpu -> replica in which it
    shall work; who is not in there works nowhere."""
    inside: dict[int, list[UnitMove]] = {}
    others: list[UnitMove] = []
    for move in moves.moves:
        source, target = replicas.get(move.source), replicas.get(move.target)
        if target is not None and source == target:
            inside.setdefault(target, []).append(move)
        else:
            others.append(move)
    by_replica = {replica: TransferPlan(tuple(part), ()) for replica, part in inside.items()}
    return by_replica, TransferPlan(tuple(others), moves.missing)


def plan_transfer(
    plan: ModelPlan,
    holdings: Sequence[Holding],
    targets: Sequence[Target],
    home: Mapping[str, int],
) -> TransferPlan:
    """Each unit that a target lacks comes from one holder: of its own replica if there is one,
    then the one that has to send fewest elements so far, then the lowest name. A GPU that is no
    target itself (a spare that still holds its shard) sends only what nobody else holds.

    `home`: gpu -> replica it was in. The order of the input does not matter.
    """
    holders, needs = sorted(holdings), sorted(targets)
    _check_distinct([holding.gpu for holding in holders], "holdings")
    _check_distinct([target.gpu for target in needs], "targets")
    assigned = dict.fromkeys((holding.gpu for holding in holders), 0)
    members = {target.gpu for target in needs}
    moves: list[UnitMove] = []
    missing: set[tuple[str, int]] = set()
    for want in _wanted(plan, holders, needs):
        if not want.able:
            missing.add((want.family, want.unit))
            continue
        replica = want.target.replica
        source = min(
            want.able,
            key=lambda gpu: (gpu not in members, home.get(gpu) != replica, assigned[gpu], gpu),
        )
        assigned[source] += want.elements
        moves.append(UnitMove(want.family, want.unit, source, want.target.gpu))
    moves.sort(key=lambda move: (move.source, move.target, move.family, move.unit))
    return TransferPlan(tuple(moves), tuple(sorted(missing)))


@dataclass(frozen=True)
class _Want:
    family: str
    unit: int
    elements: int
    target: Target
    able: tuple[str, ...]  # GPUs that hold the unit


def _check_distinct(gpus: Sequence[str], what: str) -> None:
    if len(set(gpus)) < len(gpus):
        raise BadInput(f"{what}: {len(gpus)} for {len(set(gpus))} GPUs")


def _wanted(plan: ModelPlan, holders: Sequence[Holding], needs: Sequence[Target]) -> list[_Want]:
    """What targets lack, the largest units first: so the load of senders ends up even."""
    wants: list[_Want] = []
    for family in plan.families:
        holds = _holds(family, holders)
        lacks = _lacks(family, holders, needs)
        elements = plan.unit_elements(family.name)
        for unit in np.flatnonzero(lacks.any(axis=0)).tolist():
            able = tuple(holders[index].gpu for index in np.flatnonzero(holds[:, unit]).tolist())
            wants.extend(
                _Want(family.name, unit, int(elements[unit]), needs[index], able)
                for index in np.flatnonzero(lacks[:, unit]).tolist()
            )
    wants.sort(key=lambda want: -want.elements)  # stable: else by family, unit, GPU
    return wants


def _holds(family: Family, ranks: Sequence[Holding | Target]) -> BoolArray:
    """[ranks, units]"""
    rows = [family.at(rank.degree).membership[rank.label] for rank in ranks]
    return np.array(rows, dtype=np.bool_).reshape(len(rows), family.count)


def _lacks(family: Family, holders: Sequence[Holding], needs: Sequence[Target]) -> BoolArray:
    """[targets, units]: needed there and not already there."""
    holding = {holding.gpu: holding for holding in holders}
    lacks = _holds(family, needs)
    for index, target in enumerate(needs):
        if held := holding.get(target.gpu):
            lacks[index] &= ~family.at(held.degree).membership[held.label]
    return lacks
