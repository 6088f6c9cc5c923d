"""How many spare domains would let the job go on with its whole batch.

In: how many domains have lost how many GPUs, the job, the policy. Out: domains, all healthy, that
must be added. DESIGN "Policies". Knows nothing of time.

Counted in whole domains, spares take the places of hurt ones until all replicas are as fast as
healthy ones. Counted in whole replicas, they work beside the hurt ones and make up for their batch.
Either way the hurt domains stay in use where they are good enough, put together as the policy says
(as if packed, where it leaves replicas in their own domains).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from nonuniform.placement.job import TrainingJob
from nonuniform.placement.limits import replicas_of
from nonuniform.placement.packing import Runs, teams
from nonuniform.placement.policy import PolicyOptions
from nonuniform.placement.shape import Counts, capped, runs_of
from nonuniform.placement.sharing import Share, pace_of


def spares_needed(counts: Counts, domain: int, job: TrainingJob, options: PolicyOptions) -> int:
    """The least number of healthy domains on top of `counts`."""
    replicas = replicas_of(sum(n for _, n in counts), domain, job, options)
    per_domain = domain // job.degree
    runs = runs_of(counts, domain, job, options)
    goal = replicas * job.sequences_per_replica
    pace = pace_of(job, options)

    def capacity(formed: int, domains: int) -> Share:
        groups = _with_whole(runs, job.degree, domains * per_domain)
        floors = {job.degree, *(d for d, _ in runs)} if options.one_degree else {0}
        return max(
            pace.capacity(teams(capped(groups, job.degree, floor), formed, job, options.packing))
            for floor in floors
        )

    lacking = goal - capacity(replicas, 0)
    if lacking <= 0:
        return 0
    if options.spares_by_replica:
        likely = math.ceil(lacking / job.sequences_per_replica)
        more = _least(
            replicas,
            likely,
            lambda x: capacity(replicas + x, -(-x * job.stages // per_domain)) >= goal,
        )
        return -(-more * job.stages // per_domain)
    most = -(-replicas * job.stages // per_domain)
    whole = sum(number for degree, number in runs if degree == job.degree)
    likely = -(-(replicas * job.stages - whole) // per_domain)
    return _least(most, likely, lambda domains: capacity(replicas, domains) >= goal)


def _with_whole(runs: Runs, degree: int, groups: int) -> Runs:
    """The runs and so many whole groups more."""
    has_whole = bool(runs) and runs[0][0] == degree
    whole = groups + (runs[0][1] if has_whole else 0)
    return [(degree, whole), *(runs[1:] if has_whole else runs)]


def _least(most: int, likely: int, enough: Callable[[int], bool]) -> int:
    """The smallest number above 0 that is enough; `most` is, and so is every larger one, and 0 is
    not. Found in two tries where it is `likely`, else in steps that double from there."""
    low, high = 0, most
    probe, step = min(max(1, likely), most - 1), 1
    while low < probe < high:
        if enough(probe):
            high, probe = probe, probe - step
        else:
            low, probe = probe, probe + step
        step *= 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
