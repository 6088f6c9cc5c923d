"""The bytes foreseen for a rank against the tensors that a real session allocates and keeps."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
import torch
from standins.threads import Meeting
from torch import Tensor

from nonuniform.config import BatchConfig, JobConfig, ModelConfig, ParallelConfig, RunConfig
from nonuniform.perf.memory import Load, RankBytes, every_rank_bytes
from nonuniform.placement.placement import Member, Placement, ReplicaPlacement
from nonuniform.train.groups import SoloGroup
from nonuniform.train.session import RankGroups, Session, job_plan, open_session
from nonuniform.train.state import initial_state
from nonuniform.train.sync import Bucket

FLOAT = 4
CPU = torch.device("cpu")
PLACEMENT = Placement(
    (ReplicaPlacement(0, ("0/0", "0/1", "0/2", "0/3"), 4), ReplicaPlacement(1, ("1/0", "1/1"), 2))
)


def job_of(heads: int, kv_heads: int, degree: int = 4) -> JobConfig:
    return JobConfig(
        model=ModelConfig(layers=2, hidden=32, heads=heads, kv_heads=kv_heads, head_dim=8),
        parallel=ParallelConfig(replicas=2, degree=degree),
        batch=BatchConfig(sequences=6, length=24),
        run=RunConfig(steps=3, bucket_mb=0.02),
    )


def session_of(job: JobConfig, placement: Placement, member: Member) -> Session:
    """Nothing is exchanged here, so the groups need nobody else."""
    degree = placement.replicas[member.replica].degree
    state = initial_state(job_plan(job), (degree, member.label), 1, torch.float32, CPU)
    groups = [Meeting(degree).group(member.label) for _ in range(2)]
    return open_session(job, placement, member, state, RankGroups(*groups, SoloGroup()))


def size_of(tensors: Iterable[Tensor]) -> int:
    """Bytes of the storages, each once."""
    found = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage() for tensor in tensors}
    return sum(storage.nbytes() for storage in found.values())


def wires_of(bucket: Bucket) -> list[Tensor]:
    return [wire for route in (bucket._out, bucket._back) for wire in (route.sent, route.received)]


@pytest.mark.parametrize(("heads", "kv_heads"), [(8, 4), (5, 2)])
def test_weights_moments_gradients_and_staging_are_exact(heads: int, kv_heads: int) -> None:
    """Degrees 4 and 2: ranks that gain units, extra ranks, and those of the hurt replica."""
    job = job_of(heads, kv_heads)
    plan = job_plan(job)
    for member in PLACEMENT.members():
        session = session_of(job, PLACEMENT, member)
        degree = PLACEMENT.replicas[member.replica].degree
        foreseen = every_rank_bytes(plan, degree, 2, Load(1, 1), FLOAT)[member.label]
        slots = list(zip(*session.state.matrices.values(), strict=True))
        assert size_of(slots[0]) == foreseen.weights
        assert size_of((*slots[1], *slots[2])) == foreseen.moments
        parameters = session.model.parameters.values()
        assert size_of(parameters) == foreseen.weights
        gradients = [p.grad for p in parameters if p.grad is not None]
        assert sum(grad.numel() * FLOAT for grad in gradients) == foreseen.gradients
        assert len(gradients) == len(plan.tensors)
        buckets = session.sync.buckets
        assert len(buckets) > 2
        allocated = [bucket.buffer for bucket in buckets]
        allocated += [wire for bucket in buckets for wire in wires_of(bucket)]
        assert size_of(allocated) == foreseen.gradients + foreseen.staging
        session.sync.close()


def kept_by_autograd(session: Session, sequences: int) -> int:
    """Bytes of what one forward pass keeps for its backward, without the weights."""
    job = session.job
    weights = {p.untyped_storage().data_ptr() for p in session.model.parameters.values()}
    kept: list[Tensor] = []

    def keep(tensor: Tensor) -> Tensor:
        if tensor.untyped_storage().data_ptr() not in weights and tensor.is_floating_point():
            kept.append(tensor)
        return tensor

    tokens_BT = torch.randint(0, 256, (sequences, job.batch.length + 1))
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        session.model.loss_sum(tokens_BT[:, :-1], tokens_BT[:, 1:])
    return size_of(kept)


def alone(job: JobConfig) -> tuple[Session, RankBytes, RankBytes]:
    """A replica of one GPU; bytes foreseen for two sequences and for four."""
    placement = Placement((ReplicaPlacement(0, ("0/0",), 6),))
    session = session_of(job, placement, Member("0/0", 0, 0))
    two, four = (
        every_rank_bytes(job_plan(job), 1, 1, Load(n, job.batch.length), FLOAT)[0] for n in (2, 4)
    )
    return session, two, four


@pytest.mark.parametrize(("heads", "kv_heads"), [(8, 4), (5, 2)])
def test_activations_are_estimated_within_a_tenth(heads: int, kv_heads: int) -> None:
    """By the difference of two batches: what does not grow with the batch cancels out. Kept for
    backward is all but two thirds of what the logits take at the peak."""
    job = job_of(heads, kv_heads, degree=1)
    session, two, four = alone(job)
    measured = kept_by_autograd(session, 4) - kept_by_autograd(session, 2)
    passing = 2 * 2 * job.batch.length * job.model.vocab * FLOAT
    estimated = four.activations - two.activations - passing
    session.sync.close()
    assert measured == pytest.approx(estimated, rel=0.1)
