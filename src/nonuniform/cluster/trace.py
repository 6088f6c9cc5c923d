"""When which GPUs were down, and why: what a log or a failure model comes to.

In: columns of equal length. Out: a frozen value, sorted, whose every row has been checked. DESIGN
"Two arrows", the first link of the second one. Knows nothing of domains or jobs. Rows may
overlap, on one GPU too: it is down as long as any row says so, and whoever integrates takes the
union.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from nonuniform.cluster.fleet import Fleet
from nonuniform.errors import BadInput

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Trace:
    """Row i: GPUs `first_gpu[i]` to `first_gpu[i] + gpus[i] - 1` are down from `start_h[i]` until
    `end_h[i]`, which may lie behind `hours`, or be infinite where nobody saw the end. Rows are
    sorted by (start_h, first_gpu). What began before the window has start_h = 0. `cause[i]` is an
    index into `causes`. The columns are read-only; `make_trace` sorts."""

    hours: float
    start_h: Floats
    end_h: Floats
    first_gpu: Ints
    gpus: Ints
    cause: Ints
    causes: tuple[str, ...]

    def __post_init__(self) -> None:
        for name in ("start_h", "end_h"):
            object.__setattr__(self, name, _frozen_floats(getattr(self, name)))
        for name in ("first_gpu", "gpus", "cause"):
            object.__setattr__(self, name, _frozen_ints(name, getattr(self, name)))
        _check_window(self.hours)
        _check_lengths(self)
        _check_rows(self)

    def __len__(self) -> int:
        return len(self.start_h)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Trace):
            return NotImplemented
        return (
            self.hours == other.hours
            and self.causes == other.causes
            and all(
                np.array_equal(a, b) for a, b in zip(_columns(self), _columns(other), strict=True)
            )
        )

    def check(self, fleet: Fleet) -> None:
        """`BadInput` if a row speaks of a GPU that the fleet does not have."""
        beyond = self.first_gpu + self.gpus > fleet.gpus
        if beyond.any():
            row = int(np.argmax(beyond))
            last = int(self.first_gpu[row] + self.gpus[row]) - 1
            raise BadInput(
                f"trace: {_rows(beyond)} with a GPU that is not in the fleet of {fleet.gpus} GPUs "
                f"(0 to {fleet.gpus - 1}), such as GPU {last} in row {row}"
            )


def make_trace(
    hours: float,
    start_h: npt.ArrayLike,
    end_h: npt.ArrayLike,
    first_gpu: npt.ArrayLike,
    gpus: npt.ArrayLike,
    cause: npt.ArrayLike,
    causes: Sequence[str],
) -> Trace:
    """A trace of rows in any order."""
    starts, firsts = np.asarray(start_h, np.float64), np.asarray(first_gpu)
    if starts.ndim != 1 or starts.shape != firsts.shape:
        raise BadInput(
            f"trace: start_h has {starts.size} rows and first_gpu {firsts.size}, expected as many"
        )
    order = _order(starts, firsts)
    ends, sizes, why = (np.asarray(column) for column in (end_h, gpus, cause))
    for name, column in (("end_h", ends), ("gpus", sizes), ("cause", why)):
        if column.shape != starts.shape:
            raise BadInput(f"trace: {name} has {column.size} rows, start_h {starts.size}")
    return Trace(
        hours, starts[order], ends[order], firsts[order], sizes[order], why[order], tuple(causes)
    )


def empty(hours: float, causes: Sequence[str] = ()) -> Trace:
    """Nothing fails."""
    return make_trace(hours, [], [], _NO_INTS, _NO_INTS, _NO_INTS, causes)


def merge(traces: Sequence[Trace]) -> Trace:
    """All rows of all; causes of one name are one cause. The windows must be the same."""
    if not traces:
        raise BadInput("trace: nothing to merge, expected at least one trace")
    hours = traces[0].hours
    for trace in traces:
        if trace.hours != hours:
            raise BadInput(f"trace: windows of {hours:g} h and {trace.hours:g} h do not merge")
    causes = tuple(dict.fromkeys(name for trace in traces for name in trace.causes))
    renumbered = [
        np.array([causes.index(name) for name in trace.causes], np.int64)[trace.cause]
        for trace in traces
    ]
    return make_trace(
        hours,
        np.concatenate([trace.start_h for trace in traces]),
        np.concatenate([trace.end_h for trace in traces]),
        np.concatenate([trace.first_gpu for trace in traces]),
        np.concatenate([trace.gpus for trace in traces]),
        np.concatenate(renumbered),
        causes,
    )


_NO_INTS: Ints = np.empty(0, np.int64)


def _columns(trace: Trace) -> tuple[Floats | Ints, ...]:
    return trace.start_h, trace.end_h, trace.first_gpu, trace.gpus, trace.cause


def _order(starts: Floats, firsts: npt.NDArray[Any]) -> npt.NDArray[np.intp]:
    """By (start, first GPU). Sorting by one key is ten times as fast, and drawn starts differ."""
    order = np.argsort(starts)
    ordered = starts[order]
    if (ordered[1:] == ordered[:-1]).any():
        return np.lexsort((firsts, starts))
    return order


def _frozen_floats(values: npt.ArrayLike) -> Floats:
    # A view, so that the caller's own array stays writable.
    column = np.asarray(values, np.float64).view()
    column.flags.writeable = False
    return column


def _frozen_ints(name: str, values: npt.ArrayLike) -> Ints:
    given = np.asarray(values)
    if given.dtype.kind not in "iu":
        raise BadInput(f"trace: {name} has values of type {given.dtype}, expected whole numbers")
    column = given.astype(np.int64, copy=False).view()
    column.flags.writeable = False
    return column


def _check_window(hours: float) -> None:
    if not 0 < hours < math.inf:
        raise BadInput(f"trace: hours = {hours:g}, expected a finite number above 0")


def _check_lengths(trace: Trace) -> None:
    rows = trace.start_h.size
    for name, column in zip(
        ("start_h", "end_h", "first_gpu", "gpus", "cause"), _columns(trace), strict=True
    ):
        if column.ndim != 1 or column.size != rows:
            raise BadInput(f"trace: {name} has shape {column.shape}, expected ({rows},)")


def _check_rows(trace: Trace) -> None:
    start, first = trace.start_h, trace.first_gpu
    same = start[1:] == start[:-1]
    unsorted = (start[1:] < start[:-1]) | (same & (first[1:] < first[:-1]))
    # Written so that NaN is wrong: a comparison with it is false.
    for wrong, text in (
        (~((start >= 0) & (start < trace.hours)), f"start_h outside 0 to {trace.hours:g}"),
        (~(trace.end_h > start), "end_h not after start_h"),
        (first < 0, "first_gpu below 0"),
        (trace.gpus < 1, "gpus below 1"),
        ((trace.cause < 0) | (trace.cause >= len(trace.causes)), "cause not in causes"),
        (
            np.append(False, unsorted) if len(trace) else unsorted,
            "not sorted by (start_h, first_gpu)",
        ),
    ):
        if wrong.any():
            raise BadInput(
                f"trace: {_rows(wrong)} with {text}, the first is row {np.argmax(wrong)}"
            )


def _rows(wrong: npt.NDArray[np.bool_]) -> str:
    number = int(np.count_nonzero(wrong))
    return "1 row" if number == 1 else f"{number} rows"
