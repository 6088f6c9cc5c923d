"""One rank's working set in one generation: its groups, its cut model, its sync, its optimizer.

In: job, placement, the rank's shard, the groups of the generation. Out: what a step needs. Thrown
away when the generation ends; the shard lives on, and the model for as long as the shard stays as
it is cut. Knows nothing of votes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from nonuniform.config import JobConfig
from nonuniform.layout.cuts import ModelPlan
from nonuniform.layout.model_plan import plan_llama
from nonuniform.placement.placement import Member, Placement
from nonuniform.reshard.sync_plan import assign_buckets, bucket_plans
from nonuniform.train.cut import CutModel, cut_llama
from nonuniform.train.groups import Group
from nonuniform.train.optimizer import ShardOptimizer
from nonuniform.train.progress import Progress
from nonuniform.train.state import ShardState
from nonuniform.train.sync import GradientSync, lane_for, make_buckets

DTYPES = {"float32": torch.float32, "float64": torch.float64}
BYTES_PER_MIB = 2**20


@dataclass(frozen=True)
class RankGroups:
    """`compute` and `reshard`: the rank's replica; `across`: its label in every replica, and for
    extra ranks nobody else. Compute and sync overlap, so they never share a group."""

    compute: Group
    reshard: Group
    across: Group


OpenGroup = Callable[[str, int, int], Group]
"""(name, rank, size) -> a connected group of the generation."""


def open_groups(
    placement: Placement,
    member: Member,
    open_group: OpenGroup,
    open_later: OpenGroup | None = None,
) -> RankGroups:
    """The groups of one rank. `open_later`: for those that only the backward pass needs, in the
    order in which it asks for them."""
    open_later = open_later or open_group
    replica = next(r for r in placement.replicas if r.replica == member.replica)
    compute = open_group(f"compute/{member.replica}", member.label, replica.degree)
    reshard = open_later(f"reshard/{member.replica}", member.label, replica.degree)
    ids = [entry.replica for entry in placement.replicas]
    if member.label < placement.sync_degree:
        name = f"across/{member.label}"
        across = open_later(name, ids.index(member.replica), len(ids))
    else:
        across = open_later(f"extra/{member.gpu}", 0, 1)
    return RankGroups(compute, reshard, across)


@dataclass
class Session:
    """Everything `step` works with."""

    job: JobConfig
    placement: Placement
    member: Member
    state: ShardState
    model: CutModel
    sync: GradientSync
    optimizer: ShardOptimizer
    progress: Progress


def job_plan(job: JobConfig) -> ModelPlan:
    """How the job's model is cut, or BadInput with the legal degrees."""
    parallel = job.parallel
    return plan_llama(job.model.shape(), parallel.degree, parallel.min_degree, parallel.allow_empty)


def open_session(
    job: JobConfig,
    placement: Placement,
    member: Member,
    state: ShardState,
    groups: RankGroups,
    progress: Progress | None = None,
    before: CutModel | None = None,
) -> Session:
    """`before`: the model of the last generation, which goes on if this rank's shard has stayed."""
    model = _cut_model(job, state, groups.compute, before)
    dtype = DTYPES[job.run.dtype]
    bucket_elements = max(1, int(job.run.bucket_mb * BYTES_PER_MIB / dtype.itemsize))
    plans = bucket_plans(
        state.plan,
        state.degree,
        state.label,
        placement.sync_degree,
        assign_buckets(state.plan, bucket_elements),
    )
    device = next(iter(model.parameters.values())).device
    buckets = make_buckets(plans, dtype, device)
    progress = progress or Progress()
    lane = lane_for(device, progress)
    sync = GradientSync(buckets, model.parameters, groups.reshard, groups.across, lane)
    optimizer = ShardOptimizer(state, model.parameters, job.optimizer, job.run.steps)
    return Session(job, placement, member, state, model, sync, optimizer, progress)


def _cut_model(
    job: JobConfig, state: ShardState, group: Group, before: CutModel | None
) -> CutModel:
    if before is not None and before.state is state:
        before.group.hand_over(group)
        return before
    return cut_llama(job.model.shape(), state, group, job.model.rope_base, job.model.norm_eps)
