"""A small policy for the miniature: units as bits, the same for all names of GPUs.

In: the size of the grid. Out: the callables that the control asks. The weights of a replica are
`degree` units; GPU `r/i` holds unit i, and the units of those that are gone from its replica. Who
holds what is told in the field `degree` of a report, which the control only passes on. Renaming the
GPUs of a column, and of whole replicas, renames all that follows, so states that differ only in
names are the same. Mirrors what `train.regroup` does with holdings. Knows nothing of processes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import cache

from miniature.world import Size

from nonuniform.cluster.health import ClusterState, HealthEvent
from nonuniform.cluster.topology import parse_gpu
from nonuniform.errors import RunFailed
from nonuniform.placement.placement import Placement, ReplicaPlacement
from nonuniform.protocol.commit import Work, WorkOptions
from nonuniform.protocol.record import Record, UnitsLost
from nonuniform.protocol.state import Options, Regroup


@cache
def placed_units(placement: Placement, degree: int) -> dict[str, int]:
    """What every member of a placement has to hold."""
    full = (1 << degree) - 1
    units = {}
    for entry in placement.replicas:
        names = [parse_gpu(gpu) for gpu in entry.gpus]
        there = sum(1 << name.index for name in names)
        for name in names:
            units[str(name)] = full & ~there | 1 << name.index
    return units


def senders(record: Record, degree: int) -> dict[str, frozenset[str]]:
    """Of every member that lacks units: all that hold one of them."""
    held = {gpu: bits for gpu, (bits, _) in record.holdings.items()}
    found = {}
    for gpu, needed in placed_units(record.placement, degree).items():
        lacking = needed & ~held.get(gpu, 0)
        if record.step > 0 and not record.load and lacking:
            found[gpu] = frozenset(name for name, bits in held.items() if bits & lacking)
    return found


def covers(bits: Iterable[int], degree: int) -> bool:
    together = 0
    for some in bits:
        together |= some
    return together == (1 << degree) - 1


class Policy:
    def __init__(self, size: Size) -> None:
        self.size = size

    def options(self) -> Options:
        size = self.size
        return Options(
            work=WorkOptions(size.steps, size.validate_every),
            regroup=self.regroup,
            place=self.place,
            savers=self.savers,
            lenders=self.lenders,
            samples=lambda work: self.samples(work),
            stop_at_nonfinite=size.stop_at_nonfinite,
            final=size.final,
        )

    def samples(self, work: Work) -> tuple[int, ...]:
        """Two per step: a function of the step alone."""
        return (2 * work.step - 2, 2 * work.step - 1)

    def place(self, cluster: ClusterState, before: Placement | None) -> Placement:
        return _place(cluster, self.size.min_degree)

    def regroup(self, asked: Regroup) -> tuple[Record, str]:
        cluster = asked.cluster
        for gpu in asked.lenders:
            cluster = cluster.apply(HealthEvent("drained", parse_gpu(gpu)))
        able = {str(gpu) for gpu in cluster.healthy()} | set(asked.lenders)
        holdings = {
            said.gpu: (said.degree, said.label)
            for said in asked.reports
            if said.degree and said.step == asked.position.step and said.gpu in able
        }
        record = Record(
            generation=asked.generation,
            placement=self.place(cluster, asked.before),
            step=asked.position.step,
            validated=asked.position.validated,
            digest=f"g{asked.generation}",
            holdings={} if asked.load else holdings,
            home={},
            load=asked.load,
        )
        held = [bits for bits, _ in holdings.values()]
        if record.step > 0 and not record.load and not covers(held, self.size.degree):
            raise UnitsLost(f"after step {record.step} no living GPU holds these units")
        return record, "regrouped"

    def savers(self, record: Record) -> Collection[str]:
        held = [bits for bits, _ in record.holdings.values()]
        return sorted(record.holdings) if covers(held, self.size.degree) else ()

    def lenders(self, record: Record) -> Collection[str]:
        members = {member.gpu for member in record.placement.members()}
        found = senders(record, self.size.degree).values()
        return {gpu for names in found for gpu in names} - members


@cache
def _place(cluster: ClusterState, min_degree: int) -> Placement:
    crews = {r: cluster.healthy_of(r) for r in range(cluster.replicas)}
    large = {r: tuple(map(str, crew)) for r, crew in crews.items() if len(crew) >= min_degree}
    if not large:
        raise RunFailed("no replica is left")
    working = {gpu for crew in large.values() for gpu in crew}
    return Placement(
        tuple(ReplicaPlacement(r, crew, 1) for r, crew in sorted(large.items())),
        tuple(str(gpu) for gpu in cluster.healthy() if str(gpu) not in working),
    )
