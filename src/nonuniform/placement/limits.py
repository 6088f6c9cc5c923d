"""Whether a job and a policy fit a cluster, and how many replicas that makes.

In: the number and the size of the domains, the job, the policy. Out: the number of replicas, or one
line that names the keys and numbers that disagree. DESIGN "Policies". Knows nothing of failures.
"""

from __future__ import annotations

from functools import lru_cache

from nonuniform.errors import BadInput
from nonuniform.placement.groups import legal_degree
from nonuniform.placement.job import TrainingJob
from nonuniform.placement.policy import PolicyOptions


@lru_cache(maxsize=256)
def replicas_of(domains: int, domain: int, job: TrainingJob, options: PolicyOptions) -> int:
    """The replicas of the whole job, all GPUs healthy."""
    _check_degrees(domain, job, options)
    _check_batch_at(job, options)
    usable = domains - options.spare_domains
    if usable < 1:
        raise BadInput(
            f"[policies] spare_domains = {options.spare_domains} of {domains} domains leaves none "
            "to train"
        )
    groups = usable * (domain // job.degree)
    where = f"[cluster] {domains} domains of {domain} GPUs"
    if options.spare_domains:
        where += f", {options.spare_domains} of them spare"
    if job.replicas * job.stages > groups:
        raise BadInput(
            f"[job] replicas = {job.replicas} of {job.stages} stages at degree {job.degree} need "
            f"{job.replicas * job.stages} groups; {where} hold {max(0, groups)}"
        )
    replicas = job.replicas or groups // job.stages
    if replicas < 1:
        raise BadInput(
            f"[job] one replica of {job.stages} stages at degree {job.degree} needs {job.stages} "
            f"groups; {where} hold {max(0, groups)}"
        )
    return replicas


def _check_degrees(domain: int, job: TrainingJob, options: PolicyOptions) -> None:
    if job.degree > domain:
        raise BadInput(f"[job] degree = {job.degree} is more than [cluster] domain = {domain}")
    if max(options.degrees, default=0) > job.degree:
        raise BadInput(
            f"[policies] degrees = {list(options.degrees)} go above [job] degree = {job.degree}"
        )
    if options.min_degree > job.degree:
        raise BadInput(
            f"[policies] min_degree = {options.min_degree} is more than [job] degree = {job.degree}"
        )


def _check_batch_at(job: TrainingJob, options: PolicyOptions) -> None:
    batch = job.sequences_per_replica
    for degree, sequences in options.batch_at:
        key = f"[policies] batch_at {degree} -> {sequences}"
        if degree > job.degree:
            raise BadInput(f"{key}: degree {degree} is above [job] degree = {job.degree}")
        if legal_degree(degree, job.degree, options.min_degree, options.degrees) != degree:
            legal = ", ".join(map(str, sorted(options.degrees))) or "any"
            raise BadInput(
                f"{key}: degree {degree} is not legal (degrees: {legal}, "
                f"min_degree = {options.min_degree})"
            )
        if sequences > batch or (degree == job.degree and sequences != batch):
            raise BadInput(f"{key}: a whole replica takes [job] sequences_per_replica = {batch}")
