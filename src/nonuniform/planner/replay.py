"""The log itself, played once, beside the histories that were drawn from it.

In: a subject, policies, the trace of a log. Out: throughput by policy, without an interval. DESIGN
"Two arrows". Where it is far from what the drawn histories give, failures of the log come
together or strike the same parts again, and the drawn ones do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nonuniform.cluster.trace import Trace, make_trace
from nonuniform.planner.figure import Figure
from nonuniform.planner.policies import Compared
from nonuniform.planner.subject import Subject
from nonuniform.sim.engine import simulate_policies


def replay(subject: Subject, rows: Sequence[Compared], log: Trace | None) -> dict[str, Any] | None:
    """None without a log, and where none of it strikes the GPUs of the job."""
    if log is None:
        return None
    own = log.first_gpu + log.gpus <= subject.fleet.gpus
    trace = make_trace(
        log.hours, log.start_h[own], log.end_h[own], log.first_gpu[own], log.gpus[own],
        log.cause[own], log.causes,
    )  # fmt: skip
    policies = {row.name: (subject.job, row.options) for row in rows}
    outcomes = simulate_policies(trace, subject.fleet, policies)
    text = "the log itself, once; without spares, without the writing of checkpoints"
    return {
        "days": Figure(log.hours / 24, "days", "measured", "window of the log").as_dict(),
        "failures": Figure(float(own.sum()), "1", "measured", "rows of the log").as_dict(),
        "policies": {
            name: Figure(outcome.throughput_mean, "1", "simulated", text).as_dict()
            for name, outcome in outcomes.items()
        },
    }
