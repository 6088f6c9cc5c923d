"""Gradient sync, simulated: the plans of all ranks of several replicas run on numpy buffers.

The executor below is as dumb as a plan allows: pack, exchange, add, all-reduce, and back. Values
are large random integers, so sums are exact and an element in a wrong place is seen.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nonuniform.errors import BadInput
from nonuniform.layout import (
    Family,
    ModelPlan,
    ModelShape,
    Ownership,
    TensorCut,
    nested_layout,
    plan_llama,
)
from nonuniform.reshard import BucketPlan, Slice, Span, assign_buckets, bucket_plans

Array = npt.NDArray[np.int64]
GARBAGE = -(10**15)


def _view(buffer: Array, span: Span) -> Array:
    assert 0 <= span.offset <= span.offset + span.length <= len(buffer)
    return buffer[span.offset : span.offset + span.length]


def _exchange(
    wires: list[Array], sent: list[tuple[int, ...]], got: list[tuple[int, ...]]
) -> list[Array]:
    """all-to-all with uneven pieces: both sides must agree on every size."""
    ranks = range(len(wires))
    pieces = [np.split(wires[rank], np.cumsum(sent[rank])[:-1]) for rank in ranks]
    for source in ranks:
        for target in ranks:
            assert sent[source][target] == got[target][source] == len(pieces[source][target])
        assert sent[source][source] == 0
    return [np.concatenate([pieces[source][target] for source in ranks]) for target in ranks]


def _pack(buffer: Array, slices: tuple[Slice, ...], counts: tuple[int, ...]) -> Array:
    wire = np.full(sum(counts), GARBAGE)
    for piece in slices:
        wire[piece.wire : piece.wire + piece.buffer.length] = _view(buffer, piece.buffer)
    assert sum(piece.buffer.length for piece in slices) == len(wire)
    return wire


def _unpack(buffer: Array, slices: tuple[Slice, ...], wire: Array) -> None:
    assert sum(piece.buffer.length for piece in slices) == len(wire)
    for piece in slices:
        values = wire[piece.wire : piece.wire + piece.buffer.length]
        view = _view(buffer, piece.buffer)
        view[:] = view + values if piece.add else values


@dataclass
class Job:
    """Replicas of `degrees`, one buffer per rank for one bucket at a time."""

    plan: ModelPlan
    degrees: tuple[int, ...]
    rng: np.random.Generator
    truth: dict[str, Array] = field(default_factory=dict)  # [rows, row elements], over replicas

    def gradients(self) -> list[list[dict[str, Array]]]:
        """[replica][label][tensor]: what backward would leave there; adds up `truth`."""
        return [self._replica_gradients(degree) for degree in self.degrees]

    def _replica_gradients(self, degree: int) -> list[dict[str, Array]]:
        ranks: list[dict[str, Array]] = [{} for _ in range(degree)]
        for tensor in self.plan.tensors:
            shape = (tensor.rows, tensor.row_elements)
            total = np.zeros(shape, dtype=np.int64)
            partial = self.plan.family(tensor.family).ownership is Ownership.SHARED
            whole = self.rng.integers(1, 2**40, shape)
            for label, rank in enumerate(ranks):
                rows = self.plan.local_rows(tensor, degree, label)
                if partial:
                    whole = self.rng.integers(1, 2**40, shape)
                    total[rows] += whole[rows]
                else:
                    total[rows] = whole[rows]
                rank[tensor.name] = whole[rows].ravel()
            self.truth[tensor.name] = self.truth.get(tensor.name, 0) + total
        return ranks

    def out(self, plans: list[BucketPlan], gradients: list[dict[str, Array]]) -> list[Array]:
        """Buffers of one replica when each logical element is complete at its primary."""
        buffers = [np.full(plan.size, GARBAGE) for plan in plans]
        for plan, buffer, local in zip(plans, buffers, gradients, strict=True):
            for name, span in plan.grads:
                _view(buffer, span)[:] = local[name]
            for span in plan.zero:
                _view(buffer, span)[:] = 0
            for source, target, add in plan.own_out:
                view = _view(buffer, target)
                view[:] = _view(buffer, source) + (view if add else 0)
        wires = _exchange(
            [_pack(b, p.pack, p.send_counts) for b, p in zip(buffers, plans, strict=True)],
            [p.send_counts for p in plans],
            [p.recv_counts for p in plans],
        )
        for plan, buffer, wire in zip(plans, buffers, wires, strict=True):
            _unpack(buffer, plan.unpack, wire)
        return buffers

    def back(self, plans: list[BucketPlan], buffers: list[Array]) -> None:
        wires = _exchange(
            [
                _pack(b, p.back_pack, p.back_send_counts)
                for b, p in zip(buffers, plans, strict=True)
            ],
            [p.back_send_counts for p in plans],
            [p.back_recv_counts for p in plans],
        )
        for plan, buffer, wire in zip(plans, buffers, wires, strict=True):
            _unpack(buffer, plan.back_unpack, wire)
            for source, target in plan.own_back:
                _view(buffer, target)[:] = _view(buffer, source)

    def sync(self, bucket_elements: int) -> None:
        """One whole gradient sync; every owner must end with the true sum, in its own order."""
        buckets = assign_buckets(self.plan, bucket_elements)
        m = min(self.degrees)
        plans = [
            [bucket_plans(self.plan, n, label, m, buckets) for label in range(n)]
            for n in self.degrees
        ]
        gradients = self.gradients()
        seen: list[list[str]] = [[] for _ in range(m)]
        for index in range(len(buckets)):
            mine = [[rank[index] for rank in replica] for replica in plans]
            buffers = [self.out(p, g) for p, g in zip(mine, gradients, strict=True)]
            self._all_reduce(mine, buffers)
            for replica, (parts, held) in enumerate(zip(mine, buffers, strict=True)):
                self.back(parts, held)
                self._check_owners(replica, parts, held)
            for label in range(m):
                seen[label] += [name for name, _ in mine[0][label].grads]
        assert all(sorted(names) == sorted(t.name for t in self.plan.tensors) for names in seen)

    def _all_reduce(self, plans: list[list[BucketPlan]], buffers: list[list[Array]]) -> None:
        m = min(self.degrees)
        for label in range(m):
            reduced = plans[0][label].reduced
            assert all(replica[label].reduced == reduced for replica in plans)
            total = sum(replica[label][:reduced] for replica in buffers)
            for replica in buffers:
                replica[label][:reduced] = total
            assert plans[0][label].primaries == ((Span(0, reduced),) if reduced else ())
        assert all(rank.reduced == 0 for replica in plans for rank in replica[m:])
        # Each logical element crosses replicas exactly once.
        crossing = sum(rank.reduced for rank in plans[0])
        names = [name for name, _ in plans[0][0].grads]
        assert crossing == sum(self.plan.tensor(name).elements for name in names)

    def _check_owners(self, replica: int, plans: list[BucketPlan], buffers: list[Array]) -> None:
        degree = self.degrees[replica]
        for label, (plan, buffer) in enumerate(zip(plans, buffers, strict=True)):
            for name, span in plan.grads:
                rows = self.plan.local_rows(self.plan.tensor(name), degree, label)
                assert np.array_equal(_view(buffer, span), self.truth[name][rows].ravel())


def _shape(heads: int, kv_heads: int, **change: int) -> ModelShape:
    size = {"layers": 2, "hidden": 3, "head_dim": 2, "ffn": 257, "vocab": 257} | change
    return ModelShape(heads=heads, kv_heads=kv_heads, tied=bool(size.pop("tied", 0)), **size)


@pytest.mark.parametrize(
    "degrees", [(8, 7, 5), (7, 8, 5), (4, 1), (3, 2, 1), (2, 2), (1, 1), (5, 5)]
)
@pytest.mark.parametrize("heads", [(12, 4), (8, 2), (5, 5), (4, 1), (33, 2)])
@pytest.mark.parametrize("tied", [0, 1])
def test_every_owner_gets_the_true_sum_in_its_own_order(
    degrees: tuple[int, ...], heads: tuple[int, int], tied: int
) -> None:
    base = max(degrees)
    plan = plan_llama(_shape(*heads, tied=tied), base, min(degrees), allow_empty=True)
    Job(plan, degrees, np.random.default_rng(base)).sync(bucket_elements=2000)


@pytest.mark.parametrize("degrees", [(4, 3), (6, 4, 2), (6, 5)])
def test_ranks_without_any_unit_are_legal(degrees: tuple[int, ...]) -> None:
    shape = _shape(2, 1, ffn=3, vocab=5)
    plan = plan_llama(shape, 6, 1, allow_empty=True)
    Job(plan, degrees, np.random.default_rng(0)).sync(bucket_elements=50)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_any_mix_of_degrees_and_any_model(data: st.DataObject) -> None:
    base = data.draw(st.integers(1, 7))
    degrees = data.draw(st.lists(st.integers(1, base), min_size=1, max_size=3))
    heads = data.draw(st.integers(1, 20))
    shape = _shape(
        heads,
        data.draw(st.integers(1, heads)),
        ffn=data.draw(st.integers(1, 300)),
        vocab=data.draw(st.integers(1, 300)),
        layers=1,
    )
    plan = plan_llama(shape, base, min(degrees), allow_empty=True)
    bucket_elements = data.draw(st.sampled_from((1, 300, 10**6)))
    Job(plan, tuple(degrees), np.random.default_rng(1)).sync(bucket_elements)


def _odd_plan(base: int) -> ModelPlan:
    """What the decoder plan lacks: biases, a q norm on local heads, a norm of partial gradients."""
    query = Family("query", 12, base, Ownership.SHARDED)
    kv = Family("kv", 4, base, Ownership.SHARED, query, tuple(q // 3 for q in range(12)))
    q_norm = Family("q_norm", 1, base, Ownership.SHARED, query, (0,) * 12)
    places = Family("places", base, base, Ownership.SHARDED)
    sequence = Family("sequence", 1, base, Ownership.SHARED, places, (0,) * base)
    tensors = (
        TensorCut("norm", (5,), None, "sequence"),
        TensorCut("q", (24, 5), 0, "query", 2),
        TensorCut("q_bias", (24,), 0, "query", 2),
        TensorCut("k_bias", (8,), 0, "kv", 2),
        TensorCut("q_norm", (2,), None, "q_norm"),
        TensorCut("o", (5, 24), 1, "query", 2),
        TensorCut("o_bias", (5,), None, "replicated"),
    )
    replicated = Family("replicated", 1, base, Ownership.REPLICATED)
    return ModelPlan(base, 1, (query, kv, q_norm, places, sequence, replicated), tensors)


@pytest.mark.parametrize("degrees", [(5, 4, 2), (3, 3), (4, 1)])
def test_biases_and_norms_with_partial_gradients_reach_every_owner(
    degrees: tuple[int, ...],
) -> None:
    Job(_odd_plan(5), degrees, np.random.default_rng(2)).sync(bucket_elements=60)


@pytest.mark.parametrize("degree", [2, 3])
def test_one_kv_head_shared_by_all_ranks_is_summed_once_per_rank(degree: int) -> None:
    query = Family("query", 4, degree, Ownership.SHARDED)
    kv = Family("kv", 1, degree, Ownership.SHARED, query, (0,) * 4)
    plan = ModelPlan(degree, 1, (query, kv), (TensorCut("k", (2, 1), 0, "kv", 2),))
    plans = [bucket_plans(plan, degree, r, degree, (("k",),))[0] for r in range(degree)]
    job = Job(plan, (degree,), np.random.default_rng(0))
    buffers = job.out(plans, [{"k": np.array([10**r, 7])} for r in range(degree)])
    job.back(plans, buffers)
    for part, buffer in zip(plans, buffers, strict=True):
        total = [sum(10**r for r in range(degree)), 7 * degree]
        assert _view(buffer, part.grads[0][1]).tolist() == total


@pytest.mark.parametrize(
    ("units", "n", "m"),
    [(8, 8, 7), (32, 8, 7), (16, 4, 3), (64, 64, 63), (128, 32, 30), (12000, 32, 30)],
)
@pytest.mark.parametrize("axis", [0, 1])
def test_pieces_of_extra_ranks_and_own_are_what_the_reduced_rank_holds(
    units: int, n: int, m: int, axis: int
) -> None:
    family = Family("units", units, n, Ownership.SHARDED)
    shape = (units, 3) if axis == 0 else (3, units)
    plan = ModelPlan(n, m, (family,), (TensorCut("w", shape, axis, "units"),))
    weight = np.arange(3 * units).reshape(shape)
    stored = weight if axis == 0 else weight.T  # a row-parallel shard is stored transposed
    plans = [bucket_plans(plan, n, label, m, (("w",),))[0] for label in range(n)]
    gradients = [{"w": stored[plan.local_rows(plan.tensors[0], n, r)].ravel()} for r in range(n)]
    buffers = Job(plan, (n,), np.random.default_rng(0)).out(plans, gradients)
    reduced = nested_layout(units, n, m)
    for label in range(m):
        assert np.array_equal(
            buffers[label][: plans[label].reduced], stored[reduced.orders[label]].ravel()
        )
    # Nothing but the extra ranks' elements is on the wire, each once.
    on_wire = sum(sum(p.send_counts) for p in plans)
    assert on_wire == 3 * sum(nested_layout(units, n, n).sizes[m:])
    assert all(not any(p.send_counts) for p in plans[:m])


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 500), st.integers(1, 16), st.data())
def test_received_elements_differ_by_one_unit(units: int, n: int, data: st.DataObject) -> None:
    m = data.draw(st.integers(1, n))
    plan = ModelPlan(
        n,
        m,
        (Family("units", units, n, Ownership.SHARDED),),
        (TensorCut("w", (units, 2), 0, "units"),),
    )
    plans = [bucket_plans(plan, n, label, m, (("w",),))[0] for label in range(n)]
    received = [sum(p.recv_counts) for p in plans[:m]]
    assert max(received) - min(received) <= 2
    assert [p.back_send_counts for p in plans] == [p.recv_counts for p in plans]


@pytest.mark.parametrize(("n", "m"), [(4, 4), (4, 3), (4, 2), (3, 2)])
def test_shared_partials_travel_owners_minus_primary_each_way(n: int, m: int) -> None:
    plan = _odd_plan(4)
    kv = plan.family("kv")
    pairs = sum(
        label != kv.primary(unit, m) for unit in range(4) for label in kv.at(n).owners(unit)
    )
    plans = [bucket_plans(plan, n, label, m, (("k_bias",),))[0] for label in range(n)]
    assert sum(sum(p.send_counts) for p in plans) == 2 * pairs
    assert sum(sum(p.back_send_counts) for p in plans) == 2 * pairs


def test_replicated_gradients_are_sent_back_only() -> None:
    plans = [bucket_plans(_odd_plan(5), 5, r, 3, (("o_bias",),))[0] for r in range(5)]
    assert all(not any(p.send_counts) for p in plans)
    assert plans[0].back_send_counts == (0, 5, 5, 5, 5)
    assert [p.reduced for p in plans] == [5, 0, 0, 0, 0]


def test_neighbouring_slices_are_joined() -> None:
    plan = ModelPlan(
        2, 1, (Family("u", 64, 2, Ownership.SHARDED),), (TensorCut("w", (64, 3), 0, "u"),)
    )
    extra = bucket_plans(plan, 2, 1, 1, (("w",),))[0]
    assert extra.pack == (Slice(Span(0, 96), 0),)


def test_buckets_follow_backward_and_do_not_depend_on_the_degree() -> None:
    plan = plan_llama(_shape(8, 2, tied=1), 4, 2)
    buckets = assign_buckets(plan, 2000)
    assert [n for names in buckets for n in names] == [t.name for t in reversed(plan.tensors)]
    assert buckets[-1][-1] == "embed.weight"
    for names in buckets:
        assert len(names) == 1 or sum(plan.tensor(n).elements for n in names) <= 2000
    assert buckets == assign_buckets(plan_llama(_shape(8, 2, tied=1), 2, 1), 2000)


@pytest.mark.parametrize("numbers", [(4, 0, 5), (5, 0, 4), (4, 4, 2), (4, 0, 0), (4, -1, 2)])
def test_impossible_ranks_are_refused(numbers: tuple[int, int, int]) -> None:
    plan = plan_llama(_shape(8, 2), 4, 2)
    with pytest.raises(BadInput):
        bucket_plans(plan, *numbers, (("norm.weight",),))
    with pytest.raises(BadInput, match="bucket_elements = 0"):
        assign_buckets(plan, 0)


def test_a_plan_is_quick_enough_for_the_recovery_path() -> None:
    shape = _shape(12, 4, layers=4, hidden=192, head_dim=16, ffn=512, vocab=131_072)
    plan = plan_llama(shape, 4, 2)
    buckets = assign_buckets(plan, 500_000)
    times = []
    for label in range(3):
        started = time.process_time()
        bucket_plans(plan, 4, label, 3, buckets)
        times.append(time.process_time() - started)
    assert min(times) < 0.1
