"""KV heads that several ranks read, clipping that clips, and a norm that no split changes."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from loopback.cases import CLIP, Case, job_of, tokens_of
from loopback.compare import (
    WITHIN,
    copies_that_differ,
    differences,
    orders_of,
    plan_of,
    rows_of,
    run_case,
)
from loopback.pool import Pool
from loopback.ranks import RankRun, partial_gradients, train
from loopback.reference import OneProcess

from nonuniform.layout.units import Ownership

KEYS_AND_VALUES = [f"layers.{i}.attention.{x}.weight" for i in range(2) for x in "kv"]


@pytest.mark.parametrize("degrees", [(2,), (3,), (3, 2), (3, 3)], ids=str)
def test_one_kv_head_on_many_ranks_gets_the_sum(pool: Pool, degrees: tuple[int, ...]) -> None:
    case = Case(degrees, (4, 1))
    plan = plan_of(case)
    family = plan.family("kv")
    assert family.ownership is Ownership.SHARED
    assert all(family.at(degree).held == ((0,),) * degree for degree in degrees)
    runs = run_case(pool, case)
    reference = OneProcess(job_of(case)).train(tokens_of(case))
    assert differences(plan, runs, reference).largest <= WITHIN
    assert copies_that_differ(plan, runs) == []


@pytest.mark.parametrize("degree", [2, 3])
def test_each_rank_has_only_a_part_of_it_before_the_sync(pool: Pool, degree: int) -> None:
    """So that the test above could fail: no rank's own gradient is the right one."""
    case = Case((degree,), (4, 1), steps=1)
    runs = pool.run(partial_gradients, orders_of(case, ()))
    wanted = OneProcess(job_of(case)).train(tokens_of(case)).gradients[1]
    for name in KEYS_AND_VALUES:
        parts = [run.gradients[1][name] for run in runs]
        assert np.abs(sum(parts) - wanted[name]).max() <= WITHIN
        assert all(np.abs(part - wanted[name]).max() > 1e3 * WITHIN for part in parts)


@pytest.mark.parametrize("p", [1.0, 2.0, math.inf])
def test_the_clipped_gradient_has_the_norm_of_the_limit(pool: Pool, p: float) -> None:
    case = Case((3, 2), (4, 2), clip_norm=p, steps=1)
    runs = run_case(pool, case)
    assert runs[0].results[0].grad_norm > 1.5 * CLIP[p]
    for replica in (0, 1):
        every = elements(case, runs, replica)
        assert float(np.linalg.norm(every, p)) == pytest.approx(CLIP[p], rel=1e-12)


def test_a_gradient_below_the_limit_stays_as_it_is(pool: Pool) -> None:
    case = Case((3, 2), (4, 2), steps=1)
    orders = orders_of(case, {1})
    options = replace(orders[0].job.optimizer, clip=1e3)
    job = replace(orders[0].job, optimizer=options)
    for run in pool.run(train, [replace(order, job=job) for order in orders]):
        assert 0.0 < run.results[0].grad_norm < 1e3
        for name, gradient in run.gradients[1].items():
            assert np.array_equal(run.applied[1][name], gradient)


def elements(case: Case, runs: list[RankRun], replica: int) -> np.ndarray:
    """What the optimizers of one replica got, every logical element once."""
    plan = plan_of(case)
    parts = []
    for tensor in plan.tensors:
        rows = {}
        for run in runs:
            if run.member.replica == replica:
                held = rows_of(plan, tensor, run).tolist()
                rows |= dict(zip(held, run.applied[1][tensor.name], strict=True))
        assert len(rows) == tensor.rows
        parts += [rows[row] for row in range(tensor.rows)]
    return np.concatenate(parts)


SPLITS = [
    ((1,), (4,), 1),
    ((2,), (4,), 4),
    ((2, 2), (2, 2), 2),
    ((2, 1), (3, 1), 1),
    ((1, 2), (3, 1), 3),
    ((2, 1, 1, 1), (1, 1, 1, 1), 1),
]


def test_the_norm_is_that_of_the_batch_however_it_is_split(pool: Pool) -> None:
    """Over replicas, degrees and micro-batches, at one global batch of four sequences."""
    norms = []
    for degrees, split, accumulation in SPLITS:
        case = Case(degrees, (4, 2), accumulation=accumulation, split=split, steps=1)
        norms += [run.results[0].grad_norm for run in run_case(pool, case)]
    assert min(norms) > 0.0
    assert max(norms) - min(norms) <= 1e-13
