"""Which GPUs are usable, as a value.

In: a state and a health event. Out: the next state; nothing is changed in place. DESIGN "Two
arrows": the same values come from a live run and from a simulated trace. The state depends only on
the last event of each GPU, not on the order in which events of different GPUs arrive. Knows nothing
of the degrees in use, of labels or of policies.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from nonuniform.cluster.topology import Gpu
from nonuniform.errors import BadInput

EventKind = Literal["failed", "returned", "drained"]


@dataclass(frozen=True)
class HealthEvent:
    """Something happened to one GPU; `drained` takes a GPU out that still works."""

    kind: EventKind
    gpu: Gpu
    reason: str = ""

    def __post_init__(self) -> None:
        if self.kind not in get_args(EventKind):
            raise BadInput(
                f'health event "{self.kind}" of gpu {self.gpu}: '
                f"expected one of {', '.join(get_args(EventKind))}"
            )


@dataclass(frozen=True)
class ClusterState:
    """`replicas` domains of `degree` GPUs each, `spares` GPUs more, and the GPUs that are down.

    The spares are named like GPUs of one more replica: `Gpu(replicas, 0)` and so on."""

    replicas: int
    degree: int
    down: frozenset[Gpu] = field(default_factory=frozenset)
    spares: int = 0

    def __post_init__(self) -> None:
        if self.replicas < 1 or self.degree < 1:
            raise BadInput(
                f"[parallel] replicas = {self.replicas}, degree = {self.degree}: "
                "both must be at least 1"
            )
        if self.spares < 0:
            raise BadInput(f"[parallel] spares = {self.spares}: must be at least 0")
        for gpu in sorted(self.down):
            self._check(gpu)

    def apply(self, event: HealthEvent) -> ClusterState:
        """The state after the event; a GPU that fails twice is down once."""
        self._check(event.gpu)
        if event.kind == "returned":
            return replace(self, down=self.down - {event.gpu})
        return replace(self, down=self.down | {event.gpu})

    def healthy(self) -> tuple[Gpu, ...]:
        """All usable GPUs, ascending; the spares come last."""
        spares = (Gpu(self.replicas, index) for index in range(self.spares))
        named = (gpu for replica in range(self.replicas) for gpu in self.healthy_of(replica))
        return (*named, *(gpu for gpu in spares if gpu not in self.down))

    def healthy_of(self, replica: int) -> tuple[Gpu, ...]:
        """The usable GPUs that bear the name of this replica, ascending."""
        gpus = (Gpu(replica, index) for index in range(self.degree))
        return tuple(gpu for gpu in gpus if gpu not in self.down)

    def _check(self, gpu: Gpu) -> None:
        named = 0 <= gpu.replica < self.replicas and 0 <= gpu.index < self.degree
        spare = gpu.replica == self.replicas and 0 <= gpu.index < self.spares
        if not (named or spare):
            last = f"{self.replicas}/{self.spares - 1}"
            spares = f" and the spares {self.replicas}/0 to {last}" if self.spares else ""
            raise BadInput(
                f"gpu {gpu}: the job has replicas 0..{self.replicas - 1} "
                f"with GPUs 0..{self.degree - 1} each{spares}"
            )
