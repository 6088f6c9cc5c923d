"""Which GPUs form which replica: one frozen value that every process reads the same way.

In: GPU names by label and a batch share for each replica. Out: the rank order (replica, then
label), the sync degree, a fingerprint, and plain JSON for the store and for checkpoints. DESIGN
"Words" and "Generations". Knows nothing of units, tensors or power, nor why this placement was
chosen.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from nonuniform.errors import BadInput


class Member(NamedTuple):
    """One GPU that trains: its replica and its label in there."""

    gpu: str
    replica: int
    label: int


@dataclass(frozen=True)
class ReplicaPlacement:
    """One replica: `gpus[label]`, and how many sequences of the global batch it takes."""

    replica: int
    gpus: tuple[str, ...]
    share: int

    @property
    def degree(self) -> int:
        return len(self.gpus)


@dataclass(frozen=True)
class Placement:
    """The replicas in ascending order, and the healthy GPUs that have no work."""

    replicas: tuple[ReplicaPlacement, ...]
    spares: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        ids = [entry.replica for entry in self.replicas]
        if not ids or ids != sorted(set(ids)):
            raise BadInput(f"placement: replicas {ids} must be ascending, at least one")
        for entry in self.replicas:
            if entry.degree < 1 or entry.share < 1:
                raise BadInput(
                    f"placement: replica {entry.replica} has {entry.degree} GPUs and "
                    f"a share of {entry.share} sequences; both must be at least 1"
                )
        names = Counter(gpu for entry in self.replicas for gpu in entry.gpus)
        names.update(self.spares)
        twice = sorted(gpu for gpu, count in names.items() if count > 1)
        if twice:
            raise BadInput(f"placement: gpu {', '.join(twice)} is used more than once")

    @property
    def sync_degree(self) -> int:
        """The smallest degree: gradients cross replicas in its layout."""
        return min(self.degrees)

    @property
    def degrees(self) -> tuple[int, ...]:
        return tuple(entry.degree for entry in self.replicas)

    @property
    def shares(self) -> tuple[int, ...]:
        return tuple(entry.share for entry in self.replicas)

    def members(self) -> tuple[Member, ...]:
        """All GPUs that train, in rank order: by replica, then by label."""
        return tuple(
            Member(gpu, entry.replica, label)
            for entry in self.replicas
            for label, gpu in enumerate(entry.gpus)
        )

    def where(self, gpu: str) -> Member | None:
        """The place of a GPU; None for a spare or a GPU that is not in the run."""
        return self._places.get(gpu)

    @cached_property
    def _places(self) -> dict[str, Member]:
        """Whoever asks for one GPU of a large job asks for all of them."""
        return {member.gpu: member for member in self.members()}

    def fingerprint(self) -> str:
        """sha256 of everything above: two processes that agree on it have the same placement."""
        text = json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def to_json(self) -> dict[str, Any]:
        return {
            "replicas": [
                {"replica": entry.replica, "gpus": list(entry.gpus), "share": entry.share}
                for entry in self.replicas
            ],
            "spares": list(self.spares),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Placement:
        try:
            rows = [(row["replica"], row["gpus"], row["share"]) for row in data["replicas"]]
            replicas = tuple(
                ReplicaPlacement(int(replica), tuple(map(str, gpus)), int(share))
                for replica, gpus, share in rows
            )
            spares = tuple(map(str, data["spares"]))
        except (KeyError, TypeError, ValueError) as error:
            raise BadInput(f"placement: not readable ({type(error).__name__}: {error})") from error
        return cls(replicas, spares)
