"""Bytes of a rank: counted as the sync plan lays them out, and told before a job starts."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nonuniform.errors import BadInput
from nonuniform.layout.cuts import ModelPlan
from nonuniform.layout.model_plan import ModelShape, plan_llama
from nonuniform.perf.memory import (
    Load,
    MemoryJob,
    RankBytes,
    check_memory,
    every_rank_bytes,
    largest_share,
    rank_bytes,
)
from nonuniform.placement.shares import batch_shares
from nonuniform.reshard.sync_plan import assign_buckets, bucket_plans

SHAPE = ModelShape(
    layers=2, hidden=64, heads=8, kv_heads=4, head_dim=8, ffn=256, vocab=300, tied=False
)
PLAN = plan_llama(SHAPE, 4, 2)
LOAD = Load(2, 16)
JOB = MemoryJob(
    replicas=2, sequences=12, length=16, accumulation=1, bytes_per_element=4, snapshot=False
)


@st.composite
def plans(draw: st.DrawFn) -> ModelPlan:
    base = draw(st.integers(1, 5))
    kv_heads = draw(st.integers(1, 4))
    shape = ModelShape(
        layers=draw(st.integers(1, 2)),
        hidden=draw(st.sampled_from([4, 6])),
        heads=kv_heads * draw(st.integers(1, 3)) if draw(st.booleans()) else kv_heads + 1,
        kv_heads=kv_heads,
        head_dim=2,
        ffn=draw(st.integers(1, 20)),
        vocab=draw(st.integers(1, 20)),
        tied=draw(st.booleans()),
    )
    return plan_llama(shape, base, draw(st.integers(1, base)), allow_empty=True)


@settings(max_examples=120, deadline=None)
@given(plans(), st.data())
def test_bytes_are_those_of_the_shard_and_of_the_buckets(
    plan: ModelPlan, data: st.DataObject
) -> None:
    degree = data.draw(st.integers(1, plan.base))
    sync_degree = data.draw(st.integers(1, degree))
    buckets = assign_buckets(plan, data.draw(st.sampled_from([1, 50, 10**9])))
    found = every_rank_bytes(plan, degree, sync_degree, LOAD, 8)
    assert len(found) == degree
    for label, rank in enumerate(found):
        shard = sum(plan.local_elements(tensor, degree, label) for tensor in plan.tensors)
        assert rank.weights == rank.scratch == 8 * shard
        assert rank.moments == 2 * rank.weights
        assert rank.snapshot == rank.moving == 3 * rank.weights
        bucket_elements = wires = gradients = 0
        for bucket in bucket_plans(plan, degree, label, sync_degree, buckets):
            bucket_elements += bucket.size
            gradients += sum(span.length for _, span in bucket.grads)
            wires += sum(bucket.send_counts) + sum(bucket.recv_counts)
            wires += sum(bucket.back_send_counts) + sum(bucket.back_recv_counts)
        assert rank.gradients == 8 * gradients
        assert rank.gradients + rank.staging == 8 * (bucket_elements + wires)


@settings(max_examples=60, deadline=None)
@given(plans(), st.data())
def test_the_worst_rank_needs_most_and_less_work_needs_less(
    plan: ModelPlan, data: st.DataObject
) -> None:
    degree = data.draw(st.integers(1, plan.base))
    sync_degree = data.draw(st.integers(1, degree))
    worst = rank_bytes(plan, degree, sync_degree, LOAD, 4)
    ranks = every_rank_bytes(plan, degree, sync_degree, LOAD, 4)
    assert worst in ranks
    assert all(rank.total(True) <= worst.total(True) for rank in ranks)
    for rank, less in zip(
        ranks, every_rank_bytes(plan, degree, sync_degree, Load(1, 16), 4), strict=True
    ):
        assert less.activations < rank.activations
        assert replace(less, activations=rank.activations) == rank
    double = rank_bytes(plan, degree, sync_degree, LOAD, 8)
    assert all(2 * size == double.to_json()[name] for name, size in worst.to_json().items())


def test_a_healthy_rank_needs_staging_for_what_it_gains() -> None:
    """n/m growth: at degree 4, sync degree 2, it gains as much as it has, and wires for it."""
    plan = plan_llama(replace(SHAPE, kv_heads=8), 4, 2)
    whole = rank_bytes(plan, 4, 4, LOAD, 4)
    growing = rank_bytes(plan, 4, 2, LOAD, 4)
    norms = 4 * 5 * SHAPE.hidden  # of replicated gradients there is a second place and wires
    assert whole.staging <= 4 * norms
    assert growing.staging - whole.staging == pytest.approx(3 * growing.weights, rel=0.05)


def test_the_worst_moment_counts_not_the_sum_of_all() -> None:
    rank = RankBytes(
        weights=1, gradients=2, moments=4, staging=8, activations=16, scratch=32, moving=3,
        snapshot=64,
    )  # fmt: skip
    assert (rank.total(snapshot=False), rank.total(snapshot=True)) == (15 + 32, 15 + 32 + 64)


def test_degrees_that_do_not_fall_are_refused() -> None:
    for degree, sync_degree in ((2, 3), (5, 2), (2, 0)):
        with pytest.raises(BadInput, match=f"sync degree {sync_degree}, degree {degree}"):
            rank_bytes(PLAN, degree, sync_degree, LOAD, 4)


def worst_of(job: MemoryJob, least: int) -> int:
    sizes = []
    for degree in (least, 4):
        sequences = -(-largest_share(job, 4, least, degree) // job.accumulation)
        rank = rank_bytes(PLAN, degree, least, Load(sequences, job.length), 4)
        sizes.append(rank.total(job.snapshot))
    return max(sizes)


@pytest.mark.parametrize("snapshot", [False, True])
def test_what_fits_to_the_byte_is_fine_and_one_byte_less_is_told(snapshot: bool) -> None:
    job = MemoryJob(2, 12, 16, 2, 4, snapshot)
    need = worst_of(job, 2)
    assert check_memory(PLAN, job, need) is None
    complaint = check_memory(PLAN, job, need - 1)
    assert complaint is not None
    assert complaint.startswith("[parallel] min_degree = 2: a rank at degree ")
    assert "\n" not in complaint
    assert f"needs about {need / 2**30:.3g} GiB" in complaint
    assert f"available are {(need - 1) / 2**30:.3g} GiB" in complaint
    assert ("snapshot" in complaint) == snapshot
    fitting = next((n for n in (3, 4) if worst_of(job, n) <= need - 1), None)
    assert fitting is not None
    assert complaint.endswith(f"min_degree = {fitting} would fit")


def test_where_nothing_fits_no_degree_is_promised() -> None:
    complaint = check_memory(PLAN, JOB, 1000)
    assert complaint is not None
    assert complaint.endswith("nor do whole replicas fit")


def test_the_only_replica_is_looked_at_where_it_is_hurt() -> None:
    job = MemoryJob(1, 12, 16, 1, 4, False)
    need = rank_bytes(PLAN, 2, 2, Load(12, 16), 4).total(False)
    assert check_memory(PLAN, job, need) is None
    complaint = check_memory(PLAN, job, need - 1)
    assert complaint is not None
    assert "a rank at degree 2 needs" in complaint


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 6), st.integers(1, 8), st.data())
def test_no_replica_gets_more_than_the_largest_share(
    replicas: int, base: int, data: st.DataObject
) -> None:
    least = data.draw(st.integers(1, base))
    sequences = data.draw(st.integers(replicas, 60))
    job = MemoryJob(replicas, sequences, 16, 1, 4, False)
    shares = batch_shares([float(least), *[float(base)] * (replicas - 1)], sequences)
    for share, degree in zip(shares, (least, *[base] * (replicas - 1)), strict=True):
        assert share <= largest_share(job, base, least, degree)
    assert shares[0] >= largest_share(job, base, least, least) - 1 or shares[0] == 1
