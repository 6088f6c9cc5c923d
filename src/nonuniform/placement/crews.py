"""Which GPU works in which replica, where GPUs may be lent from one replica to another.

In: the cluster state, the least degree, the placement so far. Out: the GPUs of every replica that
can work. DESIGN "Generations" and "Policies". Knows nothing of labels, units or batch shares.

A GPU that works stays where it is. Free are spares, GPUs that came back, and what is left of a
replica that fell below the least degree. Of all ways to use them the best one is, in this order:
most GPUs work; most replicas live (each is one more living copy of all state); most GPUs are at
home, in the replica in which they last worked, or else of their name; the smallest degrees are as
large as they can be. So a GPU that comes back fills the hole of its own replica unless another
replica cannot live without it, and is a spare where its place has been taken.
"""

from __future__ import annotations

from collections.abc import Mapping

from nonuniform.cluster.health import ClusterState
from nonuniform.cluster.topology import Gpu, parse_gpu
from nonuniform.placement.groups import legal_degree
from nonuniform.placement.placement import Placement

Crews = dict[int, tuple[Gpu, ...]]
"""replica -> the GPUs that work there, ascending; a replica that does not live is left out."""


def own_crews(state: ClusterState, min_degree: int) -> Crews:
    """Every GPU works in the replica of its name or not at all."""
    named = {replica: state.healthy_of(replica) for replica in range(state.replicas)}
    return {
        replica: crew
        for replica, crew in named.items()
        if legal_degree(len(crew), state.degree, min_degree)
    }


def lent_crews(state: ClusterState, min_degree: int, before: Placement | None) -> Crews:
    """Free GPUs go where they are of use; at launch (`before` is None) all are at home."""
    worked = work_places(state, before)
    healthy = state.healthy()
    crews: dict[int, list[Gpu]] = {}
    for gpu in healthy:
        if gpu in worked:
            crews.setdefault(worked[gpu], []).append(gpu)
    crews = {replica: crew for replica, crew in crews.items() if len(crew) >= min_degree}
    free = [gpu for gpu in healthy if worked.get(gpu) not in crews]
    # Those that have worked until now come first, since they hold state; then those that are not
    # missed by a replica of their own.
    free.sort(key=lambda gpu: (gpu not in worked, gpu.replica != state.replicas, gpu))
    home = {gpu: worked.get(gpu, gpu.replica) for gpu in free}
    crews |= {replica: [] for replica in _to_rebuild(state, min_degree, crews, home)}
    joined = _send_home(state.degree, crews, home)
    others = len(free) - sum(map(len, joined.values()))
    _call_back(min_degree, crews, joined, others)
    placed = {gpu for crew in crews.values() for gpu in crew}
    _fill(state.degree, crews, [gpu for gpu in free if gpu not in placed])
    return {replica: tuple(sorted(crews[replica])) for replica in sorted(crews)}


def work_places(state: ClusterState, before: Placement | None) -> dict[Gpu, int]:
    """gpu -> the replica in which it has worked; the GPUs that are down have a place, too."""
    if before is None:
        indices = range(state.degree)
        return {Gpu(replica, i): replica for replica in range(state.replicas) for i in indices}
    return {
        parse_gpu(member.gpu): member.replica
        for member in before.members()
        if member.replica < state.replicas
    }


def _to_rebuild(
    state: ClusterState,
    min_degree: int,
    crews: Mapping[int, list[Gpu]],
    home: Mapping[Gpu, int],
) -> list[int]:
    """As many dead replicas as the free GPUs can bring to the least degree: those first that have
    most GPUs of their own among them."""
    own = dict.fromkeys((r for r in range(state.replicas) if r not in crews), 0)
    for replica in home.values():
        if replica in own:
            own[replica] += 1
    return sorted(own, key=lambda replica: (-own[replica], replica))[: len(home) // min_degree]


def _send_home(
    degree: int, crews: Mapping[int, list[Gpu]], home: Mapping[Gpu, int]
) -> dict[int, list[Gpu]]:
    """Fill holes with GPUs that are at home there; replica -> those that came."""
    joined: dict[int, list[Gpu]] = {replica: [] for replica in crews}
    for gpu, replica in home.items():
        if replica in crews and len(crews[replica]) < degree:
            crews[replica].append(gpu)
            joined[replica].append(gpu)
    return joined


def _call_back(
    min_degree: int,
    crews: Mapping[int, list[Gpu]],
    joined: Mapping[int, list[Gpu]],
    others: int,
) -> None:
    """Where the `others`, who are free and have not gone home, are too few for the replicas to be
    rebuilt, call as many back as are lacking, always from the largest replica."""
    lacking = sum(max(0, min_degree - len(crew)) for crew in crews.values())
    for _ in range(lacking - others):
        able = [r for r in crews if joined[r] and len(crews[r]) > min_degree]
        giver = max(able, key=lambda replica: (len(crews[replica]), replica))
        crews[giver].remove(joined[giver].pop())


def _fill(degree: int, crews: Mapping[int, list[Gpu]], free: list[Gpu]) -> None:
    """The smallest replica gets the next GPU."""
    for gpu in free:
        smallest = min(crews, key=lambda r: (len(crews[r]), r), default=None)
        if smallest is None or len(crews[smallest]) == degree:
            return
        crews[smallest].append(gpu)
