"""The policy `ntp`: a replica that lost GPUs goes on with those it has.

In: the cluster state, the options, and a callable that gives labels to the GPUs of a replica.
Out: the placement and one line that says why it looks so. Capacity is counted in GPUs: a replica of
8 that lost 2 runs at degree 6. Below `min_degree` it is dissolved and its healthy GPUs become
spares. DESIGN "Generations" and "Policies". Knows nothing of units: which survivor takes which
label is the callable's choice, so that what stays in place can count there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from nonuniform.cluster.health import ClusterState
from nonuniform.errors import BadInput, RunFailed
from nonuniform.placement.placement import Placement, ReplicaPlacement
from nonuniform.placement.shares import batch_shares, share_grain_cost

LabelChoice = Callable[[int, tuple[str, ...]], tuple[str, ...]]
"""(replica, its living GPUs, ascending) -> the same GPUs by label."""


@dataclass(frozen=True)
class NtpOptions:
    """`min_degree`: the least GPUs of a replica; `sequences`: the global batch."""

    min_degree: int
    sequences: int


def ascending_labels(replica: int, gpus: tuple[str, ...]) -> tuple[str, ...]:
    """Labels in order of the GPU index: right where nothing is held yet, as at launch."""
    return gpus


def next_placement(
    state: ClusterState, options: NtpOptions, labels: LabelChoice = ascending_labels
) -> tuple[Placement, str]:
    """The placement for this state, whatever events led to it."""
    _check(state, options)
    alive = {
        replica: tuple(str(gpu) for gpu in state.healthy_of(replica))
        for replica in range(state.replicas)
    }
    kept = {replica: gpus for replica, gpus in alive.items() if len(gpus) >= options.min_degree}
    if not kept:
        counts = ", ".join(str(len(gpus)) for gpus in alive.values())
        raise RunFailed(
            f"no replica is left: {counts} healthy GPUs per replica, min_degree is "
            f"{options.min_degree}"
        )
    # The speed is degree / base; without the division it is a whole number, and ties stay exact.
    speeds = [float(len(gpus)) for gpus in kept.values()]
    shares = batch_shares(speeds, options.sequences)
    placement = Placement(
        replicas=tuple(
            ReplicaPlacement(replica, _labelled(replica, gpus, labels), share)
            for (replica, gpus), share in zip(kept.items(), shares, strict=True)
        ),
        spares=tuple(gpu for replica, gpus in alive.items() if replica not in kept for gpu in gpus),
    )
    return placement, _reason(state, placement, share_grain_cost(speeds, shares))


def _labelled(replica: int, gpus: tuple[str, ...], labels: LabelChoice) -> tuple[str, ...]:
    by_label = labels(replica, gpus)
    assert sorted(by_label) == sorted(gpus), f"labels of replica {replica}: {by_label} of {gpus}"
    return tuple(by_label)


def _reason(state: ClusterState, placement: Placement, grain_cost: float) -> str:
    """One line for the event log: what differs from the whole cluster, and the price of it."""
    degrees = {entry.replica: entry.degree for entry in placement.replicas}
    parts = []
    for replica in range(state.replicas):
        down = sorted(gpu for gpu in state.down if gpu.replica == replica)
        if not down:
            continue
        names = ", ".join(str(gpu) for gpu in down)
        fate = f"runs at degree {degrees[replica]}" if replica in degrees else "is dissolved"
        parts.append(f"replica {replica} {fate} of {state.degree} ({names} down)")
    shares = "+".join(str(share) for share in placement.shares)
    parts.append(f"batch shares {shares}")
    if grain_cost > 1e-12:
        parts.append(f"whole sequences cost {grain_cost:.1%}")
    return "; ".join(parts if state.down else ["all GPUs healthy", *parts])


def _check(state: ClusterState, options: NtpOptions) -> None:
    if not 1 <= options.min_degree <= state.degree:
        raise BadInput(
            f"[parallel] min_degree = {options.min_degree} must be between 1 and "
            f"degree = {state.degree}"
        )
