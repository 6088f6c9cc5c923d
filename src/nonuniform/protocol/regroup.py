"""From what is alive and what it holds to the record of the next generation: pure functions.

In: cluster state, reports of the living, the plan. Out: a `Record`, its reason, or RunFailed where
state was lost for good. DESIGN "Generations". The launcher publishes what comes out; every rank
computes the same transfer from it. Knows nothing of processes, stores or clocks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace

from nonuniform.cluster.health import ClusterState, HealthEvent
from nonuniform.cluster.topology import parse_gpu
from nonuniform.layout.cuts import ModelPlan
from nonuniform.placement.ntp import NtpOptions, next_placement
from nonuniform.placement.placement import Placement
from nonuniform.protocol.record import Position, Record, Report, UnitsLost
from nonuniform.reshard.labels import assign_labels
from nonuniform.reshard.transfer import (
    Target,
    TransferPlan,
    holders,
    plan_transfer,
    split_by_replica,
)


def next_record(
    plan: ModelPlan,
    options: NtpOptions,
    state: ClusterState,
    reports: Collection[Report],
    position: Position,
    generation: int,
    before: Placement | None = None,
    lenders: Collection[str] = (),
    load: str = "",
) -> tuple[Record, str]:
    """The record of `generation` and the reason of its placement, which follows `before`.

    `lenders` were taken out and still run: they send what nobody else holds and get no work.
    `load`: a checkpoint that everybody reads, whatever they hold.

    Raises RunFailed if no replica is left, and UnitsLost if a unit is held by nobody alive.
    """
    for gpu in sorted(lenders):
        state = state.apply(HealthEvent("drained", parse_gpu(gpu)))
    able = {str(gpu) for gpu in state.healthy()} | set(lenders)
    holdings = {
        r.gpu: (r.degree, r.label)
        for r in reports
        if r.degree and r.step == position.step and r.gpu in able and not load
    }
    home = {gpu: _home(gpu, before) for gpu in sorted(holdings)}

    def labels(replica: int, gpus: tuple[str, ...]) -> tuple[str, ...]:
        held = {gpu: holdings[gpu] for gpu in gpus if gpu in holdings}
        return _labels(plan, held, gpus, {gpu for gpu in held if home[gpu] == replica})

    placement, reason = next_placement(state, options, labels, before)
    record = Record(
        generation=generation,
        placement=placement,
        step=position.step,
        validated=position.validated,
        digest=digest_of(plan, placement),
        holdings=holdings,
        home=home,
        load=load,
    )
    if position.step > 0 and not load:
        moves = transfer_of(plan, record)
        _check_nothing_lost(moves, position.step)
        record = replace(record, moving=_take_part(moves, placement))
    return record, reason


def _home(gpu: str, before: Placement | None) -> int:
    """The replica in which a GPU has worked, else the one of its name."""
    member = before.where(gpu) if before else None
    return member.replica if member else parse_gpu(gpu).replica


def _labels(
    plan: ModelPlan,
    held: Mapping[str, tuple[int, int]],
    gpus: tuple[str, ...],
    own: Collection[str],
) -> tuple[str, ...]:
    """Survivors keep what they can; a shard that came from another replica is used where its label
    is free. `own`: those of `held` that have worked in this replica.

    After a regroup that was cut short survivors may hold shards of different degrees: labels
    follow the degree that most of them hold."""
    if not held:
        return gpus
    counts = Counter(held[gpu][0] for gpu in own or held)
    before = max(counts, key=lambda degree: (counts[degree], degree))
    # Two may hold the same shard after several such regroups, or when one was borrowed; one keeps
    # the label, the other one joins anew and can still send what it holds.
    by_claim = sorted(held, key=lambda gpu: (gpu in own, gpu))
    holders = {held[gpu][1]: gpu for gpu in by_claim if held[gpu][0] == before}
    survivors = {gpu: label for label, gpu in holders.items()}
    labels = assign_labels(plan, before, survivors, set(gpus) - set(survivors))
    joiners = {gpu: label for gpu, label in labels.items() if gpu not in survivors}
    labels |= _labels_of_joiners(held, joiners, len(gpus))
    return tuple(sorted(gpus, key=lambda gpu: labels[gpu]))


def _labels_of_joiners(
    held: Mapping[str, tuple[int, int]], labels: Mapping[str, int], degree: int
) -> dict[str, int]:
    """The same labels, but who holds the very shard of one of them takes that one."""
    free = set(labels.values())
    fitting = {
        held[gpu][1]: gpu
        for gpu in sorted(labels)
        if gpu in held and held[gpu][0] == degree and held[gpu][1] in free
    }
    taken = {gpu: label for label, gpu in fitting.items()}
    others = [gpu for gpu in sorted(labels) if gpu not in taken]
    return taken | dict(zip(others, sorted(free - set(fitting)), strict=True))


def _check_nothing_lost(moves: TransferPlan, step: int) -> None:
    if moves.missing:
        names = ", ".join(f"{family} {unit}" for family, unit in moves.missing[:4])
        more = f" and {len(moves.missing) - 4} more" if len(moves.missing) > 4 else ""
        raise UnitsLost(f"after step {step} no living GPU holds these units: {names}{more}")


def _take_part(moves: TransferPlan, placement: Placement) -> tuple[str, ...]:
    """Who moves units; and where some move inside a replica its whole crew, whose group they use:
    an exchange is for all ranks of a group, also for one that sends nothing."""
    replicas = {member.gpu: member.replica for member in placement.members()}
    inside, _ = split_by_replica(moves, replicas)
    crews = {entry.replica: entry.gpus for entry in placement.replicas}
    called = {gpu for replica in inside for gpu in crews[replica]}
    return tuple(sorted(called.union(moves.gpus())))


def transfer_of(plan: ModelPlan, record: Record) -> TransferPlan:
    """The moves into a generation: the same on every rank that takes part, and on the launcher."""
    degrees = {entry.replica: entry.degree for entry in record.placement.replicas}
    targets = [
        Target(member.gpu, member.replica, degrees[member.replica], member.label)
        for member in record.placement.members()
    ]
    return plan_transfer(plan, holders(record.holdings), targets, record.home)


def digest_of(plan: ModelPlan, placement: Placement) -> str:
    """What every vote carries: placement and layouts in one hash."""
    return f"{placement.fingerprint()[:32]}-{plan.fingerprint()[:32]}"
