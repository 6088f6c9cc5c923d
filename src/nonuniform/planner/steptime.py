"""What the step-time model says of a job: how long a step takes, and what the gradient sync of
unequal replicas costs.

In: a `Pace`. Out: figures, or None where the model does not know. DESIGN "Gradient sync". Works out
no time itself: `perf` does. No measurement of unequal replicas was found; no interval is given.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from nonuniform.errors import BadInput
from nonuniform.perf.nonuniform import hurt_replica, hurt_slowdown
from nonuniform.perf.parallelism import refusal
from nonuniform.perf.step_time import step_time
from nonuniform.planner.figure import Figure
from nonuniform.planner.subject import ByDegree, Pace

MODEL = "step-time model (nonuniform perf)"


@dataclass(frozen=True)
class Sync:
    """On top of a step of whole replicas, as shares of it. `exposed`: what shows of the longer
    sync, with overlap; `hidden`: what the overlap hides."""

    exposed: float
    hidden: float


def why_not(pace: Pace) -> str | None:
    """Why the model cannot tell this job's step."""
    return refusal(pace.machine, pace.work, pace.parallel)


def step_figure(pace: Pace | None) -> Figure | None:
    if pace is None or why_not(pace):
        return None
    step = step_time(pace.machine, pace.work, pace.parallel)
    return Figure(step.total_s, "s", "computed", MODEL)


def sync(pace: Pace | None, degree: int) -> Sync | None:
    """With one replica at this degree."""
    if pace is None or why_not(pace) or not 1 <= degree < pace.parallel.tensor:
        return None
    step_s = step_time(pace.machine, pace.work, pace.parallel).total_s
    open_parallel = replace(pace.parallel, overlap_data=False)
    close_parallel = replace(pace.parallel, overlap_data=True)
    try:
        shown = hurt_replica(pace.machine, pace.work, open_parallel, degree)
        covered = hurt_replica(pace.machine, pace.work, close_parallel, degree)
    except BadInput:
        return None
    more_shown = max(0.0, shown.sync.exposed_s - shown.healthy_sync_s)
    more_covered = max(0.0, covered.sync.exposed_s - covered.healthy_sync_s)
    return Sync(
        more_covered / step_s,
        max(0.0, more_shown - more_covered) / step_s,
    )


def speeds(pace: Pace | None) -> ByDegree:
    """By degree, of a replica with one such stage against a whole one; where whole heads make a
    lower degree no slower than a higher one, they are equally fast."""
    if pace is None or why_not(pace):
        return ()
    found: list[tuple[int, float]] = []
    most = 1.0
    for reduced in range(pace.parallel.tensor - 1, 0, -1):
        slower = hurt_slowdown(pace.machine, pace.work, pace.parallel, reduced, "whole")
        most = min(most, 1 / slower)
        found.append((reduced, most))
    return tuple(reversed(found))


def hidden_figure(found: Sync | None, degree: int) -> Figure | None:
    if found is None:
        return None
    return Figure(
        found.hidden, "1", "computed",
        f"{MODEL}: longer sync with a replica at {degree}, beside computation or after it",
    )  # fmt: skip
