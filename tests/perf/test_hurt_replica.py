"""Fewer ranks in the step-time model: what they lose, and what makes up for it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nonuniform.errors import BadInput
from nonuniform.perf.catalog import load_intervals, load_machine, load_model
from nonuniform.perf.nonuniform import (
    Cut,
    Stage,
    hurt_replica,
    hurt_slowdown,
    replica_s,
    slowdown_band,
    spans,
    sync_of,
)
from nonuniform.perf.parallelism import Parallel, Work
from nonuniform.perf.step_time import step_time

HERE = load_machine("gb200_nvl72")
WORK = Work(load_model("gpt_480b"), 2048, 8192)
SPREAD = Parallel(tensor=32, pipeline=4, data=64)
WHOLE = [Stage(32)] * 4


def test_a_whole_replica_is_the_step_without_what_replicas_do_together() -> None:
    step = step_time(HERE, WORK, SPREAD)
    alone = step.total_s - step.data_comm_s - step.optimizer_s
    # The last stage also has the logits: filling passes three that have not.
    assert replica_s(HERE, WORK, SPREAD, WHOLE) == pytest.approx(alone, rel=1e-9)


def test_four_heads_become_five_unless_they_are_cut_finer() -> None:
    whole, finer = (hurt_slowdown(HERE, WORK, SPREAD, 30, cut) for cut in ("whole", "finer"))
    assert 1.03 < finer < 32 / 30
    assert finer < whole < 5 / 4
    # At 28 whole heads are still five.
    assert hurt_slowdown(HERE, WORK, SPREAD, 28, "finer") > finer


@settings(max_examples=40, deadline=None)
@given(st.integers(16, 32), st.sampled_from(["whole", "finer"]))
def test_a_boosted_replica_takes_the_healthy_time(degree: int, cut: Cut) -> None:
    found = hurt_replica(HERE, WORK, SPREAD, degree, cut)
    assert found.boost_clock is not None
    boosted = [Stage(degree, found.boost_clock), *WHOLE[1:]]
    assert replica_s(HERE, WORK, SPREAD, boosted, cut) == pytest.approx(found.healthy_s, rel=1e-6)
    # Memory and networks do not follow the clock, so it has to rise by more than the time.
    assert found.boost_clock >= found.slowdown - 1e-9


@settings(max_examples=40, deadline=None)
@given(st.integers(16, 32), st.sampled_from(["whole", "finer"]))
def test_a_replica_with_its_share_takes_the_healthy_time(degree: int, cut: Cut) -> None:
    found = hurt_replica(HERE, WORK, SPREAD, degree, cut)
    count = SPREAD.micro_batches(WORK) * found.batch_share
    stages = [Stage(degree), *WHOLE[1:]]
    took = replica_s(HERE, WORK, SPREAD, stages, cut, micro_batches=count)
    assert took == pytest.approx(found.healthy_s, rel=1e-9)


@given(st.integers(1, 31))
def test_fewer_ranks_are_never_faster(degree: int) -> None:
    for cut in ("whole", "finer"):
        less, more = (hurt_slowdown(HERE, WORK, SPREAD, n, cut) for n in (degree, degree + 1))  # type: ignore[arg-type]
        assert less >= more * (1 - 1e-9)


def test_a_replica_runs_at_its_slowest_stage() -> None:
    """Whichever stage it is, and a second hurt stage costs hardly more."""
    stages = [replica_s(HERE, WORK, SPREAD, [Stage(30 if i == k else 32) for i in range(4)])
              for k in range(3)]  # fmt: skip
    assert max(stages) == pytest.approx(min(stages), rel=0.01)
    both = replica_s(HERE, WORK, SPREAD, [Stage(30), Stage(30), Stage(32), Stage(32)])
    assert both == pytest.approx(stages[0], rel=0.02)
    assert both > stages[0]


@given(st.integers(1, 32))
def test_sync_reduces_n_over_m(degree: int) -> None:
    whole, hurt = sync_of(HERE, WORK, SPREAD, 32, 0.0), sync_of(HERE, WORK, SPREAD, degree, 0.0)
    assert hurt.reduce_bytes / whole.reduce_bytes == pytest.approx(32 / degree)
    assert hurt.exposed_s >= whole.exposed_s - 1e-12
    assert (hurt.reshard_bytes == 0) == (degree == 32)


def test_the_band_holds_its_middle_and_is_repeatable() -> None:
    intervals = spans(HERE.constants, load_intervals("blackwell"))
    first, second = (
        slowdown_band(HERE, WORK, SPREAD, 30, "finer", intervals, draws=40) for _ in range(2)
    )
    assert first == second
    assert first.low < first.middle < first.high < 32 / 30 + 0.01


def test_degrees_and_stages_that_cannot_be_are_refused() -> None:
    with pytest.raises(BadInput, match="degree 33 of stage 0"):
        replica_s(HERE, WORK, SPREAD, [Stage(33), *WHOLE[1:]])
    with pytest.raises(BadInput, match=r"3 stages given where .* pipeline = 4"):
        replica_s(HERE, WORK, SPREAD, WHOLE[:3])
    with pytest.raises(BadInput, match="sync degree 0"):
        sync_of(HERE, WORK, SPREAD, 0, 0.0)
    with pytest.raises(BadInput, match="clock = 0"):
        replica_s(HERE, WORK, SPREAD, [replace(WHOLE[0], clock=0.0), *WHOLE[1:]])
