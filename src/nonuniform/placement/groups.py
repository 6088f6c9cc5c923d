"""Which tensor-parallel groups a domain can form with the GPUs it has left.

In: how many GPUs of a domain are lost. Out: the degrees of its groups. DESIGN "Policies". The
trainer's policy takes the degree of a replica from the same rule. Knows nothing of replicas.
"""

from __future__ import annotations

import functools
from collections.abc import Collection

from nonuniform.errors import BadInput
from nonuniform.placement.job import TrainingJob
from nonuniform.placement.policy import PolicyOptions


def legal_degree(healthy: int, degree: int, min_degree: int, legal: Collection[int] = ()) -> int:
    """The largest degree that `healthy` GPUs can run at; 0 if there is none.

    `legal` are the reduced degrees that a job knows, () for any; `degree`, the full one, always is.
    """
    if healthy >= degree:
        return degree
    reduced = max((d for d in legal if d <= healthy), default=0) if legal else healthy
    return reduced if reduced >= min_degree else 0


def group_degrees(
    lost: int, domain: int, job: TrainingJob, options: PolicyOptions
) -> tuple[int, ...]:
    """Degrees of the groups that live in a domain with `lost` GPUs down, descending."""
    if not 0 <= lost <= domain:
        raise BadInput(f"{lost} lost GPUs in a domain of {domain}")
    groups = domain // job.degree
    healthy = domain - lost
    full = min(groups, healthy // job.degree)
    degrees = (job.degree,) * full
    if full == groups or not options.reduces:
        return degrees
    rest = healthy - full * job.degree
    reduced = legal_degree(rest, job.degree, options.min_degree, options.degrees)
    return (*degrees, reduced) if reduced else degrees


@functools.lru_cache(maxsize=256)
def degrees_by_lost(
    domain: int, job: TrainingJob, options: PolicyOptions
) -> tuple[tuple[int, ...], ...]:
    """`group_degrees` of 0, 1, ... lost GPUs, for those who ask for many states."""
    return tuple(group_degrees(lost, domain, job, options) for lost in range(domain + 1))
