"""A trace and a policy in, what the year came to out.

In: a trace, the fleet, the job, the policy. Out: an `Outcome`, or step by step a `Trajectory`.
DESIGN "Two arrows". The chain: changes of the trace -> instants -> states -> what each is worth ->
what each instant is spent on -> integrals. All but the costs are whole arrays; no GPU is looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nonuniform.cluster.fleet import Fleet
from nonuniform.cluster.trace import Trace
from nonuniform.placement.job import TrainingJob
from nonuniform.placement.policy import PolicyOptions
from nonuniform.sim.book import Book, book
from nonuniform.sim.instants import Instants, Moves, instants, repack_rule
from nonuniform.sim.integrate import SLIVER_H, Course, Spent, spend
from nonuniform.sim.outcome import GpuHours, Hours, Outcome
from nonuniform.sim.states import States, states
from nonuniform.sim.timeline import Changes, changes

Floats = npt.NDArray[np.float64]
Policy = tuple[TrainingJob, PolicyOptions]

MODES = ("stall", "redo", "run")


@dataclass(frozen=True)
class Trajectory:
    """From `time_h[i]` on the job is as fast as `throughput[i]` in mode `mode[i]`, until the next
    row. In "stall" and "redo" nothing new is done, and the throughput is what the placement would
    give. A job that nobody works at is in "run" at 0. Rows next to each other differ."""

    time_h: tuple[float, ...]
    throughput: tuple[float, ...]
    mode: tuple[str, ...]


class History:
    """One trace on one fleet; policies that repack by the same rule share its instants."""

    def __init__(self, trace: Trace, fleet: Fleet) -> None:
        trace.check(fleet)
        self.fleet, self.hours = fleet, trace.hours
        self._changes: Changes = changes(trace, fleet)
        self._instants: dict[tuple[str, float], Instants] = {}

    def instants(self, options: PolicyOptions) -> Instants:
        rule = repack_rule(options)
        if rule not in self._instants:
            self._instants[rule] = instants(self._changes, self.hours, options)
        return self._instants[rule]


@dataclass(frozen=True)
class _Life:
    """One policy in one history, by instant. `lost`: GPUs really lost."""

    book: Book
    instants: Instants
    seen: States
    throughput: Floats
    busy: Floats
    boosted: Floats
    lost: Floats
    transitions: int
    spent: Spent


def simulate(trace: Trace, fleet: Fleet, job: TrainingJob, options: PolicyOptions) -> Outcome:
    """One seed of one policy."""
    return simulate_policies(trace, fleet, {"": (job, options)})[""]


def simulate_policies(
    trace: Trace, fleet: Fleet, policies: Mapping[str, Policy]
) -> dict[str, Outcome]:
    """One seed of several policies, which share what they can."""
    history = History(trace, fleet)
    return {
        name: _outcome(history, _live(history, job, options), job)
        for name, (job, options) in policies.items()
    }


def trajectory(trace: Trace, fleet: Fleet, job: TrainingJob, options: PolicyOptions) -> Trajectory:
    """One seed of one policy, step by step."""
    life = _live(History(trace, fleet), job, options)
    spent, starts = life.spent, life.instants.time_h
    steps: list[tuple[float, float, str]] = []
    columns = (starts, life.throughput, spent.stall_h, spent.redo_h, spent.run_h)
    for start, speed, *parts in zip(*(c.tolist() for c in columns), strict=True):
        for mode, lasts in zip(MODES, parts, strict=True):
            told = mode if speed else "run"
            if lasts > SLIVER_H and (not steps or steps[-1][1:] != (speed, told)):
                steps.append((start, speed, told))
            start += lasts
    if not steps:  # a window shorter than any step
        steps.append((float(starts[0]), float(life.throughput[0]), "run"))
    time_h, throughput, modes = zip(*steps, strict=True)
    return Trajectory(time_h, throughput, modes)


def _live(history: History, job: TrainingJob, options: PolicyOptions) -> _Life:
    fleet = history.fleet
    worth = book(fleet.domains, fleet.domain, job, options)
    when = history.instants(options)
    seen = states(worth.by_item(when.seen), len(when.time_h))
    table = np.array([worth.worth(numbers) for numbers in seen.numbers], np.float64)
    throughput, busy, boosted = (table[seen.at, column] for column in range(3))
    planned = _planned(worth, when, options)
    if options.waits:
        # Nobody is there who would have to regroup.
        planned &= throughput > 0
    course = Course(when.time_h, when.length_h, throughput, when.failure, planned)
    return _Life(
        worth,
        when,
        seen,
        throughput,
        busy,
        boosted,
        _lost(when.actual, len(when.time_h)),
        int(np.count_nonzero(when.failure) + np.count_nonzero(planned)),
        spend(course, options),
    )


def _planned(worth: Book, when: Instants, options: PolicyOptions) -> npt.NDArray[np.bool_]:
    """At which instants the placement changes without a failure: a return, or a checkpoint, which
    may come right after a failure."""
    moves = when.seen
    if options.repack == "next-checkpoint":
        counts = moves.after < moves.before
    else:
        counts = ~when.failure[moves.instant]
    planned = np.zeros(len(when.time_h), np.bool_)
    planned[moves.instant[counts & worth.regrouped(moves)]] = True
    return planned


def _outcome(history: History, life: _Life, job: TrainingJob) -> Outcome:
    fleet, hours, spent = history.fleet, history.hours, life.spent
    length, busy = life.instants.length_h, life.busy
    idle = fleet.in_domains - life.lost - busy
    spare = np.minimum(idle, fleet.in_domains - life.book.trained_gpus)
    gpu_hours = GpuHours(
        useful=_dot(busy, spent.run_h),
        failed=_dot(life.lost, length),
        idled=_dot(idle - spare, length),
        spare=_dot(spare, length),
        transition=_dot(busy, spent.stall_h),
        redone=_dot(busy, spent.redo_h),
        unused=fleet.leftover * hours,
    )
    throughput = _dot(life.throughput, spent.run_h) / hours
    moving = spent.run_h + spent.redo_h > SLIVER_H
    return Outcome(
        hours=hours,
        throughput_mean=throughput,
        throughput_worst=float(life.throughput[moving].min()) if moving.any() else 0.0,
        throughput_owned=throughput * life.book.trained_gpus / fleet.gpus,
        failed_share_mean=gpu_hours.failed / (fleet.in_domains * hours),
        boosted_share_mean=_dot(life.boosted, length) / hours,
        transitions=life.transitions,
        gpu_hours=gpu_hours,
        spares_hours=_spares_hours(life),
    )


def _spares_hours(life: _Life) -> Hours:
    when = life.instants
    if when.seen is when.actual and not life.book.in_place:
        actual = life.seen
    else:
        actual = states(life.book.by_domain(when.actual), len(when.time_h))
    lasts = np.bincount(actual.at, weights=when.length_h, minlength=len(actual.numbers))
    sums: dict[int, float] = {}
    for numbers, hours in zip(actual.numbers, lasts.tolist(), strict=True):
        spares = life.book.spares(numbers)
        sums[spares] = sums.get(spares, 0.0) + hours
    return tuple(sorted(sums.items()))


def _lost(actual: Moves, instants: int) -> Floats:
    delta = (actual.after - actual.before).astype(np.float64)
    return np.cumsum(np.bincount(actual.instant, weights=delta, minlength=instants))


def _dot(rate: Floats, hours: Floats) -> float:
    # Not a BLAS product: its threads cost more than they save here, and it adds less exactly.
    return float(np.sum(rate * hours))
