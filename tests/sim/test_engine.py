"""The simulator against a plain walk through the same changes; what must hold of every outcome."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nonuniform.cluster.fleet import Fleet
from nonuniform.cluster.trace import Trace, empty, make_trace
from nonuniform.errors import BadInput
from nonuniform.placement.groups import group_degrees
from nonuniform.placement.job import TrainingJob
from nonuniform.placement.policy import PolicyOptions
from nonuniform.placement.shape import Shape, home_counts, replicas_of, shape, shape_in_place
from nonuniform.placement.spares import spares_needed
from nonuniform.sim.engine import simulate, simulate_policies, trajectory
from nonuniform.sim.timeline import changes

HOURS = 40.0


# ------------------------------------------------------------------------------ small clusters


@st.composite
def traces(draw: st.DrawFn, fleet: Fleet) -> Trace:
    # Quarter hours, so that failures, returns and checkpoints often meet.
    rows = []
    for _ in range(draw(st.integers(0, 14))):
        start = draw(st.integers(0, 4 * int(HOURS) - 1)) / 4
        lasts = draw(st.sampled_from([0.25, 0.5, 2.0, 9.0, 30.0, math.inf]))
        first = draw(st.integers(0, fleet.gpus - 1))
        blast = draw(st.sampled_from([1, 1, 1, 2, 4, fleet.domain]))
        rows.append((start, start + lasts, first, min(blast, fleet.gpus - first)))
    return _trace(rows)


def _trace(rows: list[tuple[float, float, int, int]], hours: float = HOURS) -> Trace:
    starts, ends, firsts, sizes = zip(*rows, strict=True) if rows else ((), (), (), ())
    whole = [np.array(column, np.int64) for column in (firsts, sizes, [0] * len(rows))]
    return make_trace(hours, starts, ends, *whole, ["any"])


@st.composite
def policies(draw: st.DrawFn) -> PolicyOptions:
    seconds = st.sampled_from([0.0, 0.0, 20.0, 600.0, 4000.0])
    repack = draw(st.sampled_from(["at-once", "next-failure", "next-checkpoint", "never"]))
    every = st.sampled_from([900.0, 3600.0, 10000.0])
    kind = draw(st.sampled_from(["uniform", "dp-drop", "ntp", "ntp-pw"]))
    packing = draw(st.sampled_from(["packed", "packed", "spread", "none"]))
    in_place = packing == "none" or repack == "never"
    return PolicyOptions(
        kind,
        min_degree=draw(st.integers(1, 2)),
        one_degree=draw(st.booleans()),
        batch=draw(st.sampled_from(["shrink", "fixed"])),
        grain=draw(st.sampled_from(["sequence", "microbatch", "token"])),
        packing=packing,
        spare_domains=0 if in_place else draw(st.integers(0, 1)),
        on_failure=draw(st.sampled_from(["wait", "restart"])) if kind == "uniform" else "wait",
        repack=repack,
        detect_s=draw(seconds),
        regroup_s=draw(seconds),
        transfer_s=draw(seconds),
        restart_s=draw(seconds),
        redo_s=draw(seconds),
        checkpoint_every_s=draw(every if repack == "next-checkpoint" else st.just(0.0) | every),
    )


@st.composite
def cases(draw: st.DrawFn) -> tuple[Trace, Fleet, TrainingJob, PolicyOptions]:
    domain = draw(st.integers(3, 8))
    fleet = Fleet(domain * draw(st.integers(3, 6)) + draw(st.integers(0, 2)), domain)
    degree = draw(st.sampled_from([domain, domain, domain - 1, domain // 2]))
    job = TrainingJob(
        max(degree, 2),
        stages=draw(st.integers(1, 2)),
        sequences_per_replica=6,
        microbatch_sequences=draw(st.sampled_from([1, 2, 3])),
        layers=draw(st.sampled_from([0, 7])),
    )
    return draw(traces(fleet)), fleet, job, draw(policies())


# --------------------------------------------------------------------------------- a plain walk


@dataclass
class Walk:
    """One domain, one instant after the other, as the words of the docs say."""

    fleet: Fleet
    job: TrainingJob
    options: PolicyOptions
    actual: dict[int, int] = field(default_factory=dict)
    seen: dict[int, int] = field(default_factory=dict)
    stall_h: float = 0.0
    debt_h: float = 0.0
    at_h: float = 0.0
    high_h: float = 0.0
    stalls: int = 0
    pieces: list[tuple[float, str, Shape, int, int]] = field(default_factory=list)

    def go(self, trace: Trace) -> None:
        found = changes(trace, self.fleet)
        every = self.options.checkpoint_every_s / 3600
        marks = [k * every for k in range(1, int(trace.hours / every) + 1)] if every else []
        at: dict[float, list[tuple[int, int]]] = {0.0: []}
        for time, domain, lost in zip(found.time_h, found.domain, found.lost, strict=True):
            at.setdefault(float(time), []).append((int(domain), int(lost)))
        checkpoints = {t for t in marks if self.options.repack == "next-checkpoint"}
        times = sorted(at.keys() | checkpoints | {trace.hours})
        for time, until in pairwise(times):
            self._change(at.get(time, []))
            if time in checkpoints:
                self._plan()
            self._advance(until - time)

    def _change(self, rows: list[tuple[int, int]]) -> None:
        grows = any(lost > self.actual.get(domain, 0) for domain, lost in rows)
        self.actual |= dict(rows)
        options = self.options
        if grows:
            if options.repack == "next-checkpoint":
                known = {d: max(n, self.seen.get(d, 0)) for d, n in self.actual.items()}
                self.seen |= known
            else:
                self.seen = dict(self.actual)
            self._stall(options.detect_s)
            self.at_h = 0.0
            if not (options.checkpoint_every_s and options.restart_s):
                self.debt_h += options.redo_s / 3600
        elif rows and options.repack in ("at-once", "never"):
            self._plan()

    def _plan(self) -> None:
        before, self.seen = self.seen, dict(self.actual)
        domain, job, options = self.fleet.domain, self.job, self.options
        regrouped = any(
            group_degrees(before.get(d, 0), domain, job, options)
            != group_degrees(n, domain, job, options)
            for d, n in self.seen.items()
        )
        if regrouped and not (options.waits and not self._shape().throughput):
            self._stall(0.0)

    def _stall(self, more_s: float) -> None:
        options = self.options
        takes = more_s + options.regroup_s + options.transfer_s + options.restart_s
        self.stall_h = max(self.stall_h, takes / 3600)
        self.stalls += 1

    def _shape(self) -> Shape:
        fleet, job, options = self.fleet, self.job, self.options
        if options.in_place:
            homes = home_counts(self.seen, fleet.domains, fleet.domain, job, options)
            return shape_in_place(homes, fleet.domain, job, options)
        return shape(self._counts(self.seen), fleet.domain, job, options)

    def _counts(self, lost: dict[int, int]) -> tuple[tuple[int, int], ...]:
        all_lost = [lost.get(d, 0) for d in range(self.fleet.domains)]
        return tuple((n, all_lost.count(n)) for n in sorted(set(all_lost)))

    def _advance(self, hours: float) -> None:
        now = self._shape()
        speed = now.throughput
        stall = min(hours, self.stall_h)
        self.stall_h -= stall
        left = hours - stall
        if self.options.checkpoint_every_s and self.options.restart_s:
            redo = self._towards_checkpoint(left, speed)
        else:
            redo = min(left, self.debt_h / speed) if speed else 0.0
            self.debt_h = max(self.debt_h - redo * speed, 0.0)
        lost = sum(self.actual.values())
        counts = self._counts(self.actual)
        spares = spares_needed(counts, self.fleet.domain, self.job, self.options)
        for lasts, mode in ((stall, "stall"), (redo, "redo"), (left - redo, "run")):
            self.pieces.append((lasts, mode, now, lost, spares))

    def _towards_checkpoint(self, left: float, speed: float) -> float:
        every = self.options.checkpoint_every_s / 3600
        redo = min(left, (self.high_h - self.at_h) / speed) if speed else 0.0
        work = speed * left
        # A checkpoint that is due just at the next instant is made before it.
        while self.at_h + work >= every - 1e-9:
            work = max(work - (every - self.at_h), 0.0)
            self.at_h = self.high_h = 0.0
        self.at_h += work
        self.high_h = max(self.high_h, self.at_h)
        return redo


# ---------------------------------------------------------------------------------------- tests


@settings(max_examples=300)
@given(cases())
def test_outcome_is_that_of_a_plain_walk(
    case: tuple[Trace, Fleet, TrainingJob, PolicyOptions],
) -> None:
    trace, fleet, job, options = case
    walk = Walk(fleet, job, options)
    walk.go(trace)
    found = simulate(trace, fleet, job, options)
    replicas = replicas_of(fleet.domains, fleet.domain, job, options)
    trained = replicas * job.stages * job.degree
    hours = dict.fromkeys(("useful", "failed", "idled", "spare", "transition", "redone"), 0.0)
    bucket = {"run": "useful", "redo": "redone", "stall": "transition"}
    made = boosted = 0.0
    for lasts, mode, now, lost, _ in walk.pieces:
        idle = fleet.in_domains - lost - now.busy_gpus
        spare = min(idle, fleet.in_domains - trained)
        hours["failed"] += lost * lasts
        hours[bucket[mode]] += now.busy_gpus * lasts
        hours["spare"] += spare * lasts
        hours["idled"] += (idle - spare) * lasts
        made += now.throughput * lasts * (mode == "run")
        boosted += sum(c.number for c in now.classes if c.boosted) * lasts / replicas
    for name, value in hours.items():
        assert getattr(found.gpu_hours, name) == pytest.approx(value, rel=1e-9, abs=1e-6), name
    assert found.gpu_hours.unused == fleet.leftover * trace.hours
    assert found.throughput_mean == pytest.approx(made / HOURS, abs=1e-9)
    assert found.throughput_owned == pytest.approx(made / HOURS * trained / fleet.gpus, abs=1e-9)
    assert found.boosted_share_mean == pytest.approx(boosted / HOURS, abs=1e-9)
    assert found.transitions == walk.stalls
    speeds = [
        s.throughput for lasts, mode, s, _, _ in walk.pieces if lasts > 1e-9 and mode != "stall"
    ]
    assert found.throughput_worst == min(speeds, default=0.0)
    assert sum(h for _, h in found.spares_hours) == pytest.approx(HOURS)
    for spares, lasts in found.spares_hours:
        same = sum(piece[0] for piece in walk.pieces if piece[4] == spares)
        assert lasts == pytest.approx(same, abs=1e-9)


@settings(max_examples=150)
@given(cases())
def test_every_gpu_hour_is_in_exactly_one_bucket(
    case: tuple[Trace, Fleet, TrainingJob, PolicyOptions],
) -> None:
    trace, fleet, job, options = case
    hours = simulate(trace, fleet, job, options).gpu_hours
    assert hours.total == pytest.approx(fleet.gpus * trace.hours, rel=1e-9)
    for name, value in asdict(hours).items():
        assert value >= -1e-9 * fleet.gpus * trace.hours, name


@settings(max_examples=150)
@given(cases())
def test_trajectory_integrates_to_the_outcome(
    case: tuple[Trace, Fleet, TrainingJob, PolicyOptions],
) -> None:
    trace, fleet, job, options = case
    path = trajectory(trace, fleet, job, options)
    found = simulate(trace, fleet, job, options)
    lasts = np.diff(np.append(path.time_h, HOURS))
    runs = np.array(path.mode) == "run"
    assert path.time_h[0] == 0.0
    assert (lasts > 0).all()
    assert float(np.sum((lasts * path.throughput)[runs])) / HOURS == pytest.approx(
        found.throughput_mean, abs=1e-8
    )
    rows = list(zip(path.throughput, path.mode, strict=True))
    assert all(a != b for a, b in pairwise(rows))


@pytest.mark.parametrize("kind", ["uniform", "dp-drop", "ntp", "ntp-pw"])
@pytest.mark.parametrize("repack", ["at-once", "next-failure", "next-checkpoint", "never"])
def test_no_failures_no_loss(kind: str, repack: str) -> None:
    options = PolicyOptions(kind, repack=repack, restart_s=600.0, checkpoint_every_s=3600.0)  # type: ignore[arg-type]
    found = simulate(empty(100.0), Fleet(80, 8), TrainingJob(8, 2, 4), options)
    assert found.throughput_mean == found.throughput_worst == 1.0
    assert found.loss_mean == 0.0
    assert math.isnan(found.amplification)
    assert found.transitions == 0
    assert found.gpu_hours.useful == found.gpu_hours.total == 8000.0
    assert found.spares_hours == ((0, 100.0),)


def test_policies_together_are_as_alone() -> None:
    fleet, job = Fleet(64, 8), TrainingJob(8, 2, 4)
    trace = _trace([(1.0, 9.0, 3, 1), (2.0, 30.0, 20, 4), (5.0, 7.0, 3, 2)])
    options = {
        f"{kind} {repack}": PolicyOptions(kind, repack=repack, checkpoint_every_s=1800.0)  # type: ignore[arg-type]
        for kind in ("uniform", "dp-drop", "ntp", "ntp-pw")
        for repack in ("at-once", "next-failure", "next-checkpoint", "never")
    }
    together = simulate_policies(trace, fleet, {n: (job, o) for n, o in options.items()})
    assert together == {n: simulate(trace, fleet, job, o) for n, o in options.items()}


# ----------------------------------------------------------------------- one failure, by hand


ONE = _trace([(10.0, 20.0, 0, 1)])
FOUR_DOMAINS, FOUR_REPLICAS = Fleet(32, 8), TrainingJob(8, 1, 8)


def test_dp_drop_idles_the_seven_others() -> None:
    found = simulate(ONE, FOUR_DOMAINS, FOUR_REPLICAS, PolicyOptions("dp-drop"))
    assert found.gpu_hours.failed == pytest.approx(10.0)
    assert found.gpu_hours.idled == pytest.approx(70.0)
    assert found.throughput_mean == pytest.approx(1 - 0.25 * 10 / 40)
    assert found.throughput_worst == 0.75
    assert found.amplification == pytest.approx(8.0)
    assert (found.spares(0.5), found.spares(0.75), found.spares(0.76)) == (0, 0, 1)


def test_uniform_waits() -> None:
    found = simulate(ONE, FOUR_DOMAINS, FOUR_REPLICAS, PolicyOptions("uniform", restart_s=3600.0))
    assert found.gpu_hours.idled == pytest.approx(310.0)
    assert found.gpu_hours.transition == pytest.approx(32.0)
    assert found.throughput_mean == pytest.approx(29 / 40)
    path = trajectory(ONE, FOUR_DOMAINS, FOUR_REPLICAS, PolicyOptions("uniform", restart_s=3600.0))
    assert path.time_h == (0.0, 10.0, 20.0, 21.0)
    assert path.throughput == (1.0, 0.0, 1.0, 1.0)
    assert path.mode == ("run", "run", "stall", "run")


def test_restart_goes_back_to_the_checkpoint() -> None:
    # Checkpoints every 4 h of work: the failure at 10 h finds 2 h unsaved, redone at 3/4 speed.
    options = PolicyOptions(
        "uniform", on_failure="restart", restart_s=1800.0, checkpoint_every_s=14400.0
    )
    path = trajectory(ONE, FOUR_DOMAINS, FOUR_REPLICAS, options)
    times = (0.0, 10.0, 10.5, 10.5 + 2 / 0.75, 20.0, 20.5)
    assert path.time_h == pytest.approx(times)
    assert path.mode == ("run", "stall", "redo", "run", "stall", "run")


def test_work_lost_twice_is_redone_once_with_checkpoints() -> None:
    trace = _trace([(3.0, 3.25, 0, 1), (5.0, 5.25, 0, 1)])
    fleet, job = Fleet(8, 8), TrainingJob(8)
    options = PolicyOptions("ntp", grain="token", restart_s=1e-9, checkpoint_every_s=4 * 3600.0)
    # 3 h are lost at 3 h; at 5 h the second failure finds less than that made up for again.
    made = 40.0 - 0.5 / 8
    lost = 3.0 + (2.0 - 0.25 / 8)
    found = simulate(trace, fleet, job, options)
    assert found.gpu_hours.redone / 8 == pytest.approx(lost, abs=0.05)
    assert found.throughput_mean * 40 == pytest.approx(made - lost, abs=1e-9)
    debt = replace(options, checkpoint_every_s=0.0, redo_s=3600.0)
    assert simulate(trace, fleet, job, debt).throughput_mean * 40 == pytest.approx(made - 2.0)


def test_returns_wait_for_the_next_failure() -> None:
    trace = _trace([(10.0, 20.0, 0, 1), (30.0, 31.0, 8, 1)])
    options = PolicyOptions("dp-drop", repack="next-failure", restart_s=3600.0)
    path = trajectory(trace, FOUR_DOMAINS, FOUR_REPLICAS, options)
    assert path.time_h == (0.0, 10.0, 11.0, 30.0, 31.0)
    assert path.mode == ("run", "stall", "run", "stall", "run")
    found = simulate(trace, FOUR_DOMAINS, FOUR_REPLICAS, options)
    assert found.transitions == 2
    assert found.gpu_hours.failed == pytest.approx(11.0)
    assert found.gpu_hours.idled == pytest.approx(30 * 8 - 11.0)


def test_returns_wait_for_the_next_checkpoint() -> None:
    options = PolicyOptions(
        "dp-drop", repack="next-checkpoint", checkpoint_every_s=7 * 3600.0, restart_s=1800.0
    )
    path = trajectory(ONE, FOUR_DOMAINS, FOUR_REPLICAS, options)
    # The failure loses 10 - 7 = 3 h of work, made up for at 3/4 speed; the return is at 21 h.
    assert path.time_h == pytest.approx((0.0, 10.0, 10.5, 14.5, 21.0, 21.5))
    assert path.throughput == (1.0, 0.75, 0.75, 0.75, 1.0, 1.0)
    # Who goes on live loses no place.
    live = replace(options, restart_s=0.0, regroup_s=1800.0)
    path = trajectory(ONE, FOUR_DOMAINS, FOUR_REPLICAS, live)
    assert path.time_h == pytest.approx((0.0, 10.0, 10.5, 21.0, 21.5))


def test_a_trace_of_another_fleet_is_refused() -> None:
    with pytest.raises(BadInput, match="not in the fleet of 32 GPUs"):
        simulate(_trace([(1.0, 2.0, 32, 1)]), FOUR_DOMAINS, FOUR_REPLICAS, PolicyOptions("ntp"))
