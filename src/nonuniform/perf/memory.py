"""How many bytes a rank needs at a degree, and whether a job fits before it starts.

In: the plan of a decoder, degrees, numbers of the job. Out: the parts in bytes for the worst rank,
and one line where memory does not suffice. DESIGN "Generations": the memory at `min_degree` is
checked before launch. Weights, gradients, moments and staging are exact: they are counted from the
plans that the runtime allocates by. Activations are an estimate: what autograd keeps of each layer,
with fused attention (no matrix of length x length). Does not know: what memory there is, allocators
(fragmentation, contexts, libraries), other modules than those of the decoder.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from nonuniform.errors import BadInput
from nonuniform.layout.cuts import ModelPlan, TensorCut
from nonuniform.layout.units import Ownership
from nonuniform.reshard.row_flow import Cut, row_flow

MOMENTS = 2  # AdamW
BYTES_PER_GIB = 2**30


@dataclass(frozen=True)
class RankBytes:
    """What one rank needs.

    `staging`: what buckets hold beyond the gradients of the rank's own shard (units that it gains
    at the sync degree, homes of shared units), and both wires each way. `scratch`: AdamW's copy of
    the second moment; activations are gone by then. `moving`: weights and moments a second time,
    while a regroup puts held and received units together; gradients and staging of the old
    generation may still be there. `snapshot`: all that the rank holds, copied for a checkpoint;
    less where replicas share the writing. It lies in host memory.
    """

    weights: int
    gradients: int
    moments: int
    staging: int
    activations: int
    scratch: int
    moving: int
    snapshot: int

    def total(self, snapshot: bool) -> int:
        """At the worst moment; `snapshot`: whether it lies in the same memory."""
        lasting = self.weights + self.gradients + self.moments + self.staging
        passing = max(self.activations, self.scratch, self.moving)
        return lasting + passing + (self.snapshot if snapshot else 0)

    def to_json(self) -> dict[str, int]:
        return {field.name: getattr(self, field.name) for field in fields(self)}


@dataclass(frozen=True)
class Load:
    """What is at once in a rank's memory of a batch: `sequences` of `length` tokens."""

    sequences: int
    length: int

    @property
    def tokens(self) -> int:
        return self.sequences * self.length


def rank_bytes(
    plan: ModelPlan, degree: int, sync_degree: int, load: Load, bytes_per_element: int
) -> RankBytes:
    """The rank of a replica of `degree` that needs most, where gradients cross replicas at
    `sync_degree`."""
    ranks = every_rank_bytes(plan, degree, sync_degree, load, bytes_per_element)
    return max(ranks, key=lambda rank: rank.total(snapshot=True))


def every_rank_bytes(
    plan: ModelPlan, degree: int, sync_degree: int, load: Load, bytes_per_element: int
) -> tuple[RankBytes, ...]:
    """The same of each rank, by label."""
    if not 1 <= sync_degree <= degree <= plan.base:
        raise BadInput(
            f"sync degree {sync_degree}, degree {degree}, base degree {plan.base}: must not fall"
        )
    kinds = _kinds(plan)
    ranks = []
    for label in range(degree):
        rows = [_rows(kind.cut, (degree, label), sync_degree) for kind in kinds]
        ranks.append(_one_rank(kinds, rows, load, bytes_per_element))
    return tuple(ranks)


@dataclass(frozen=True)
class _Kind:
    """Tensors that are cut alike: a model has few kinds. Elements of a row, of all tensors together
    and of the largest; `kept`: elements that autograd keeps per token and local row."""

    cut: Cut
    row_elements: int
    largest_row: int
    kept: int


@dataclass(frozen=True)
class _Rows:
    """Rows of a cut on one rank: in its shard, and beyond it in buckets and wires."""

    local: int
    staging: int


# What autograd keeps of a layer, by the tensor whose rows it has as many of: q, k and v for each
# query head, the result of attention and its transposed copy; gate, up, the activated gate and the
# product; of the logits themselves, the exponentials and their gradient.
_KEPT_PER_ROW = {"attention.q.weight": 5, "ffn.gate.weight": 4, "embed.weight": 3}


def _kinds(plan: ModelPlan) -> tuple[_Kind, ...]:
    by_cut: dict[tuple[str, int, int], list[TensorCut]] = {}
    for tensor in plan.tensors:
        by_cut.setdefault((tensor.family, tensor.rows, tensor.unit_rows), []).append(tensor)
    return tuple(
        _Kind(
            cut=Cut(plan.family(family), rows, unit_rows),
            row_elements=sum(tensor.row_elements for tensor in tensors),
            largest_row=max(tensor.row_elements for tensor in tensors),
            kept=sum(_KEPT_PER_ROW.get(_in_layer(tensor.name), 0) for tensor in tensors)
            + _kept_of_norms(tensors),
        )
        for (family, rows, unit_rows), tensors in by_cut.items()
    )


def _in_layer(name: str) -> str:
    """Without "layers.3."."""
    return name.split(".", 2)[2] if name.startswith("layers.") else name


def _kept_of_norms(tensors: Sequence[TensorCut]) -> int:
    """Each norm keeps what it gets, and the modules behind it keep what it gives."""
    return 2 * sum(tensor.row_elements for tensor in tensors if tensor.axis is None)


def _rows(cut: Cut, where: tuple[int, int], sync_degree: int) -> _Rows:
    """As the sync plan lays buckets out: sharded rows lie where they cross replicas, all others
    have a home beside their gradient. Replicated gradients are not sent, but come back."""
    flow = row_flow(cut, *where, sync_degree)
    sent = sum(rows for _, runs in flow.outgoing for _, rows in runs)
    received = sum(rows for _, runs in flow.incoming for _, rows in runs)
    ownership = cut.family.ownership
    if ownership is Ownership.SHARDED:
        beyond = max(flow.local_rows, flow.home_rows) - flow.local_rows
    else:
        beyond = flow.home_rows
    ways = 1 if ownership is Ownership.REPLICATED else 2
    return _Rows(flow.local_rows, beyond + ways * (sent + received))


def _one_rank(
    kinds: Sequence[_Kind], rows: Sequence[_Rows], load: Load, bytes_per_element: int
) -> RankBytes:
    pairs = list(zip(kinds, rows, strict=True))
    weights = sum(kind.row_elements * row.local for kind, row in pairs) * bytes_per_element
    staging = sum(kind.row_elements * row.staging for kind, row in pairs) * bytes_per_element
    kept = sum(kind.kept * row.local for kind, row in pairs)
    # The largest gradient of a weight exists a second time until it is summed up.
    largest = max(kind.largest_row * row.local for kind, row in pairs)
    return RankBytes(
        weights=weights,
        gradients=weights,
        moments=MOMENTS * weights,
        staging=staging,
        activations=(load.tokens * kept + largest) * bytes_per_element,
        scratch=weights,
        moving=(1 + MOMENTS) * weights,
        snapshot=(1 + MOMENTS) * weights,
    )


@dataclass(frozen=True)
class MemoryJob:
    """What of a job decides about memory; degrees are those of the plan. `snapshot`: whether
    snapshots for checkpoints lie in the memory that is checked, as on a CPU."""

    replicas: int
    sequences: int
    length: int
    accumulation: int
    bytes_per_element: int
    snapshot: bool


def check_memory(plan: ModelPlan, job: MemoryJob, available_bytes: int) -> str | None:
    """A line that names `min_degree`, or None where each rank fits in `available_bytes`.

    Looked at are the two worst cases while one replica runs at `min_degree` and all others are
    whole: a rank of that replica, and one of a whole replica, whose buckets grow. With more
    replicas hurt the shares of all are larger.
    """
    least = plan.min_degree
    need = _need(plan, job, least)
    if need.worst <= available_bytes:
        return None
    fitting = next(
        (
            n
            for n in range(least + 1, plan.base + 1)
            if _need(plan, job, n).worst <= available_bytes
        ),
        None,
    )
    advice = f"min_degree = {fitting} would fit" if fitting else "nor do whole replicas fit"
    return (
        f"[parallel] min_degree = {least}: a rank {need.place} needs about {_gib(need.worst)} GiB "
        f"({need.parts}), available are {_gib(available_bytes)} GiB; {advice}"
    )


@dataclass(frozen=True)
class _Need:
    worst: int
    place: str
    parts: str


def _need(plan: ModelPlan, job: MemoryJob, least: int) -> _Need:
    """Of the worst rank, with one replica at degree `least`."""
    cases = []
    for degree in {least, plan.base} if job.replicas > 1 else {least}:
        load = Load(_at_once(job, largest_share(job, plan.base, least, degree)), job.length)
        cases.append((degree, rank_bytes(plan, degree, least, load, job.bytes_per_element)))
    degree, worst = max(cases, key=lambda case: (case[1].total(job.snapshot), case[0]))
    shown = [(n, size) for n, size in worst.to_json().items() if n != "snapshot" or job.snapshot]
    parts = ", ".join(f"{name} {_gib(size)}" for name, size in shown)
    return _Need(worst.total(job.snapshot), f"at degree {degree}", parts)


def largest_share(job: MemoryJob, base: int, least: int, degree: int) -> int:
    """The most sequences of a step that a replica of `degree` gets while one replica runs at
    `least` and all others at `base`: its part by speed, rounded up."""
    speed = base * (job.replicas - 1) + least
    return max(1, -(-job.sequences * degree // speed))


def _at_once(job: MemoryJob, share: int) -> int:
    """Sequences of the largest micro-batch."""
    return -(-share // min(job.accumulation, share))


def _gib(size: int) -> str:
    return f"{size / BYTES_PER_GIB:.3g}"
