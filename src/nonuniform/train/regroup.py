"""From what is alive and what it holds to the record of the next generation: pure functions.

In: cluster state, reports of the living, the plan. Out: a `Record`, its reason, or RunFailed where
state was lost for good. DESIGN "Generations". The launcher publishes what comes out; every rank
computes the same transfer from it. Knows nothing of processes, stores or clocks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from nonuniform.cluster.health import ClusterState
from nonuniform.errors import RunFailed
from nonuniform.layout.cuts import ModelPlan
from nonuniform.placement.ntp import NtpOptions, next_placement
from nonuniform.placement.placement import Placement
from nonuniform.reshard.labels import assign_labels
from nonuniform.reshard.transfer import Holding, Target, TransferPlan, plan_transfer
from nonuniform.train.membership import Record, Report


@dataclass(frozen=True)
class Position:
    """What is committed: the last training step and the last validated one."""

    step: int
    validated: int


def next_record(
    plan: ModelPlan,
    options: NtpOptions,
    state: ClusterState,
    reports: Collection[Report],
    position: Position,
    generation: int,
) -> tuple[Record, str]:
    """The record of `generation` and the reason of its placement.

    Raises RunFailed if no replica is left, or if a unit is held by nobody alive.
    """
    holdings = {r.gpu: (r.degree, r.label) for r in reports if r.degree and r.step == position.step}

    def labels(replica: int, gpus: tuple[str, ...]) -> tuple[str, ...]:
        return _labels(plan, {gpu: holdings[gpu] for gpu in gpus if gpu in holdings}, gpus)

    placement, reason = next_placement(state, options, labels)
    record = Record(
        generation=generation,
        placement=placement,
        step=position.step,
        validated=position.validated,
        digest=digest_of(plan, placement),
        holdings=holdings,
        home={gpu: int(gpu.split("/")[0]) for gpu in sorted(holdings)},
    )
    if position.step > 0:
        _check_nothing_lost(transfer_of(plan, record), position.step)
    return record, reason


def _labels(
    plan: ModelPlan, held: Mapping[str, tuple[int, int]], gpus: tuple[str, ...]
) -> tuple[str, ...]:
    """Survivors keep what they can. After a regroup that was cut short they may hold shards of
    different degrees: labels follow the degree that most of them hold."""
    if not held:
        return gpus
    counts = Counter(degree for degree, _ in held.values())
    before = max(counts, key=lambda degree: (counts[degree], degree))
    # Two may hold the same shard after several such regroups; one keeps the label, the other one
    # joins anew and can still send what it holds.
    holders = {label: gpu for gpu, (degree, label) in sorted(held.items()) if degree == before}
    survivors = {gpu: label for label, gpu in holders.items()}
    labels = assign_labels(plan, before, survivors, set(gpus) - set(survivors))
    return tuple(sorted(gpus, key=lambda gpu: labels[gpu]))


def _check_nothing_lost(moves: TransferPlan, step: int) -> None:
    if moves.missing:
        names = ", ".join(f"{family} {unit}" for family, unit in moves.missing[:4])
        more = f" and {len(moves.missing) - 4} more" if len(moves.missing) > 4 else ""
        raise RunFailed(
            f"after step {step} no living GPU holds these units: {names}{more}; "
            "there is no checkpoint to go on from"
        )


def transfer_of(plan: ModelPlan, record: Record) -> TransferPlan:
    """The moves into a generation: the same on every rank, and on the launcher."""
    holdings = [Holding(gpu, degree, label) for gpu, (degree, label) in record.holdings.items()]
    degrees = {entry.replica: entry.degree for entry in record.placement.replicas}
    targets = [
        Target(member.gpu, member.replica, degrees[member.replica], member.label)
        for member in record.placement.members()
    ]
    return plan_transfer(plan, holdings, targets, record.home)


def digest_of(plan: ModelPlan, placement: Placement) -> str:
    """What every vote carries: placement and layouts in one hash."""
    return f"{placement.fingerprint()[:32]}-{plan.fingerprint()[:32]}"
