"""The gradient sync of one rank: where every gradient lies and what travels, bucket by bucket.

In: a model plan, this rank's degree and label, the sync degree, a list of buckets.
Out: frozen spans, slices and counts, in elements of one flat buffer per bucket.
DESIGN: "Gradient sync", "A unit may have several owners". Order of a buffer:
    [sharded tensors: own | gained][staging of primaries][local gradients of the other tensors]
The first two parts of a sync rank are `reduced`: the same elements in the same order on this label
of every replica. A rank of a degree above the sync degree ("extra") reduces nothing.
Does not know: values, dtypes, communication; an executor copies, exchanges and adds as told.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from nonuniform.errors import BadInput
from nonuniform.layout.model_plan import ModelPlan, TensorCut
from nonuniform.layout.units import Ownership
from nonuniform.reshard.row_flow import Cut, RowFlow, Run, row_flow


@dataclass(frozen=True)
class Span:
    """Elements [offset, offset + length) of a bucket's flat buffer."""

    offset: int
    length: int


@dataclass(frozen=True)
class Slice:
    """A span of the buffer and where it lies in the wire buffer; add: the wire is added to it."""

    buffer: Span
    wire: int
    add: bool = False


@dataclass(frozen=True)
class BucketPlan:
    """One bucket on one rank. Counts are elements per label of the replica.

    An executor does, in this order: write local gradients into `grads`; clear `zero`; copy
    `own_out`; gather `pack` into the send wire, exchange by `send_counts` / `recv_counts`, write
    (or add) `unpack`; all-reduce the first `reduced` elements with the same label of the other
    replicas; the same way back with the `back_` fields and `own_back`; read `grads`.
    """

    size: int
    reduced: int
    grads: tuple[tuple[str, Span], ...]
    zero: tuple[Span, ...]
    own_out: tuple[tuple[Span, Span, bool], ...]  # (local, staging, add)
    send_counts: tuple[int, ...]
    recv_counts: tuple[int, ...]
    pack: tuple[Slice, ...]
    unpack: tuple[Slice, ...]
    back_send_counts: tuple[int, ...]
    back_recv_counts: tuple[int, ...]
    back_pack: tuple[Slice, ...]
    back_unpack: tuple[Slice, ...]
    own_back: tuple[tuple[Span, Span], ...]  # (staging, local)
    primaries: tuple[Span, ...]  # each logical element once over the sync ranks of a replica


def assign_buckets(plan: ModelPlan, bucket_elements: int) -> tuple[tuple[str, ...], ...]:
    """Tensor names in the order in which backward finishes them, cut into buckets.

    By logical elements, so every rank of every replica gets the same buckets. Tied embeddings
    come last by themselves: they are the first tensor of the model.
    """
    if bucket_elements < 1:
        raise BadInput(f"bucket_elements = {bucket_elements}: must be at least 1")
    buckets: list[list[str]] = []
    filled = bucket_elements
    for tensor in reversed(plan.tensors):
        if filled + tensor.elements > bucket_elements:
            buckets.append([])
            filled = 0
        buckets[-1].append(tensor.name)
        filled += tensor.elements
    return tuple(tuple(names) for names in buckets)


def bucket_plans(
    plan: ModelPlan,
    degree: int,
    label: int,
    sync_degree: int,
    buckets: Sequence[Sequence[str]],
) -> tuple[BucketPlan, ...]:
    """The plan of every bucket for rank `label` of a replica of `degree`."""
    if not 1 <= sync_degree <= degree <= plan.base:
        raise BadInput(
            f"sync degree {sync_degree}, degree {degree}, base degree {plan.base}: must not fall"
        )
    if not 0 <= label < degree:
        raise BadInput(f"label {label}: must be between 0 and {degree - 1}")
    rank = _Rank(plan, degree, label, sync_degree)
    return tuple(_bucket_plan(rank, [plan.tensor(name) for name in names]) for names in buckets)


@dataclass(frozen=True)
class _Rank:
    plan: ModelPlan
    degree: int
    label: int
    sync_degree: int

    def flow(self, tensor: TensorCut) -> RowFlow:
        cut = Cut(self.plan.family(tensor.family), tensor.rows, tensor.unit_rows)
        return row_flow(cut, self.degree, self.label, self.sync_degree)


@dataclass(frozen=True)
class _Placed:
    """A tensor of the bucket: its flow in rows and where its two places begin in the buffer."""

    name: str
    ownership: Ownership
    row_elements: int
    flow: RowFlow
    local: int
    home: int

    def span(self, start: int, run: Run) -> Span:
        return Span(start + run[0] * self.row_elements, run[1] * self.row_elements)

    def local_spans(self) -> Iterator[tuple[int, Span]]:
        """(label of the home, local span) of all that this rank owns but is not primary of."""
        for peer, runs in self.flow.outgoing:
            yield from ((peer, self.span(self.local, run)) for run in runs)

    def home_spans(self) -> Iterator[tuple[int, Span]]:
        """(label of the owner, home span) of all that this rank is primary of for another."""
        for peer, runs in self.flow.incoming:
            yield from ((peer, self.span(self.home, run)) for run in runs)

    def own(self) -> Iterator[tuple[Span, Span]]:
        """(local span, home span) of what this rank owns and is primary of, if they differ."""
        if self.ownership is Ownership.SHARDED:
            return
        for local, home, rows in self.flow.own:
            yield self.span(self.local, (local, rows)), self.span(self.home, (home, rows))


def _bucket_plan(rank: _Rank, tensors: Sequence[TensorCut]) -> BucketPlan:
    placed, reduced, size = _place(rank, tensors)
    # Replicas of a replicated gradient are equal: the primary's own copy is used, none is sent.
    partial = [t for t in placed if t.ownership is not Ownership.REPLICATED]
    add = {t.name: t.ownership is Ownership.SHARED for t in placed}
    degree = rank.degree
    out = [(peer, span, False) for t in partial for peer, span in t.local_spans()]
    into = [(peer, span, add[t.name]) for t in partial for peer, span in t.home_spans()]
    back_out = [(peer, span, False) for t in placed for peer, span in t.home_spans()]
    back_into = [(peer, span, False) for t in placed for peer, span in t.local_spans()]
    send_counts, pack = _wire(degree, out)
    recv_counts, unpack = _wire(degree, into)
    back_send_counts, back_pack = _wire(degree, back_out)
    back_recv_counts, back_unpack = _wire(degree, back_into)
    return BucketPlan(
        size=size,
        reduced=reduced,
        grads=tuple((t.name, t.span(t.local, (0, t.flow.local_rows))) for t in placed),
        zero=tuple(t.span(t.home, run) for t in partial if add[t.name] for run in t.flow.strange),
        own_out=tuple((local, home, False) for t in placed for local, home in t.own()),
        send_counts=send_counts,
        recv_counts=recv_counts,
        pack=pack,
        unpack=unpack,
        back_send_counts=back_send_counts,
        back_recv_counts=back_recv_counts,
        back_pack=back_pack,
        back_unpack=back_unpack,
        own_back=tuple((home, local) for t in placed for local, home in t.own()),
        primaries=(Span(0, reduced),) if reduced else (),
    )


def _place(rank: _Rank, tensors: Sequence[TensorCut]) -> tuple[list[_Placed], int, int]:
    """Tensors in bucket order with their places; length of the reduced part; whole length."""
    offset = 0
    places = {}
    flows = {tensor.name: rank.flow(tensor) for tensor in tensors}
    ownership = {t.name: rank.plan.family(t.family).ownership for t in tensors}
    others = [t for t in tensors if ownership[t.name] is not Ownership.SHARDED]
    for tensor in tensors:
        if ownership[tensor.name] is Ownership.SHARDED:
            flow = flows[tensor.name]
            places[tensor.name] = (offset, offset)
            offset += max(flow.local_rows, flow.home_rows) * tensor.row_elements
    homes = {}
    for tensor in others:
        homes[tensor.name] = offset
        offset += flows[tensor.name].home_rows * tensor.row_elements
    reduced = offset if rank.label < rank.sync_degree else 0
    for tensor in others:
        places[tensor.name] = (offset, homes[tensor.name])
        offset += flows[tensor.name].local_rows * tensor.row_elements
    placed = [
        _Placed(t.name, ownership[t.name], t.row_elements, flows[t.name], *places[t.name])
        for t in tensors
    ]
    return placed, reduced, offset


def _wire(
    degree: int, pieces: Iterable[tuple[int, Span, bool]]
) -> tuple[tuple[int, ...], tuple[Slice, ...]]:
    """Lay pieces (peer, span, add) out in one wire buffer, by peer, in the given order."""
    by_peer: list[list[tuple[Span, bool]]] = [[] for _ in range(degree)]
    for peer, span, add in pieces:
        by_peer[peer].append((span, add))
    slices: list[Slice] = []
    counts, wire = [], 0
    for spans in by_peer:
        begin = wire
        for span, add in spans:
            _append(slices, Slice(span, wire, add))
            wire += span.length
        counts.append(wire - begin)
    return tuple(counts), tuple(slices)


def _append(slices: list[Slice], new: Slice) -> None:
    """Join with the last slice where buffer and wire both go on."""
    if slices:
        last = slices[-1]
        if last.add == new.add and last.buffer.offset + last.buffer.length == new.buffer.offset:
            joined = Span(last.buffer.offset, last.buffer.length + new.buffer.length)
            slices[-1] = replace(last, buffer=joined)
            return
    slices.append(new)
