"""A trace as the moments at which some domain holds more or fewer lost GPUs.

In: a trace and the fleet it strikes. Out: every real change of every domain's number of lost GPUs,
by time. DESIGN "Two arrows": the first link of the second one, as integers. A GPU that several rows
report down at once is lost once; a failure that reaches over the edge of a domain counts in each of
them; GPUs left over from the last whole domain are in no job and are not looked at. Knows nothing
of jobs and policies. The work grows with the rows of the trace, not with the fleet.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nonuniform.cluster.fleet import Fleet
from nonuniform.cluster.trace import Trace

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Changes:
    """Row i: at `time_h[i]` the lost GPUs of `domain[i]` go from `before[i]` to `lost[i]`.

    Sorted by (time_h, domain), at most one row for each of those pairs. At first nothing is lost.
    """

    time_h: Floats
    domain: Ints
    before: Ints
    lost: Ints


class _Pieces(NamedTuple):
    """Parts of failures within one domain: GPUs [first, first + gpus) down in [start_h, end_h)."""

    domain: Ints
    first: Ints
    gpus: Ints
    start_h: Floats
    end_h: Floats

    def take(self, which: npt.NDArray[np.bool_] | Ints) -> _Pieces:
        return _Pieces(
            self.domain[which],
            self.first[which],
            self.gpus[which],
            self.start_h[which],
            self.end_h[which],
        )

    def and_(self, other: _Pieces) -> _Pieces:
        return _Pieces(
            np.concatenate([self.domain, other.domain]),
            np.concatenate([self.first, other.first]),
            np.concatenate([self.gpus, other.gpus]),
            np.concatenate([self.start_h, other.start_h]),
            np.concatenate([self.end_h, other.end_h]),
        )


def changes(trace: Trace, fleet: Fleet) -> Changes:
    """The changes of one trace within its window; a return at its very end or later is none."""
    pieces = _by_domain(trace, fleet)
    crowded = _share_their_time(pieces)
    apart, crowd = pieces.take(~crowded), _union(_by_gpu(pieces.take(crowded)))
    pieces = apart.and_(crowd)
    ends = pieces.end_h < trace.hours
    return _added_up(
        np.concatenate([pieces.start_h, pieces.end_h[ends]]),
        np.concatenate([pieces.domain, pieces.domain[ends]]),
        np.concatenate([pieces.gpus, -pieces.gpus[ends]]),
    )


def _by_domain(trace: Trace, fleet: Fleet) -> _Pieces:
    first, stop = trace.first_gpu, np.minimum(trace.first_gpu + trace.gpus, fleet.in_domains)
    used = first < stop
    first, stop = first[used], stop[used]
    lowest, parts = first // fleet.domain, (stop - 1) // fleet.domain - first // fleet.domain + 1
    row = np.repeat(np.arange(len(first)), parts)
    domain = lowest[row] + _counting(parts)
    start = np.maximum(first[row], domain * fleet.domain)
    size = np.minimum(stop[row], (domain + 1) * fleet.domain) - start
    ends_h = np.minimum(trace.end_h[used], trace.hours)
    return _Pieces(domain, start, size, trace.start_h[used][row], ends_h[row])


def _by_gpu(pieces: _Pieces) -> _Pieces:
    """Each GPU by itself."""
    row = np.repeat(np.arange(len(pieces.first)), pieces.gpus)
    alone = pieces.take(row)
    return alone._replace(
        first=alone.first + _counting(pieces.gpus), gpus=np.ones(len(row), np.int64)
    )


def _share_their_time(pieces: _Pieces) -> npt.NDArray[np.bool_]:
    """Which pieces touch another one of their domain in time. The others need no union, and where
    failures are rare that is nearly all."""
    order = np.lexsort((pieces.start_h, pieces.domain))
    sorted_pieces = pieces.take(order)
    joined = _joins_before(sorted_pieces.domain, sorted_pieces.start_h, sorted_pieces.end_h)
    crowded = joined.copy()
    crowded[:-1] |= joined[1:]
    result = np.empty(len(order), np.bool_)
    result[order] = crowded
    return result


def _union(singles: _Pieces) -> _Pieces:
    """Of pieces of one GPU each: without overlaps. Those that touch become one."""
    if not len(singles.first):
        return singles
    order = np.lexsort((singles.start_h, singles.first))
    pieces = singles.take(order)
    heads = np.flatnonzero(~_joins_before(pieces.first, pieces.start_h, pieces.end_h))
    return pieces.take(heads)._replace(end_h=np.maximum.reduceat(pieces.end_h, heads))


def _joins_before(group: Ints, start_h: Floats, end_h: Floats) -> npt.NDArray[np.bool_]:
    """Of rows sorted by (group, start_h): which begin before all earlier ones of the group ended,
    or just then."""
    if not len(group):
        return np.zeros(0, np.bool_)
    # Ranks instead of hours, so that one running maximum serves all groups and is exact.
    times, rank = np.unique(np.concatenate([start_h, end_h]), return_inverse=True)
    start, end = rank[: len(group)], rank[len(group) :]
    number = np.cumsum(np.append(0, group[1:] != group[:-1])) * len(times)
    reached = np.maximum.accumulate(number + end)
    return np.append(False, number[1:] + start[1:] <= reached[:-1])


def _added_up(time_h: Floats, domain: Ints, delta: Ints) -> Changes:
    """Steps of the same domain at the same time are one change, or none where they cancel out."""
    order = np.lexsort((time_h, domain))
    time_h, domain, delta = time_h[order], domain[order], delta[order]
    if len(order):
        new = np.append(True, (time_h[1:] != time_h[:-1]) | (domain[1:] != domain[:-1]))
        heads = np.flatnonzero(new)
        time_h, domain, delta = time_h[heads], domain[heads], np.add.reduceat(delta, heads)
        real = delta != 0
        time_h, domain, delta = time_h[real], domain[real], delta[real]
    lost = _sums_within(domain, delta)
    order = np.lexsort((domain, time_h))
    return Changes(time_h[order], domain[order], (lost - delta)[order], lost[order])


def _sums_within(group: Ints, values: Ints) -> Ints:
    """Running sums that start again with each group; rows of a group follow each other."""
    total = np.cumsum(values)
    if not len(group):
        return total
    heads = np.flatnonzero(np.append(True, group[1:] != group[:-1]))
    before = total[heads] - values[heads]
    return total - np.repeat(before, np.diff(np.append(heads, len(group))))


def _counting(lengths: Ints) -> Ints:
    """0, 1, ... for each length, one after the other."""
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    return np.arange(total) - np.repeat(ends - lengths, lengths)
