"""Gradient sync on ranks that are threads: exact sums, the same bits everywhere, one norm."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from standins.gradients import Known
from standins.shards import CPU, KV_GROUPS, SHARED_KV, parameters_of, plan_of
from standins.threads import Meeting, run_ranks
from torch import Tensor

from nonuniform.layout.cuts import ModelPlan
from nonuniform.layout.model_plan import ModelShape
from nonuniform.reshard.sync_plan import assign_buckets, bucket_plans
from nonuniform.train.groups import SoloGroup
from nonuniform.train.state import initial_state
from nonuniform.train.sync import GradientSync, ThreadLane, combine_norms, make_buckets

SHARED = replace(SHARED_KV, layers=1)
SMALL, LARGE = 60, 10**6  # elements of a bucket: one tensor or few, or all of them


Answers = dict[tuple[int, int], Any]


class World:
    """The meetings of replicas of unequal degree, and a sync for each of their ranks."""

    def __init__(self, plan: ModelPlan, degrees: tuple[int, ...], elements: int = SMALL) -> None:
        self.plan = plan
        self.degrees = degrees
        self.sync_degree = min(degrees)
        self.replicas = [Meeting(degree) for degree in degrees]
        self.across = [Meeting(len(degrees)) for _ in range(self.sync_degree)]
        self.buckets = assign_buckets(plan, elements)

    def run(self, rank: Callable[[int, int, GradientSync], Any]) -> Answers:
        """What `rank` returns for every (replica, label)."""
        places = [(r, label) for r, degree in enumerate(self.degrees) for label in range(degree)]
        bodies = [partial(self._one, rank, *place) for place in places]
        return dict(zip(places, run_ranks(bodies, self.replicas + self.across), strict=True))

    def _one(self, rank: Callable[[int, int, GradientSync], Any], replica: int, label: int) -> Any:
        sync = self._sync_of(replica, label)
        try:
            return rank(replica, label, sync)
        finally:
            sync.close()

    def _sync_of(self, replica: int, label: int) -> GradientSync:
        degree = self.degrees[replica]
        state = initial_state(self.plan, (degree, label), 1, torch.float64, CPU)
        plans = bucket_plans(self.plan, degree, label, self.sync_degree, self.buckets)
        syncs = label < self.sync_degree
        across = self.across[label].group(replica) if syncs else SoloGroup()
        made = make_buckets(plans, torch.float64, CPU)
        group = self.replicas[replica].group(label)
        return GradientSync(made, parameters_of(state), group, across, ThreadLane())


def backward(known: Known, replica: int, label: int, sync: GradientSync, times: int = 1) -> None:
    """A loss whose gradient is what is known, in an order that is not that of the model."""
    terms = []
    for name, parameter in sorted(sync._parameters.items()):
        gradient = known.of_rank(known.plan.tensor(name), replica, label)
        if gradient is not None:
            terms.append((parameter * gradient.reshape(parameter.shape)).sum() / times)
    torch.stack(terms).sum().backward()


def step(
    known: Known, micros: int, replica: int, label: int, sync: GradientSync
) -> dict[str, Tensor]:
    sync.begin()
    for micro in range(micros):
        if micro == micros - 1:
            sync.arm()
        backward(known, replica, label, sync, micros)
    sync.finish(0.5 * replica, 10 + replica)
    return {name: p.grad.clone() for name, p in sync._parameters.items() if p.grad is not None}


CASES = {
    "equal": (SHARED, (3, 3), 3),
    "one hurt": (SHARED, (3, 2), 3),
    "sync degree 1": (SHARED, (3, 1), 3),
    "all differ": (SHARED, (1, 3, 2), 3),
    "groups, tied": (KV_GROUPS, (4, 3), 4),
    "one replica": (KV_GROUPS, (3,), 4),
    "empty ranks": (replace(SHARED, ffn=2, vocab=3), (4, 3), 4),
}


@pytest.mark.parametrize(("micros", "elements"), [(1, LARGE), (2, SMALL)])
@pytest.mark.parametrize(("shape", "degrees", "base"), CASES.values(), ids=CASES)
def test_every_owner_has_the_sum_over_all_replicas(
    shape: ModelShape, degrees: tuple[int, ...], base: int, micros: int, elements: int
) -> None:
    plan = plan_of(shape, base, empty=True)
    known = Known(plan, degrees)
    world = World(plan, degrees, elements)
    found = world.run(lambda r, label, sync: step(known, micros, r, label, sync))
    for (replica, label), gradients in found.items():
        assert set(gradients) == {tensor.name for tensor in plan.tensors}
        for tensor in plan.tensors:
            rows = torch.from_numpy(plan.local_rows(tensor, degrees[replica], label).copy())
            wanted = known.total(tensor)[rows]
            assert torch.equal(gradients[tensor.name].reshape(wanted.shape), wanted), tensor.name


def test_what_got_no_gradient_is_flushed_as_zeros() -> None:
    """Of one tensor nobody has a gradient, of two others only one replica has."""
    plan = plan_of(SHARED, 3)
    missing = {(0, "norm.weight"), (1, "norm.weight"), (0, "layers.0.attention.k.weight")}
    known = Known(plan, (3, 2), frozenset(missing | {(1, "head.weight")}))
    found = World(plan, (3, 2)).run(lambda r, label, s: step(known, 1, r, label, s))
    for (replica, label), gradients in found.items():
        assert torch.equal(gradients["norm.weight"], torch.zeros(4, dtype=torch.float64))
        for tensor in plan.tensors:
            rows = torch.from_numpy(plan.local_rows(tensor, (3, 2)[replica], label).copy())
            wanted = known.total(tensor)[rows]
            assert torch.equal(gradients[tensor.name].reshape(wanted.shape), wanted), tensor.name


def test_every_step_starts_from_nothing() -> None:
    plan = plan_of(SHARED, 3)
    known = Known(plan, (3, 2))

    def two_steps(replica: int, label: int, sync: GradientSync) -> bool:
        first = step(known, 1, replica, label, sync)
        sync.scale(0.25)
        scaled = {name: p.grad for name, p in sync._parameters.items()}
        assert all(torch.equal(scaled[name] * 4, first[name]) for name in first)
        second = step(known, 2, replica, label, sync)
        return all(torch.equal(first[name], second[name]) for name in first)

    assert all(World(plan, (3, 2)).run(two_steps).values())


@pytest.mark.parametrize("p", [1.0, 2.0, math.inf])
@pytest.mark.parametrize("degrees", [(3, 2), (1, 3)])
def test_the_norm_and_the_tokens_are_the_same_bits_on_every_rank(
    p: float, degrees: tuple[int, ...]
) -> None:
    plan = plan_of(SHARED, 3)
    known = Known(plan, degrees)

    def measure(replica: int, label: int, sync: GradientSync) -> tuple[float, float, int]:
        step(known, 1, replica, label, sync)
        return sync.norm_and_totals(p)

    found = set(World(plan, degrees).run(measure).values())
    assert len(found) == 1
    norm, loss, tokens = found.pop()
    assert norm == pytest.approx(known.norm(p), rel=1e-14)
    assert tokens == sum(10 + replica for replica in range(len(degrees)))
    assert loss == sum(0.5 * replica for replica in range(len(degrees)))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("where", [(0, 2), (1, 1)])  # an extra rank, a sync rank
def test_what_is_not_finite_shows_in_everybodys_norm(bad: float, where: tuple[int, int]) -> None:
    plan = plan_of(SHARED, 3)
    known = Known(plan, (3, 2))

    def spoiled(replica: int, label: int, sync: GradientSync) -> float:
        sync.begin()
        backward(known, replica, label, sync)
        gradient = sync._parameters["layers.0.ffn.up.weight"].grad
        assert gradient is not None
        if (replica, label) == where:
            gradient[-1, -1] = bad
        sync.finish(0.0, 5)
        return sync.norm_and_totals(2.0)[0]

    norms = list(World(plan, (3, 2)).run(spoiled).values())
    assert len({str(norm) for norm in norms}) == 1
    assert not math.isfinite(norms[0])


norms = st.floats(0, 1e150) | st.just(math.inf) | st.just(math.nan)


@settings(max_examples=60)
@given(st.lists(norms, max_size=6), st.sampled_from([1.0, 2.0, math.inf]))
@example([0.0, 0.0], 2.0)
@example([1e-300, 1e-300], 2.0)
@example([], 1.0)
def test_norms_of_parts_make_the_norm_of_the_whole(parts: list[float], p: float) -> None:
    combined = combine_norms(parts, p)
    if any(math.isnan(part) for part in parts):
        assert math.isnan(combined)
    elif math.inf in parts:
        assert combined == math.inf
    elif p == math.inf:
        assert combined == max(parts, default=0.0)
    else:
        exact = math.fsum(parts) if p == 1.0 else math.hypot(*parts)
        assert combined == pytest.approx(exact, rel=1e-12)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(-100, 100), min_size=1, max_size=20), st.data())
def test_it_does_not_matter_where_a_vector_is_cut(vector: list[float], data: st.DataObject) -> None:
    p = data.draw(st.sampled_from([1.0, 2.0, math.inf]))
    cut = data.draw(st.integers(0, len(vector)))
    whole = torch.tensor(vector, dtype=torch.float64)
    pieces = [piece for piece in (whole[:cut], whole[cut:]) if len(piece)]
    parts = [float(torch.linalg.vector_norm(piece, p)) for piece in pieces]
    assert combine_norms(parts, p) == pytest.approx(float(torch.linalg.vector_norm(whole, p)))
