"""Cuts of tensors, and the plan of a whole model as families and cuts.

In: tensors with shapes, the family each is cut by, a base degree. Out: for any degree and label,
which logical rows a rank holds and in which order. DESIGN: "Nested layouts".
Storage is unit-major: a shard is one matrix [local rows, row elements] whose rows are the rows
along `axis` of its units in local order; a row-parallel weight is therefore stored transposed.
Does not know: values, dtypes, devices, or the modules that use the tensors (model_plan does).
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from nonuniform.errors import BadInput
from nonuniform.layout.family import Family
from nonuniform.layout.units import IntArray

# Part of the fingerprint: checkpoints and votes of another dealing rule must not match.
LAYOUT_RULE = "nested-1"


@dataclass(frozen=True)
class TensorCut:
    """One parameter: its logical shape and how it is cut.

    axis 0: rows (outputs) are cut; axis 1: columns (inputs) are cut and the shard is stored
    transposed; None: never cut, the flattened tensor is one row and one unit.
    """

    name: str
    shape: tuple[int, ...]
    axis: int | None
    family: str
    unit_rows: int = 1

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def rows(self) -> int:
        """Length of the axis that is cut."""
        return 1 if self.axis is None else self.shape[self.axis]

    @property
    def row_elements(self) -> int:
        return self.elements // self.rows

    @property
    def units(self) -> int:
        return -(-self.rows // self.unit_rows)

    def unit_span(self, unit: int) -> tuple[int, int]:
        """Logical rows [start, stop) of a unit; the last unit may be short."""
        start = unit * self.unit_rows
        return start, min(start + self.unit_rows, self.rows)

    def unit_elements(self, unit: int) -> int:
        start, stop = self.unit_span(unit)
        return (stop - start) * self.row_elements


@dataclass(frozen=True)
class ModelPlan:
    """Families and tensors in model (forward) order, for degrees up to `base`."""

    base: int
    min_degree: int
    families: tuple[Family, ...]
    tensors: tuple[TensorCut, ...]

    def __post_init__(self) -> None:
        if not 1 <= self.min_degree <= self.base:
            raise BadInput(
                f"min_degree = {self.min_degree}: must be between 1 and the degree {self.base}"
            )
        for family in self.families:
            if family.base != self.base:
                raise BadInput(f"family {family.name}: base {family.base} in a plan of {self.base}")
        for tensor in self.tensors:
            family = self.family(tensor.family)
            if tensor.units != family.count:
                raise BadInput(
                    f"{tensor.name}: {tensor.rows} rows in units of {tensor.unit_rows} are "
                    f"{tensor.units} units, family {family.name} has {family.count}"
                )
        if len(self._tensor_by_name) != len(self.tensors):
            raise BadInput(f"{len(self.tensors)} tensors with {len(self._tensor_by_name)} names")

    @cached_property
    def _family_by_name(self) -> dict[str, Family]:
        return {family.name: family for family in self.families}

    @cached_property
    def _tensor_by_name(self) -> dict[str, TensorCut]:
        return {tensor.name: tensor for tensor in self.tensors}

    @cached_property
    def _tensors_by_family(self) -> dict[str, tuple[TensorCut, ...]]:
        return {
            family.name: tuple(t for t in self.tensors if t.family == family.name)
            for family in self.families
        }

    @cached_property
    def _unit_elements(self) -> dict[str, IntArray]:
        return {family.name: self._count_elements(family) for family in self.families}

    def _count_elements(self, family: Family) -> IntArray:
        elements = np.zeros(family.count, dtype=np.int64)
        for tensor in self.tensors_of(family.name):
            starts = np.arange(family.count, dtype=np.int64) * tensor.unit_rows
            stops = np.minimum(starts + tensor.unit_rows, tensor.rows)
            elements += (stops - starts) * tensor.row_elements
        elements.setflags(write=False)
        return elements

    def family(self, name: str) -> Family:
        if name not in self._family_by_name:
            raise BadInput(f"no family {name}: there are {', '.join(self._family_by_name)}")
        return self._family_by_name[name]

    def tensor(self, name: str) -> TensorCut:
        return self._tensor_by_name[name]

    def tensors_of(self, family: str) -> tuple[TensorCut, ...]:
        """Tensors cut by this family, in model order."""
        return self._tensors_by_family[family]

    def unit_elements(self, family: str) -> IntArray:
        """[units]: elements of each unit, over all tensors of the family."""
        return self._unit_elements[family]

    def local_rows(self, tensor: TensorCut, degree: int, label: int) -> IntArray:
        """Logical rows along the cut axis that this label holds, in local order."""
        layout = self.family(tensor.family).at(degree)
        return _rows_of(layout.held[label], tensor.unit_rows, tensor.rows)

    def local_unit_spans(
        self, tensor: TensorCut, degree: int, label: int
    ) -> tuple[tuple[int, int, int], ...]:
        """(unit, start, stop) in rows of the shard, in local order."""
        spans, start = [], 0
        for unit in self.family(tensor.family).at(degree).held[label]:
            first, last = tensor.unit_span(unit)
            spans.append((unit, start, start + last - first))
            start += last - first
        return tuple(spans)

    def local_elements(self, tensor: TensorCut, degree: int, label: int) -> int:
        return len(self.local_rows(tensor, degree, label)) * tensor.row_elements

    def fingerprint(self) -> str:
        """sha256 of everything that decides who holds what, and where."""
        return self._fingerprint

    @cached_property
    def _fingerprint(self) -> str:
        content = {
            "rule": LAYOUT_RULE,
            "base": self.base,
            "min_degree": self.min_degree,
            "families": [
                [f.name, f.count, f.ownership.value, f.users.name if f.users else "", f.uses]
                for f in self.families
            ],
            "tensors": [[t.name, t.shape, t.axis, t.family, t.unit_rows] for t in self.tensors],
        }
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()


@lru_cache(maxsize=1024)
def _rows_of(units: tuple[int, ...], unit_rows: int, rows: int) -> IntArray:
    starts = np.array(units, dtype=np.int64)[:, None] * unit_rows
    found = (starts + np.arange(unit_rows, dtype=np.int64)).ravel()
    found = found[found < rows]
    found.setflags(write=False)
    return found
