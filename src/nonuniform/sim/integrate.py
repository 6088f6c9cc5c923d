"""How long each instant is spent standing still, doing work again, and getting on.

In: instants, the throughput from each of them on, and what transitions cost. Out: hours by instant,
in this order: standing still, redoing, running. DESIGN "Policies". Knows nothing of GPUs.

Without costs nothing has a past. Standing still is a running maximum. Only work that was lost needs
a walk from instant to instant, with a state of one or two numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nonuniform.placement.policy import PolicyOptions

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

SLIVER_H = 1e-9
"""Shorter stretches come from rounding: a stall that ends, or a checkpoint that is reached, just at
the next instant."""


@dataclass(frozen=True)
class Spent:
    """Hours by instant. They add up to its length."""

    stall_h: Floats
    redo_h: Floats
    run_h: Floats


@dataclass(frozen=True)
class Course:
    """By instant: when it begins, how long it lasts, how fast the job would be; whether something
    fails at it, and whether the placement changes without that."""

    time_h: Floats
    length_h: Floats
    throughput: Floats
    failure: Bools
    planned: Bools


def spend(course: Course, options: PolicyOptions) -> Spent:
    """All costs of a policy."""
    stall_h = _standing_still(course, options)
    free_h = course.length_h - stall_h
    if options.goes_back:
        redo_h = _back_to_checkpoint(course, free_h, options.checkpoint_every_s / 3600.0)
    elif options.redo_s:
        redo_h = _debt(course, free_h, options.redo_s / 3600.0)
    else:
        redo_h = np.zeros_like(free_h)
    return Spent(stall_h, redo_h, free_h - redo_h)


def _standing_still(course: Course, options: PolicyOptions) -> Floats:
    planned_h = (options.regroup_s + options.transfer_s + options.restart_s) / 3600.0
    failure_h = planned_h + options.detect_s / 3600.0
    if not failure_h:
        return np.zeros_like(course.length_h)
    pause_h = np.where(course.failure, failure_h, np.where(course.planned, planned_h, 0.0))
    until_h = np.maximum.accumulate(course.time_h + pause_h)
    return np.minimum(np.maximum(until_h - course.time_h, 0.0), course.length_h)


def _debt(course: Course, free_h: Floats, redo_h: float) -> Floats:
    """Every failure loses as much work. It is made up for at the speed that the job has."""
    debt_h, spent = 0.0, []
    columns = (free_h, course.throughput, course.failure)
    for free, speed, failure in zip(*(c.tolist() for c in columns), strict=True):
        if failure:
            debt_h += redo_h
        again = 0.0
        if speed and debt_h:
            again = min(free, debt_h / speed)
            debt_h = max(debt_h - again * speed, 0.0) if again == free else 0.0
        spent.append(again)
    return np.array(spent)


def _back_to_checkpoint(course: Course, free_h: Floats, every_h: float) -> Floats:
    """A failure leads back to the last checkpoint. One is made after every `every_h` of work at
    healthy speed; `reached_h` is how far the work once was after the last one."""
    at_h, reached_h, spent = 0.0, 0.0, []
    columns = (free_h, course.throughput, course.failure)
    for free, speed, failure in zip(*(c.tolist() for c in columns), strict=True):
        if failure:
            at_h = 0.0
        behind_h = reached_h - at_h
        spent.append(min(free, behind_h / speed) if speed and behind_h > 0 else 0.0)
        at_h += speed * free
        made = math.floor((at_h + SLIVER_H) / every_h)
        if made:
            at_h = reached_h = max(at_h - made * every_h, 0.0)
        reached_h = max(reached_h, at_h)
    return np.array(spent)
