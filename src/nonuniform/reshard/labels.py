"""Which GPU takes which label after losses and returns.

In: the labels of the survivors, the names of those who join. Out: a label for every GPU.
DESIGN: "Ranks are labels". Survivors whose label still exists keep it; the others take the free
labels so that most elements stay where they are.
Does not know: other replicas, who sends what (transfer does).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from scipy.optimize import linear_sum_assignment

from nonuniform.errors import BadInput
from nonuniform.layout.model_plan import ModelPlan
from nonuniform.layout.units import IntArray


def assign_labels(
    plan: ModelPlan, degree_before: int, survivors: Mapping[str, int], joiners: Iterable[str]
) -> dict[str, int]:
    """gpu -> label at the new degree, which is the number of GPUs; the input's order is ignored."""
    joining = sorted(set(joiners))
    degree = len(survivors) + len(joining)
    _check(plan, degree_before, degree, survivors, joining)
    labels = {gpu: label for gpu, label in sorted(survivors.items()) if label < degree}
    moving = sorted(gpu for gpu in survivors if gpu not in labels)
    free = sorted(set(range(degree)) - set(labels.values()))
    if moving:
        before = [survivors[gpu] for gpu in moving]
        stay = _overlap(plan, (degree_before, before), (degree, free))
        rows, columns = linear_sum_assignment(stay, maximize=True)
        taken = [free[column] for column in columns]
        labels |= {moving[row]: label for row, label in zip(rows, taken, strict=True)}
        free = sorted(set(free) - set(taken))
    labels |= dict(zip(joining, free, strict=True))
    return dict(sorted(labels.items()))


def _check(
    plan: ModelPlan,
    degree_before: int,
    degree: int,
    survivors: Mapping[str, int],
    joining: Sequence[str],
) -> None:
    if not 1 <= degree <= plan.base:
        raise BadInput(f"{degree} GPUs in a replica: must be between 1 and {plan.base}")
    if twice := sorted(set(survivors) & set(joining)):
        raise BadInput(f"GPU {twice[0]} both survives and joins")
    if len(set(survivors.values())) < len(survivors):
        raise BadInput(f"labels of survivors are not distinct: {dict(sorted(survivors.items()))}")
    for gpu, label in survivors.items():
        if not 0 <= label < degree_before:
            raise BadInput(f"GPU {gpu} has label {label} at degree {degree_before}")


def _overlap(
    plan: ModelPlan, before: tuple[int, Sequence[int]], after: tuple[int, Sequence[int]]
) -> IntArray:
    """[labels before, labels after]: elements that both hold; each side is (degree, labels)."""
    stay = np.zeros((len(before[1]), len(after[1])), dtype=np.int64)
    for family in plan.families:
        old = family.at(before[0]).membership[list(before[1])]
        new = family.at(after[0]).membership[list(after[1])]
        stay += (old * plan.unit_elements(family.name)) @ new.T.astype(np.int64)
    return stay
