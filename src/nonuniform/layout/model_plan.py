"""The plan of a Llama-like decoder: grouped-query attention, gated FFN, RMS norms.

In: a model's shape and the degrees a job may run at. Out: a `ModelPlan`, or `BadInput` with the
degrees that would be legal. DESIGN: "The kind of unit belongs to the module and the job".
Does not know: the modules that compute with these tensors.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from nonuniform.errors import BadInput
from nonuniform.layout.cuts import ModelPlan, TensorCut
from nonuniform.layout.family import Family
from nonuniform.layout.granularity import cut_in_groups, kv_of_query, row_block
from nonuniform.layout.units import Ownership

__all__ = ["ModelPlan", "ModelShape", "TensorCut", "kv_of_query", "local_kv_index", "plan_llama"]


@dataclass(frozen=True)
class ModelShape:
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    tied: bool


@dataclass(frozen=True)
class _UnitRows:
    """Rows per unit of each family that is cut."""

    query: int
    kv: int
    ffn: int
    vocab: int


def plan_llama(
    shape: ModelShape, base: int, min_degree: int, allow_empty: bool = False
) -> ModelPlan:
    """Cut the model for degrees min_degree..base."""
    _check_shape(shape, base, min_degree)
    if not allow_empty:
        _check_no_rank_empty(shape, base)
    query, kv = _attention_families(shape, base, min_degree, allow_empty)
    unit_rows = _UnitRows(
        query=shape.heads // query.count * shape.head_dim,
        kv=shape.head_dim,
        ffn=row_block(shape.ffn, base, min_degree),
        vocab=row_block(shape.vocab, base, min_degree),
    )
    families = (
        _sharded("vocab", -(-shape.vocab // unit_rows.vocab), base),
        query,
        kv,
        _sharded("ffn", -(-shape.ffn // unit_rows.ffn), base),
        Family("replicated", 1, base, Ownership.REPLICATED),
    )
    return ModelPlan(base, min_degree, families, _tensors(shape, unit_rows))


def local_kv_index(plan: ModelPlan, degree: int, label: int) -> tuple[int, ...]:
    """For each local query head, in local order, the local index of the KV head it reads."""
    query, kv = plan.family("query"), plan.family("kv")
    position = {unit: index for index, unit in enumerate(kv.at(degree).held[label])}
    if kv.ownership is Ownership.SHARED:
        return tuple(position[kv.uses[head]] for head in query.at(degree).held[label])
    # Whole KV groups: each brings its KV head and all query heads that read it.
    group = plan.tensors_of("query")[0].unit_rows // plan.tensors_of("kv")[0].unit_rows
    return tuple(position[unit] for unit in query.at(degree).held[label] for _ in range(group))


def _check_shape(shape: ModelShape, base: int, min_degree: int) -> None:
    for field in fields(shape):
        value = getattr(shape, field.name)
        if field.name != "tied" and value < 1:
            raise BadInput(f"model.{field.name} = {value}: must be at least 1")
    if shape.kv_heads > shape.heads:
        raise BadInput(f"model.kv_heads = {shape.kv_heads}: more than model.heads = {shape.heads}")
    if not 1 <= min_degree <= base:
        raise BadInput(
            f"parallel.min_degree = {min_degree}: must be between 1 and parallel.degree = {base}"
        )


def _check_no_rank_empty(shape: ModelShape, base: int) -> None:
    """A module with fewer pieces than ranks would idle some: refused before launch."""
    largest = min(shape.heads, shape.ffn, shape.vocab)
    for key, pieces in (("heads", shape.heads), ("ffn", shape.ffn), ("vocab", shape.vocab)):
        if pieces < base:
            legal = ", ".join(str(degree) for degree in range(1, largest + 1))
            raise BadInput(
                f"model.{key} = {pieces}: {pieces} units leave ranks empty at "
                f"parallel.degree = {base}; legal degrees: {legal}"
            )


def _sharded(name: str, count: int, base: int) -> Family:
    return Family(name, count, base, Ownership.SHARDED)


def _attention_families(
    shape: ModelShape, base: int, min_degree: int, allow_empty: bool
) -> tuple[Family, Family]:
    heads, kv_heads = shape.heads, shape.kv_heads
    if cut_in_groups(heads, kv_heads, range(min_degree, base + 1), allow_empty):
        return _sharded("query", kv_heads, base), _sharded("kv", kv_heads, base)
    query = _sharded("query", heads, base)
    uses = tuple(kv_of_query(head, heads, kv_heads) for head in range(heads))
    return query, Family("kv", kv_heads, base, Ownership.SHARED, query, uses)


def _tensors(shape: ModelShape, unit_rows: _UnitRows) -> tuple[TensorCut, ...]:
    vocab = (shape.vocab, shape.hidden)
    tensors = [TensorCut("embed.weight", vocab, 0, "vocab", unit_rows.vocab)]
    for layer in range(shape.layers):
        tensors += _layer_tensors(f"layers.{layer}.", shape, unit_rows)
    tensors.append(_norm("norm.weight", shape))
    if not shape.tied:
        tensors.append(TensorCut("head.weight", vocab, 0, "vocab", unit_rows.vocab))
    return tuple(tensors)


def _layer_tensors(prefix: str, shape: ModelShape, unit_rows: _UnitRows) -> list[TensorCut]:
    hidden, ffn = shape.hidden, shape.ffn
    query, kv = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    return [
        _norm(prefix + "attention_norm.weight", shape),
        TensorCut(prefix + "attention.q.weight", (query, hidden), 0, "query", unit_rows.query),
        TensorCut(prefix + "attention.k.weight", (kv, hidden), 0, "kv", unit_rows.kv),
        TensorCut(prefix + "attention.v.weight", (kv, hidden), 0, "kv", unit_rows.kv),
        TensorCut(prefix + "attention.o.weight", (hidden, query), 1, "query", unit_rows.query),
        _norm(prefix + "ffn_norm.weight", shape),
        TensorCut(prefix + "ffn.gate.weight", (ffn, hidden), 0, "ffn", unit_rows.ffn),
        TensorCut(prefix + "ffn.up.weight", (ffn, hidden), 0, "ffn", unit_rows.ffn),
        TensorCut(prefix + "ffn.down.weight", (hidden, ffn), 1, "ffn", unit_rows.ffn),
    ]


def _norm(name: str, shape: ModelShape) -> TensorCut:
    return TensorCut(name, (shape.hidden,), None, "replicated")
