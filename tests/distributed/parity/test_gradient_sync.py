"""The gradient sync on hand-made gradients, where the right answer is known by heart."""

from __future__ import annotations

import gc
import math
import weakref
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from loopback.pieces import Micro, SyncOrder, SyncStep, sync_by_hand
from loopback.pool import Pool
from torch import nn

from nonuniform.layout.cuts import ModelPlan, TensorCut
from nonuniform.layout.family import Family
from nonuniform.layout.units import Ownership
from nonuniform.placement.placement import Placement, ReplicaPlacement
from nonuniform.reshard.sync_plan import assign_buckets, bucket_plans
from nonuniform.train.groups import SoloGroup
from nonuniform.train.sync import GradientSync, lane_for, make_buckets

DEGREES = [(1,), (2,), (3,), (4,), (1, 1), (2, 1), (2, 2), (4, 1), (4, 3), (4, 4, 2), (4, 3, 2, 1)]
Step = tuple[int, Sequence[Micro]]


def plan_of(base: int) -> ModelPlan:
    """A weight that every rank has and one that is cut in two rows."""
    families = (
        Family("replicated", 1, base, Ownership.REPLICATED),
        Family("rows", 2, base, Ownership.SHARDED),
    )
    tensors = (
        TensorCut("norm", (2,), None, "replicated"),
        TensorCut("cut", (2, 1), 0, "rows"),
    )
    return ModelPlan(base, 1, families, tensors)


def placement_of(degrees: Sequence[int]) -> Placement:
    return Placement(
        tuple(
            ReplicaPlacement(replica, tuple(f"{replica}/{i}" for i in range(degree)), 1)
            for replica, degree in enumerate(degrees)
        )
    )


def gradient(norm: Sequence[float] | None, cut: Sequence[float] | None) -> Micro:
    """What a micro-batch leaves; None: no path from the loss to that weight."""
    micro = {}
    if norm is not None:
        micro["norm"] = np.array([norm], dtype=np.float64)
    if cut is not None:
        micro["cut"] = np.array(cut, dtype=np.float64)[:, None]
    return micro


def sync(
    pool: Pool, degrees: Sequence[int], steps: Sequence[Sequence[Step]], p: float = 2.0
) -> list[list[SyncStep]]:
    """`steps[replica]`; the answers of all ranks in rank order."""
    plan, placement = plan_of(max(degrees)), placement_of(degrees)
    orders = [
        SyncOrder(plan, placement, member.gpu, steps[member.replica], p)
        for member in placement.members()
    ]
    return pool.run(sync_by_hand, orders)


def whole(degrees: Sequence[int], answers: Sequence[Sequence[SyncStep]], step: int) -> Micro:
    """The gradient by logical rows, put together from what all ranks of all replicas hold;
    copies must agree."""
    plan = plan_of(max(degrees))
    found = {t.name: np.full((t.rows, t.row_elements), np.nan) for t in plan.tensors}
    members = placement_of(degrees).members()
    for member, answer in zip(members, answers, strict=True):
        for tensor in plan.tensors:
            rows = plan.local_rows(tensor, degrees[member.replica], member.label)
            place = found[tensor.name]
            new = answer[step].gradients[tensor.name]
            known = ~np.isnan(place[rows])
            assert np.array_equal(place[rows][known], new[known]), f"{tensor.name} on {member}"
            place[rows] = new
    return found


@pytest.mark.parametrize("degrees", [(1, 1), (2, 1), (3, 2)])
def test_replicas_count_by_their_tokens(pool: Pool, degrees: tuple[int, int]) -> None:
    """Three tokens of gradient 1 and one of gradient 5: 8 over 4 tokens, not the mean of means."""
    many = (3, [gradient((1, 1), (1, 1))] * 3)
    one = (1, [gradient((5, 5), (5, 5))])
    answers = sync(pool, degrees, [[many], [one]])
    assert {answer[0].tokens for answer in answers} == {4.0}
    for total in whole(degrees, answers, 0).values():
        assert (total / 4.0 == 2.0).all()


@pytest.mark.parametrize("degrees", DEGREES, ids=str)
def test_the_norm_counts_every_element_once(pool: Pool, degrees: tuple[int, ...]) -> None:
    """(1, 1) on every rank and (3, 4) cut: sqrt(27), the same bits wherever it is asked for."""
    share = 1.0 / 2 ** (len(degrees) - 1)  # halves, quarters ...: sums that are exact
    parts = [share * 2**replica for replica in range(len(degrees) - 1)]
    parts.append(1.0 - sum(parts))
    steps = [[(1, [gradient((part, part), (3 * part, 4 * part))])] for part in parts]
    answers = sync(pool, degrees, steps)
    assert len({answer[0].norm for answer in answers}) == 1
    assert answers[0][0].norm == pytest.approx(math.sqrt(27), rel=1e-15)
    total = whole(degrees, answers, 0)
    assert total["norm"].tolist() == [[1.0, 1.0]]
    assert total["cut"].tolist() == [[3.0], [4.0]]


@pytest.mark.parametrize(("p", "norm"), [(1.0, 9.0), (2.0, math.sqrt(27)), (math.inf, 4.0)])
def test_other_norms(pool: Pool, p: float, norm: float) -> None:
    steps = [[(1, [gradient((1, 0), (3, 0))])], [(1, [gradient((0, -1), (0, -4))])]]
    answers = sync(pool, (4, 3), steps, p)
    assert len({answer[0].norm for answer in answers}) == 1
    assert answers[0][0].norm == pytest.approx(norm, rel=1e-15)


def test_what_is_not_a_number_is_seen_by_every_rank(pool: Pool) -> None:
    steps = [[(1, [gradient((1, 1), (3, 4))])], [(1, [gradient((1, 1), (3, math.nan))])]]
    assert all(math.isnan(answer[0].norm) for answer in sync(pool, (3, 2), steps))
    steps = [[(1, [gradient((1, 1), (3, 4))])], [(1, [gradient((1, 1), (-math.inf, 4))])]]
    assert all(answer[0].norm == math.inf for answer in sync(pool, (3, 2), steps))


@pytest.mark.parametrize("degrees", [(1, 1), (3, 2), (4, 4)])
def test_a_weight_without_a_gradient_counts_as_zeros(pool: Pool, degrees: tuple[int, int]) -> None:
    """Not as what was left there by the step before; also if only one replica left it out."""
    full = (1, [gradient((1, 2), (3, 4))])
    without_norm = (1, [gradient(None, (3, 4))])
    without_cut = (1, [gradient((1, 2), None)])
    first = [full, without_norm, without_norm, full]
    second = [full, without_norm, without_cut, full]
    answers = sync(pool, degrees, [first, second])
    expected = [((2, 4), (6, 8)), ((0, 0), (6, 8)), ((1, 2), (3, 4)), ((2, 4), (6, 8))]
    for step, (norm, cut) in enumerate(expected):
        total = whole(degrees, answers, step)
        assert total["norm"].tolist() == [list(map(float, norm))]
        assert total["cut"].ravel().tolist() == list(map(float, cut))


def test_a_closed_sync_lets_go_of_groups_buffers_and_weights() -> None:
    """Hooks tie weights to the sync and the sync to its groups: a ring that no collector sees."""
    plan = plan_of(1)
    parameters = {t.name: nn.Parameter(torch.zeros(t.rows, t.row_elements)) for t in plan.tensors}
    buckets = make_buckets(
        bucket_plans(plan, 1, 0, 1, assign_buckets(plan, 1)), torch.float32, torch.device("cpu")
    )
    sync = GradientSync(
        buckets, parameters, SoloGroup(), SoloGroup(), lane_for(torch.device("cpu"))
    )
    alive = [weakref.ref(sync), weakref.ref(buckets[0]), weakref.ref(parameters["norm"])]
    sync.close()
    del sync, buckets, parameters
    gc.collect()
    assert [reference() for reference in alive] == [None] * 3
