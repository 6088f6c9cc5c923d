"""The policy `ntp`: a replica that lost GPUs goes on with those it has, and with those it can get.

In: the cluster state, the options, the placement so far, and a callable that gives labels to the
GPUs of a replica. Out: the placement and one line that says why it looks so. Capacity is counted in
GPUs: a replica of 8 that lost 2 runs at degree 6. Spares, GPUs that came back and the rest of a
dissolved replica work where they are of most use, if GPUs may be lent (`crews` says how). Below
`min_degree` a replica is dissolved. DESIGN "Generations" and "Policies". Knows nothing of units:
which GPU takes which label is the callable's choice, so that what stays in place can count there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from nonuniform.cluster.health import ClusterState
from nonuniform.errors import BadInput, RunFailed
from nonuniform.placement.crews import Crews, lent_crews, own_crews
from nonuniform.placement.placement import Placement, ReplicaPlacement
from nonuniform.placement.reason import Change, reason_of
from nonuniform.placement.shares import batch_shares, share_grain_cost

LabelChoice = Callable[[int, tuple[str, ...]], tuple[str, ...]]
"""(replica, its GPUs, ascending) -> the same GPUs by label."""


@dataclass(frozen=True)
class NtpOptions:
    """`min_degree`: the least GPUs of a replica; `sequences`: the global batch; `borrow`: a GPU may
    work in another replica than that of its name (without it a spare has no work)."""

    min_degree: int
    sequences: int
    borrow: bool = True


def ascending_labels(replica: int, gpus: tuple[str, ...]) -> tuple[str, ...]:
    """Labels in order of the GPU's name: right where nothing is held yet, as at launch."""
    return gpus


def next_placement(
    state: ClusterState,
    options: NtpOptions,
    labels: LabelChoice = ascending_labels,
    before: Placement | None = None,
) -> tuple[Placement, str]:
    """The placement that follows `before` (None: at launch), whatever events led to this state."""
    _check(state, options)
    if options.borrow:
        crews = lent_crews(state, options.min_degree, before)
    else:
        crews = own_crews(state, options.min_degree)
    if not crews:
        raise RunFailed(_nobody_left(state, options))
    # The speed is degree / base; without the division it is a whole number, and ties stay exact.
    speeds = [float(len(crew)) for crew in crews.values()]
    shares = batch_shares(speeds, options.sequences)
    placement = _placement(state, crews, shares, labels)
    change = Change(state, options.min_degree, placement, before)
    return placement, reason_of(change, share_grain_cost(speeds, shares))


def _placement(
    state: ClusterState, crews: Crews, shares: tuple[int, ...], labels: LabelChoice
) -> Placement:
    working = {gpu for crew in crews.values() for gpu in crew}
    return Placement(
        replicas=tuple(
            ReplicaPlacement(replica, _labelled(replica, tuple(map(str, crew)), labels), share)
            for (replica, crew), share in zip(crews.items(), shares, strict=True)
        ),
        spares=tuple(str(gpu) for gpu in state.healthy() if gpu not in working),
    )


def _labelled(replica: int, gpus: tuple[str, ...], labels: LabelChoice) -> tuple[str, ...]:
    by_label = labels(replica, gpus)
    assert sorted(by_label) == sorted(gpus), f"labels of replica {replica}: {by_label} of {gpus}"
    return tuple(by_label)


def _nobody_left(state: ClusterState, options: NtpOptions) -> str:
    counts = ", ".join(str(len(state.healthy_of(replica))) for replica in range(state.replicas))
    named = sum(len(state.healthy_of(replica)) for replica in range(state.replicas))
    spares = f" and {len(state.healthy()) - named} spares" if state.spares else ""
    alone = "" if options.borrow else ", borrow is off"
    return (
        f"no replica is left: {counts} healthy GPUs per replica{spares}, min_degree is "
        f"{options.min_degree}{alone}"
    )


def _check(state: ClusterState, options: NtpOptions) -> None:
    if not 1 <= options.min_degree <= state.degree:
        raise BadInput(
            f"[parallel] min_degree = {options.min_degree} must be between 1 and "
            f"degree = {state.degree}"
        )
