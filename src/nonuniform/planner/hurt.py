"""How long a job has hurt replicas, and what the longer gradient sync takes in that time.

In: a subject, histories, the floor of the policy. Out: shares of the time. DESIGN "Gradient sync".
Works out no time of a sync itself: `steptime` asks the model.

The smallest degree of the moment sets the sync for all. A replica below the floor is out of it, and
GPUs that a domain has to spare are lost first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from nonuniform.cluster.fleet import Fleet
from nonuniform.cluster.trace import Trace
from nonuniform.planner.steptime import sync
from nonuniform.planner.subject import Subject
from nonuniform.sim.timeline import changes


def hurt_hours(trace: Trace, fleet: Fleet, degree: int, floor: int) -> dict[int, float]:
    """degree -> hours in which it is the smallest one of any replica that is hurt."""
    found = changes(trace, fleet)
    lengths = np.diff(np.append(found.time_h, trace.hours))
    free, worst = fleet.domain % degree, np.zeros(len(lengths), np.int64)
    for lost in range(1, degree - floor + 1):
        now, before = found.lost == lost + free, found.before == lost + free
        number = np.cumsum(now.astype(np.int64) - before.astype(np.int64))
        worst[number > 0] = lost
    return {
        degree - lost: float(lengths[worst == lost].sum())
        for lost in range(1, degree - floor + 1)
        if (worst == lost).any()
    }


def hurt_shares(subject: Subject, traces: Sequence[Trace], floor: int) -> dict[int, float]:
    """The same as shares of all the time of these histories."""
    total: dict[int, float] = {}
    for trace in traces:
        for degree, hours in hurt_hours(trace, subject.fleet, subject.job.degree, floor).items():
            total[degree] = total.get(degree, 0.0) + hours
    whole = sum(trace.hours for trace in traces)
    return {degree: hours / whole for degree, hours in sorted(total.items())}


def sync_share(subject: Subject, shares: Mapping[int, float]) -> float:
    """Of all the time, what goes into syncs being longer than among whole replicas."""
    taken = 0.0
    for degree, share in shares.items():
        found = sync(subject.pace, degree)
        if found is not None:
            taken += share * found.exposed / (1 + found.exposed)
    return taken


def usual_degree(subject: Subject, shares: Mapping[int, float]) -> int:
    """The one that is there longest; one GPU less where nothing is ever hurt."""
    return max(shares, key=lambda d: shares[d], default=max(1, subject.job.degree - 1))
