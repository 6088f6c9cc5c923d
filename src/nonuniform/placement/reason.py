"""Why a placement looks as it does, in one line for the event log.

In: the cluster state, the placement, the one before. Out: text: what differs from the whole
cluster, who was borrowed and for whom, and the price of whole sequences. DESIGN
"Generations". Decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from nonuniform.cluster.health import ClusterState
from nonuniform.cluster.topology import Gpu, parse_gpu
from nonuniform.placement.crews import work_places
from nonuniform.placement.placement import Placement, ReplicaPlacement


@dataclass(frozen=True)
class Change:
    """`before` is None at launch."""

    state: ClusterState
    min_degree: int
    placement: Placement
    before: Placement | None

    @cached_property
    def worked(self) -> dict[Gpu, int]:
        return work_places(self.state, self.before)


def reason_of(change: Change, grain_cost: float) -> str:
    entries = {entry.replica: entry for entry in change.placement.replicas}
    told = [
        _of_living(change, entries[replica])
        if replica in entries
        else _of_dissolved(change, replica)
        for replica in range(change.state.replicas)
    ]
    parts = [] if change.state.down else ["all GPUs healthy"]
    parts += [text for text in told if text]
    parts += _of_spares(change)
    parts.append("batch shares " + "+".join(str(share) for share in change.placement.shares))
    if grain_cost > 1e-12:
        parts.append(f"whole sequences cost {grain_cost:.1%}")
    return "; ".join(parts)


def _of_living(change: Change, entry: ReplicaPlacement) -> str:
    """Nothing of a replica that is whole and by itself."""
    details = _down(change.state, entry.replica)
    guests = [gpu for gpu in _sorted(entry.gpus) if gpu.replica != entry.replica]
    new = [gpu for gpu in guests if change.worked.get(gpu) != entry.replica]
    details += [f"borrows {_names(new)}"] if new else []
    known = [gpu for gpu in guests if gpu not in new]
    details += [f"with {_names(known)}"] if known else []
    rebuilt = _is_rebuilt(change, entry)
    degree = change.state.degree
    if not (details or rebuilt or entry.degree < degree):
        return ""
    fate = "is rebuilt" if rebuilt else "runs"
    text = f"replica {entry.replica} {fate} at degree {entry.degree} of {degree}"
    return f"{text} ({', '.join(details)})" if details else text


def _is_rebuilt(change: Change, entry: ReplicaPlacement) -> bool:
    """It did not live before, or those who stayed were too few."""
    if change.before is None:
        return False
    stayed = [gpu for gpu in _sorted(entry.gpus) if change.worked.get(gpu) == entry.replica]
    return len(stayed) < change.min_degree


def _of_dissolved(change: Change, replica: int) -> str:
    down = _down(change.state, replica)
    lives_on = change.before is not None and any(
        entry.replica == replica for entry in change.before.replicas
    )
    fate = "is" if lives_on or change.before is None else "stays"
    details = [*down, f"min_degree is {change.min_degree} of {change.state.degree}"]
    return f"replica {replica} {fate} dissolved ({', '.join(details)})"


def _of_spares(change: Change) -> list[str]:
    """Spares, and which of them came back to find their replica whole."""
    spares = _sorted(change.placement.spares)
    degree = change.state.degree
    whole = {entry.replica for entry in change.placement.replicas if entry.degree == degree}
    late = [gpu for gpu in spares if gpu.replica in whole]
    others = [gpu for gpu in spares if gpu not in late]
    parts = [f"{_names(others)} spare"] if others else []
    if late:
        taken = "its place is taken" if len(late) == 1 else "their places are taken"
        parts.append(f"{_names(late)} spare, {taken}")
    return parts


def _down(state: ClusterState, replica: int) -> list[str]:
    down = sorted(gpu for gpu in state.down if gpu.replica == replica)
    return [f"{_names(down)} down"] if down else []


def _sorted(gpus: Iterable[str]) -> list[Gpu]:
    return sorted(map(parse_gpu, gpus))


def _names(gpus: Iterable[Gpu]) -> str:
    return ", ".join(map(str, gpus))
