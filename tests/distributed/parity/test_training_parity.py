"""Training on unequal replicas against the same job in one process, in double precision.

Loss, gradient norm, every gradient of every rank by position, parameters and both moments; and
copies of a value have the same bits wherever they are held.
"""

from __future__ import annotations

import pytest
from loopback.cases import (
    EMPTY_RANKS,
    LONG,
    VALUES,
    Case,
    job_of,
    legal_cases,
    pairs_of,
    pairwise,
    tokens_of,
)
from loopback.compare import (
    WITHIN,
    copies_that_differ,
    differences,
    plan_of,
    run_case,
    scalars_that_differ,
)
from loopback.pool import Pool
from loopback.reference import OneProcess


def test_every_legal_pair_of_values_is_trained() -> None:
    covered = frozenset[object]().union(*map(pairs_of, pairwise()))
    wanted = frozenset[object]().union(*map(pairs_of, legal_cases()))
    assert covered == wanted
    assert {case.degrees for case in pairwise()} == set(VALUES["degrees"])
    with_5_heads = {case.degrees for case in pairwise() if case.heads == (5, 5)}
    assert with_5_heads == {(4, 4), (4, 3), (5, 4, 3), (4, 1), (3, 2, 1)}


@pytest.mark.parametrize("case", [*pairwise(), *LONG], ids=str)
def test_equals_one_process(pool: Pool, case: Case) -> None:
    check(pool, case)


@pytest.mark.parametrize("case", EMPTY_RANKS, ids=str)
def test_ranks_that_hold_nothing_of_a_module(pool: Pool, case: Case) -> None:
    plan = plan_of(case)
    base = max(case.degrees)
    assert any(0 in plan.family(name).at(base).sizes for name in ("query", "ffn", "vocab"))
    check(pool, case)


def check(pool: Pool, case: Case) -> None:
    plan = plan_of(case)
    runs = run_case(pool, case)
    reference = OneProcess(job_of(case)).train(tokens_of(case))
    found = differences(plan, runs, reference)
    assert found.largest <= WITHIN, found
    assert min(reference.clips.values()) < 1.0
    assert scalars_that_differ(runs) == []
    assert copies_that_differ(plan, runs) == []
