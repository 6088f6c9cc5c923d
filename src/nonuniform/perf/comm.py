"""How long collectives take, and how much of them shows.

In: bytes, how many GPUs take part and how many of them share a domain. Out: seconds. A
ring moves 2 (n - 1) / n of its bytes past every GPU; a group with k GPUs in each domain leaves it
through the network cards of all k, one ring per card.
Does not know: who calls, contention of other jobs.
"""

from __future__ import annotations

from nonuniform.perf.hardware import HOP_FAR_S, HOP_NEAR_S, Machine


def ring_bytes_per_s(machine: Machine, near: int, far: bool) -> float:
    """What passes each GPU per second where `near` members share a domain."""
    if not far:
        return machine.link_bytes_per_s
    return min(machine.link_bytes_per_s, near * machine.nic_bytes_per_s)


def hops(members: int) -> int:
    """Of a tree over the members: the logarithm, rounded up."""
    return (members - 1).bit_length()


def gather_s(machine: Machine, size_bytes: float, members: int, near: int) -> float:
    """An all-gather or a reduce-scatter of `size_bytes` in all."""
    if members <= 1:
        return 0.0
    near = min(near, members)
    far = near < members
    latency_s = HOP_NEAR_S * hops(near)
    if far:
        latency_s += HOP_FAR_S * hops(-(-members // near))
    moved = (members - 1) / members * size_bytes
    return machine.launch_s + latency_s + moved / ring_bytes_per_s(machine, near, far)


def all_reduce_s(machine: Machine, size_bytes: float, members: int, near: int) -> float:
    """Of `size_bytes` on every member."""
    return 2.0 * gather_s(machine, size_bytes, members, near)


def all_to_all_s(machine: Machine, size_bytes: float, members: int, near: int) -> float:
    """Every member sends `size_bytes`, evenly to all: what leaves the domain passes the cards."""
    if members <= 1:
        return 0.0
    near = min(near, members)
    inside = (near - 1) / members * size_bytes / machine.link_bytes_per_s
    outside = (members - near) / members * size_bytes / machine.nic_bytes_per_s
    latency_s = HOP_FAR_S if near < members else HOP_NEAR_S
    return machine.launch_s + latency_s + max(inside, outside)


def send_s(machine: Machine, size_bytes: float, far: bool) -> float:
    """To one neighbour."""
    if far:
        return HOP_FAR_S + size_bytes / machine.nic_bytes_per_s
    return HOP_NEAR_S + size_bytes / machine.link_bytes_per_s


def exposed_s(machine: Machine, comm_s: float, beside_s: float) -> float:
    """What shows of a collective that runs beside `beside_s` of computation.

    Neither hides entirely: they share memory and multiprocessors.
    """
    return comm_s - min(machine.hidden_share * comm_s, beside_s)
