"""What a failure log says of the future: rates and repairs, to draw histories from.

In: the trace of a log and the fleet that it is of. Out: a source of histories, and facts. DESIGN
"Two arrows". A log happened once, and one history has no interval; so failures are drawn anew: as
often, in blocks as large, with repairs as long as in the log. What that leaves out (the same parts
failing again, failures that come together) is told by playing the log itself once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from nonuniform.cluster.fleet import Fleet
from nonuniform.cluster.sources.rates import Cause
from nonuniform.cluster.sources.repair import empirical
from nonuniform.cluster.trace import Trace
from nonuniform.planner.exposure import failed_shares
from nonuniform.planner.figure import Figure, Kind
from nonuniform.scenario.build import ModelSource

YEAR_H = 8760.0
MOST_SAMPLES = 1000
MOST_FIRST = 0.01  # of the rows; a log with more at its first moment began with what was down
LEAST_REPAIR_H = 1 / 3600
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


def causes_of_trace(trace: Trace, fleet: Fleet) -> tuple[Cause, ...]:
    """One for each size of what went down together. What was down from the start began earlier and
    does not count as often; what is down at the end lasts longer than was seen."""
    days = trace.hours / 24
    began = trace.start_h > 0
    if np.count_nonzero(~began) <= max(1, MOST_FIRST * len(began)):  # they begin the window
        began = np.ones_like(began)
    found = []
    for size in np.unique(trace.gpus[began]).tolist():
        rows = (trace.gpus == size) & began
        ends = np.minimum(trace.end_h[rows], trace.hours)
        lasts = np.maximum(ends - trace.start_h[rows], LEAST_REPAIR_H)
        samples = repair_samples(lasts, trace.end_h[rows] < trace.hours)
        rate = float(rows.sum()) / (days * fleet.gpus)
        name = "1 GPU" if size == 1 else f"{size} GPUs together"
        found.append(Cause(name, rate, empirical(samples), "gpu", blast_gpus=int(size)))
    return tuple(found)


def repair_samples(lasts_h: Floats, seen: Bools) -> list[float]:
    """Durations that stand for those of the log, each as likely as the others: quantiles of the
    estimate of Kaplan and Meier, in which a repair whose end was not `seen` only counts as long as
    it was watched. What may last longer than any seen end counts as the longest watched."""
    if seen.all() and len(lasts_h) <= MOST_SAMPLES:
        return [float(hours) for hours in lasts_h]
    order = np.lexsort((~seen, lasts_h))
    hours, ended = lasts_h[order], seen[order]
    watched = np.arange(len(hours), 0, -1)
    left = np.cumprod(np.where(ended, 1 - 1 / watched, 1.0))
    levels = (np.arange(MOST_SAMPLES) + 0.5) / MOST_SAMPLES
    at = np.searchsorted(1 - left, levels)
    return [float(hours[min(place, len(hours) - 1)]) for place in at]


def source_of_log(trace: Trace, fleet: Fleet) -> tuple[ModelSource, list[dict[str, Any]]]:
    causes = causes_of_trace(trace, fleet)
    source = ModelSource(fleet, causes, YEAR_H, None, None, True)
    facts = [
        {
            "about": "failures",
            "name": cause.name,
            "text": f"{cause.failures_per_day(fleet):.3g} a day, repaired in "
            f"{cause.repair.mean_h:.4g} h in the mean",
            "assumed": False,
            "note": "from the log",
        }
        for cause in causes
    ]
    facts.append(
        {
            "about": "failures",
            "name": "histories",
            "text": "drawn anew with the log's rates, block sizes and repairs, independent of each "
            "other, all GPUs alike",
            "assumed": True,
            "note": "a log happened once and has no interval",
        }
    )
    return source, facts


def now_figure(trace: Trace, fleet: Fleet, example: bool = False) -> Figure:
    """The failed share where the log ends; of an example it was never measured."""
    shares, _ = failed_shares(trace, fleet)
    kind: Kind = "simulated" if example else "measured"
    return Figure(float(shares[-1]), "1", kind, "at the end of the log")
