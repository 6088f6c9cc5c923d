"""A run on many ranks against the run in one process, position by position.

In: what every rank returned, the reference. Out: the largest difference of each quantity; copies
that should have the same bits and have not.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from loopback.cases import Case, job_of, placement_of, tokens_of
from loopback.pool import Pool
from loopback.ranks import Floats, Matrices, RankRun, TrainOrder, train
from loopback.reference import Reference
from nonuniform.layout.cuts import ModelPlan, TensorCut
from nonuniform.train.session import job_plan

WITHIN = 1e-10


@dataclass
class Differences:
    """The largest of each kind, over ranks and steps."""

    loss: float = 0.0
    norm: float = 0.0
    gradient: float = 0.0
    applied: float = 0.0
    weight: float = 0.0
    moments: float = 0.0

    def raise_to(self, **values: float) -> None:
        for name, value in values.items():
            assert value == value, f"{name} is not a number"
            setattr(self, name, max(getattr(self, name), value))

    @property
    def largest(self) -> float:
        return float(max(vars(self).values()))


def run_case(pool: Pool, case: Case) -> list[RankRun]:
    """Every rank of the case, for all its steps; gradients of all steps, or of first and last."""
    keep = range(1, case.steps + 1) if case.steps <= 3 else (1, case.steps)
    return pool.run(train, orders_of(case, keep))


def orders_of(case: Case, keep: Collection[int]) -> list[TrainOrder]:
    job, placement = job_of(case), placement_of(case)
    bounds = np.cumsum((0, *case.shares))
    orders = []
    for member in placement.members():
        start, stop = bounds[member.replica : member.replica + 2]
        tokens = [batch[start:stop] for batch in tokens_of(case)]
        orders.append(TrainOrder(job, placement, member.gpu, tokens, frozenset(keep)))
    return orders


def differences(plan: ModelPlan, runs: Sequence[RankRun], reference: Reference) -> Differences:
    """Losses and norms of every step, and the rows of every rank against those rows."""
    found = Differences()
    for index, (loss, norm) in enumerate(zip(reference.losses, reference.norms, strict=True)):
        first = [run.results[index] for run in runs if run.member.label == 0]
        tokens = first[0].tokens
        found.raise_to(loss=abs(first[0].loss_sum / tokens - loss))
        for run in runs:
            assert run.results[index].tokens == tokens
            found.raise_to(norm=abs(run.results[index].grad_norm - norm))
    for run in runs:
        for step, gradients in run.gradients.items():
            wanted = reference.gradients[step]
            found.raise_to(gradient=_furthest(plan, run, gradients, wanted))
            clip = reference.clips[step]
            clipped = {name: matrix * clip for name, matrix in wanted.items()}
            found.raise_to(applied=_furthest(plan, run, run.applied[step], clipped))
        weight, *moments = (
            _furthest(plan, run, _slot(run.slots, slot), _slot(reference.slots, slot))
            for slot in range(3)
        )
        found.raise_to(weight=weight, moments=max(moments))
    return found


def copies_that_differ(plan: ModelPlan, runs: Sequence[RankRun]) -> list[str]:
    """Ranks that hold a row whose bits are not those of the first rank that holds it: of norms,
    of shared KV heads, and of everything in the other replicas."""
    wrong = []
    for tensor in plan.tensors:
        first: dict[int, bytes] = {}
        for run in runs:
            rows = rows_of(plan, tensor, run)
            matrices = [run.slots[tensor.name][slot] for slot in range(3)]
            matrices += [gradients[tensor.name] for gradients in run.gradients.values()]
            for local, row in enumerate(rows.tolist()):
                bits = b"".join(matrix[local].tobytes() for matrix in matrices)
                if first.setdefault(row, bits) != bits:
                    wrong.append(f"{tensor.name} row {row} on {run.member}")
        assert len(first) == tensor.rows, f"{tensor.name}: {len(first)} of {tensor.rows} rows"
    return wrong


def scalars_that_differ(runs: Sequence[RankRun]) -> list[str]:
    """Ranks whose norm is not, bit for bit, that of the first rank, or whose loss is not that of
    their replica."""
    wrong = []
    for run in runs:
        leader = next(r for r in runs if r.member.replica == run.member.replica)
        for one, own, every in zip(run.results, leader.results, runs[0].results, strict=True):
            if one != own or one.grad_norm != every.grad_norm:
                wrong.append(f"{one} on {run.member}, {own} on {leader.member}, first {every}")
    return wrong


def rows_of(plan: ModelPlan, tensor: TensorCut, run: RankRun) -> np.ndarray:
    return plan.local_rows(tensor, run.degree, run.member.label)


def plan_of(case: Case) -> ModelPlan:
    return job_plan(job_of(case))


def _slot(slots: Mapping[str, tuple[Floats, ...]], index: int) -> Matrices:
    return {name: values[index] for name, values in slots.items()}


def _furthest(plan: ModelPlan, run: RankRun, found: Matrices, wanted: Matrices) -> float:
    """Largest difference of what the rank holds and the rows that it should hold, in order."""
    furthest = 0.0
    for tensor in plan.tensors:
        expected = wanted[tensor.name][rows_of(plan, tensor, run)]
        assert found[tensor.name].shape == expected.shape, tensor.name
        gap = np.abs(found[tensor.name] - expected)
        furthest = max(furthest, float(gap.max(initial=0.0)))
        assert not np.isnan(gap).any(), f"{tensor.name} on {run.member}"
    return furthest
