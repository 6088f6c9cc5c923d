"""The fast simulator against a slow and plain one written apart from it, event by event."""

from __future__ import annotations

import sys
from collections import Counter
from fractions import Fraction
from pathlib import Path
from random import Random

import pytest

from nonuniform.cluster.trace import Trace
from nonuniform.placement.shape import home_counts, shape, shape_in_place
from nonuniform.placement.spares import spares_needed
from nonuniform.sim.engine import simulate, trajectory

sys.path.insert(0, str(Path(__file__).parent))

from oracle import books
from oracle.clockwork import Cluster, Failure, Training
from oracle.scenes import HOURS, KINDS, REPACKS, SEEDS, Scene, scene
from oracle.shape import Case, work
from oracle.shape import spares_needed as spares_one_by_one

CLOSE = 1e-9


@pytest.mark.parametrize("seed", SEEDS)
def test_a_life(seed: int) -> None:
    it = scene(seed)
    for name, options in it.policies.items():
        told = Cluster(case_of(it, name), failures(it.trace), HOURS).live()
        ours = trajectory(it.trace, it.fleet, it.job, options)
        steps = list(zip(ours.time_h, ours.throughput, ours.mode, strict=True))
        assert_same_steps(f"seed {seed}, {name}", steps, books.steps(told))
        assert_same_books(f"seed {seed}, {name}", it, told, name)


@pytest.mark.parametrize("seed", SEEDS)
def test_shapes(seed: int) -> None:
    """Also of clusters that are hurt worse than any trace here hurts them."""
    it, rng = scene(seed), Random(seed)
    size, number = it.fleet.domain, it.fleet.domains
    for name, options in it.policies.items():
        case = case_of(it, name)
        for hurt_share in (0.1, 0.5, 0.9):
            lost = [
                rng.choice([1, 2, rng.randint(1, size)]) if rng.random() < hurt_share else 0
                for _ in range(number)
            ]
            counts = tuple(sorted(Counter(lost).items()))
            if options.in_place:
                homes = home_counts(dict(enumerate(lost)), number, size, it.job, options)
                ours = shape_in_place(homes, size, it.job, options)
            else:
                ours = shape(counts, size, it.job, options)
            theirs, where = work(case, lost), f"seed {seed}, {name}, {lost}: {ours.reason}"
            assert ours.throughput == pytest.approx(float(theirs.throughput), abs=CLOSE), where
            assert ours.busy_gpus == pytest.approx(float(theirs.busy), abs=CLOSE), where
            assert sum(c.number for c in ours.classes if c.boosted) == theirs.boosted, where
            spares = spares_needed(counts, size, it.job, options)
            assert spares == spares_one_by_one(case, lost), where


def test_the_scenes_are_worth_it() -> None:
    """Overlaps, blasts across domains, GPUs left over, changes at one instant; all kinds."""
    scenes = [scene(seed) for seed in SEEDS]
    assert sum(bool(s.fleet.leftover) for s in scenes) >= 10
    assert sum(overlapping(s.trace) for s in scenes) >= 15
    assert sum(crossing(s) for s in scenes) >= 15
    assert sum(len(set(s.trace.start_h)) < len(s.trace.start_h) for s in scenes) >= 5
    policies = [options for s in scenes for options in s.policies.values()]
    names = Counter(name for s in scenes for name in s.policies)
    assert len(names) == 113
    assert min(names.values()) >= 3
    assert {options.kind for options in policies} == set(KINDS)
    assert {options.repack for options in policies} == set(REPACKS)
    assert sum(s.job.degree < s.fleet.domain for s in scenes) >= 4
    assert sum(bool(s.job.layers % s.job.stages) for s in scenes) >= 3


def case_of(it: Scene, name: str) -> Case:
    return Case(it.fleet.domains, it.fleet.domain, it.job, it.policies[name])


def failures(trace: Trace) -> list[Failure]:
    columns = (trace.start_h, trace.end_h, trace.first_gpu, trace.gpus)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def assert_same_steps(where: str, ours: list[books.Step], theirs: list[books.Step]) -> None:
    for index, (mine, other) in enumerate(zip(ours, theirs, strict=False)):
        same = (
            abs(mine[0] - other[0]) < CLOSE
            and abs(mine[1] - other[1]) < CLOSE
            and mine[2] == other[2]
        )
        assert same, f"{where}: step {index} is {mine}, the oracle says {other}"
    assert len(ours) == len(theirs), f"{where}: {len(ours)} steps, the oracle has {len(theirs)}"


def assert_same_books(where: str, it: Scene, told: Training, name: str) -> None:
    ours = simulate(it.trace, it.fleet, it.job, it.policies[name])
    hours = books.gpu_hours(told)
    assert sum(hours.values(), Fraction(0)) == Fraction(HOURS) * it.fleet.in_domains
    for bucket, theirs in hours.items():
        value = getattr(ours.gpu_hours, bucket)
        assert value == pytest.approx(float(theirs), abs=CLOSE * it.fleet.gpus), (where, bucket)
    assert ours.gpu_hours.unused == it.fleet.leftover * HOURS
    for value, theirs in (
        (ours.throughput_mean, books.throughput_mean(told)),
        (ours.throughput_worst, books.throughput_worst(told)),
        (ours.boosted_share_mean, books.boosted_share(told)),
    ):
        assert value == pytest.approx(float(theirs), abs=CLOSE), where
    assert ours.transitions == told.stalls, where
    for share in (Fraction(1, 2), Fraction(95, 100), Fraction(1)):
        assert ours.spares(float(share)) == books.spares_at(told, share), (where, share)


def overlapping(trace: Trace) -> bool:
    rows = failures(trace)
    return any(
        a != b and a[0] < b[1] and b[0] < a[1] and a[2] < b[2] + b[3] and b[2] < a[2] + a[3]
        for a in rows
        for b in rows
    )


def crossing(it: Scene) -> bool:
    size = it.fleet.domain
    return any(first // size < (first + n - 1) // size for _, _, first, n in failures(it.trace))
