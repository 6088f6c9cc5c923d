"""The instants of a history: what is really lost, and what the placement goes by.

In: the changes of a trace and a policy's rule of repacking. Out: instants, and at each of them
which domains change. DESIGN "Policies". A placement that repacks at once goes by what is lost. One
that does so only at the next failure, or at the next checkpoint, takes returned GPUs for lost until
then: its rises are the true ones, its falls come later. Knows nothing of degrees and costs.

Checkpoints for this purpose stand at whole multiples of `checkpoint_every_s` of wall clock. Those
that change nothing are no instants: the work grows with the failures, not with the checkpoints.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nonuniform.placement.policy import PolicyOptions
from nonuniform.sim.timeline import Changes

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Moves:
    """Row i: at instant `instant[i]` the lost GPUs of `domain[i]` go from `before[i]` to
    `after[i]`. Sorted by instant."""

    instant: Ints
    domain: Ints
    before: Ints
    after: Ints


@dataclass(frozen=True)
class Instants:
    """Instant 0 is the beginning; instant i lasts `length_h[i]`, until the next or the end.

    `failure`: some domain loses GPUs at it. `actual` is what happens, `seen` what the placement
    goes by; where it goes by what happens, they are the same object.
    """

    time_h: Floats
    length_h: Floats
    failure: Bools
    actual: Moves
    seen: Moves


def instants(changes: Changes, hours: float, options: PolicyOptions) -> Instants:
    """Of one trace under one policy; what matters of the options is `repack_rule`."""
    times, instant = np.unique(np.append(0.0, changes.time_h), return_inverse=True)
    actual = Moves(instant[1:], changes.domain, changes.before, changes.lost)
    failure = np.zeros(len(times), np.bool_)
    failure[actual.instant[changes.lost > changes.before]] = True
    rule, every_h = repack_rule(options)
    if rule == "next-failure":
        seen = _at_failures(actual, np.flatnonzero(failure))
    elif rule == "next-checkpoint":
        return _at_checkpoints(changes, hours, every_h)
    else:
        seen = actual
    return Instants(times, np.diff(times, append=hours), failure, actual, seen)


def repack_rule(options: PolicyOptions) -> tuple[str, float]:
    """What `instants` depends on: policies with the same rule share them.

    With `never` a returned GPU rejoins its own replica at once; only the replicas stay as they are.
    """
    if options.repack in ("at-once", "never"):
        return "at-once", 0.0
    every_s = options.checkpoint_every_s if options.repack == "next-checkpoint" else 0.0
    return options.repack, every_s / 3600.0


def _at_failures(actual: Moves, failures: Ints) -> Moves:
    """Every change waits for the next instant with a failure, and what is undone until then never
    comes. What no failure follows never comes either."""
    place = np.searchsorted(failures, actual.instant)
    comes = place < len(failures)
    when, domain = failures[place[comes]], actual.domain[comes]
    after = actual.after[comes]
    order = np.lexsort((actual.instant[comes], domain))
    when, domain, after = when[order], domain[order], after[order]
    last = np.append((when[1:] != when[:-1]) | (domain[1:] != domain[:-1]), np.ones(len(when[:1])))
    keep = last.astype(np.bool_)
    when, domain, after = when[keep], domain[keep], after[keep]
    before = np.append(np.zeros(len(after[:1]), np.int64), after[:-1])
    before[1:][domain[1:] != domain[:-1]] = 0
    order = np.lexsort((domain, when))
    real = order[(after != before)[order]]
    return Moves(when[real], domain[real], before[real], after[real])


def _at_checkpoints(changes: Changes, hours: float, every_h: float) -> Instants:
    """As above, but rises come at once and falls at the next checkpoint."""
    time_h, domain, before, after = _rises_and_late_falls(changes, hours, every_h)
    both = np.concatenate([np.zeros(1), changes.time_h, time_h])
    times, instant = np.unique(both, return_inverse=True)
    mine, theirs = instant[1 : 1 + len(changes.time_h)], instant[1 + len(changes.time_h) :]
    failure = np.zeros(len(times), np.bool_)
    failure[mine[changes.lost > changes.before]] = True
    actual = Moves(mine, changes.domain, changes.before, changes.lost)
    seen = Moves(theirs, domain, before, after)
    return Instants(times, np.diff(times, append=hours), failure, actual, seen)


def _rises_and_late_falls(
    changes: Changes, hours: float, every_h: float
) -> tuple[Floats, Ints, Ints, Ints]:
    """(time_h, domain, before, after) of what the placement goes by, by time."""
    actual: dict[int, int] = {}
    seen: dict[int, int] = {}
    waiting: set[int] = set()
    rows: list[tuple[float, int, int, int]] = []

    def checkpoint(time_h: float) -> None:
        for domain in sorted(waiting):
            rows.append((time_h, domain, seen[domain], actual[domain]))
            seen[domain] = actual[domain]
        waiting.clear()

    due = 0.0
    columns = (changes.time_h, changes.domain, changes.lost, _next_checkpoint(changes, every_h))
    for time_h, domain, lost, next_h in zip(*(c.tolist() for c in columns), strict=True):
        if next_h != due:
            checkpoint(due)
            due = next_h
        actual[domain] = lost
        known = seen.get(domain, 0)
        if lost > known:
            rows.append((time_h, domain, known, lost))
            seen[domain] = lost
        if lost < known:
            waiting.add(domain)
        else:
            waiting.discard(domain)
    if due < hours:
        checkpoint(due)
    time_h, domain, before, after = zip(*rows, strict=True) if rows else ((), (), (), ())
    whole = [np.array(column, np.int64) for column in (domain, before, after)]
    return np.array(time_h, np.float64), whole[0], whole[1], whole[2]


def _next_checkpoint(changes: Changes, every_h: float) -> Floats:
    """The first checkpoint at or after each change: a change at the same time comes first."""
    number = np.maximum(np.ceil(changes.time_h / every_h), 1.0)
    # A quotient is rounded; the time of a checkpoint is what number x every_h gives.
    number = np.where(number * every_h < changes.time_h, number + 1, number)
    earlier = (number > 1) & ((number - 1) * every_h >= changes.time_h)
    return np.where(earlier, number - 1, number) * every_h
