"""How much a job stands to lose, and whether anything here can help it.

In: a subject and its histories. Out: figures of its exposure, and a verdict on whether it is a
candidate with the code of the reason. DESIGN "Policies". Knows nothing of money.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from nonuniform.cluster.fleet import Fleet
from nonuniform.cluster.trace import Trace
from nonuniform.planner.figure import Figure, of_seeds
from nonuniform.planner.subject import Subject
from nonuniform.sim.timeline import changes

SHORT_DAYS = 1.0
DAYS = 365.0


@dataclass(frozen=True)
class Exposure:
    tp_usage: Figure
    blast_gpus: Figure
    failures: Figure
    now: Figure | None
    mean: Figure
    p95: Figure
    candidate: bool
    reason: str


def exposure(subject: Subject, traces: Sequence[Trace], now: Figure | None) -> Exposure:
    """`now`: the failed share as a log leaves it, where there is one."""
    shares = [failed_shares(trace, subject.fleet) for trace in traces]
    expected = subject.failures_per_day() * min(subject.days, DAYS)
    reason = not_worth_it(subject, expected)
    return Exposure(
        tp_usage=Figure(
            1.0 if subject.job.degree > 1 else 0.0, "1", "computed",
            f"tensor-parallel degree {subject.job.degree}",
        ),
        blast_gpus=Figure(
            float(subject.gpus_per_replica), "GPU", "computed",
            "degree x stages: one dead GPU takes its replica out until it is mended",
        ),
        failures=Figure(
            expected, "1", "computed",
            "rate x GPUs x days of the job, of a year at most",
        ),
        now=now,
        mean=_share([float(np.average(s, weights=h)) for s, h in shares], "mean over time"),
        p95=_share([quantile(s, h, 0.95) for s, h in shares], "no more for 95 % of the time"),
        candidate=not reason,
        reason=reason or "saves",
    )  # fmt: skip


def _share(values: Sequence[float], source: str) -> Figure:
    """No interval of a share goes below 0."""
    found = of_seeds(values, "1", source)
    return found if found.low is None else replace(found, low=max(0.0, found.low))


def not_worth_it(subject: Subject, failures: float) -> str:
    """The code of the reason, "" where nothing speaks against it from the start."""
    if subject.job.degree == 1:
        return "tensor-parallel-1"
    if subject.preemptible:
        return "preemptible"
    if subject.days < SHORT_DAYS:
        return "short-job"
    return "few-failures" if failures < 1 else ""


Column = np.ndarray[tuple[int], np.dtype[np.float64]]


def failed_shares(trace: Trace, fleet: Fleet) -> tuple[Column, Column]:
    """Failed shares of the GPUs in domains, and the hours that each lasts."""
    found = changes(trace, fleet)
    time_h = np.append(0.0, found.time_h)
    lost = np.append(0.0, np.cumsum(found.lost - found.before))
    return lost / fleet.in_domains, np.diff(time_h, append=trace.hours)


def quantile(values: Column, weights: Column, share: float) -> float:
    """The least value that is enough for this share of the weights."""
    order = np.argsort(values)
    passed = np.cumsum(weights[order])
    at = int(np.searchsorted(passed, share * passed[-1] * (1 - 1e-12)))
    return float(values[order[min(at, len(order) - 1)]])
