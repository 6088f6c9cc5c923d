"""Ranks that save, in one process: their shards cut from a whole that is known.

In: a plan, a whole, places of ranks. Out: parts in a folder, published checkpoints.
"""

from __future__ import annotations

from collections.abc import Sequence

from standins.shards import Whole, cut

from nonuniform.layout.model_plan import ModelPlan
from nonuniform.reshard.save_plan import plan_save
from nonuniform.reshard.transfer import Holding
from nonuniform.train.checkpoint.part import Part, Snapshot, take_snapshot, write_part
from nonuniform.train.checkpoint.shelf import Checkpoint, Identity, Shelf


def identity(dtype: str = "float64", layers: int = 2) -> Identity:
    return Identity(
        layers=layers,
        hidden=4,
        heads=3,
        kv_heads=2,
        head_dim=2,
        ffn=7,
        vocab=11,
        tied=False,
        rope_base=10000.0,
        norm_eps=1e-5,
        seed=1,
        dtype=dtype,
        sequences=8,
        length=16,
        holdout=0.05,
        corpus_bytes=1000,
    )


def ranks(*degrees: int) -> list[Holding]:
    """All ranks of one replica per degree."""
    return [
        Holding(f"{replica}/{label}", degree, label)
        for replica, degree in enumerate(degrees)
        for label in range(degree)
    ]


def snapshots(
    plan: ModelPlan, whole: Whole, holdings: Sequence[Holding], step: int
) -> dict[str, Snapshot]:
    saved = plan_save(plan, holdings)
    assert saved.missing == ()
    return {
        holding.gpu: take_snapshot(
            cut(plan, whole, holding.degree, holding.label, step), saved.units[holding.gpu]
        )
        for holding in holdings
    }


def write_parts(
    shelf: Shelf, plan: ModelPlan, whole: Whole, holdings: Sequence[Holding], step: int
) -> list[Part]:
    folder = shelf.open_part_folder(step)
    taken = snapshots(plan, whole, holdings, step)
    # As they come over the network: as plain JSON.
    return [
        Part.from_json(write_part(snapshot, folder, gpu).to_json())
        for gpu, snapshot in taken.items()
    ]


def save(
    shelf: Shelf, plan: ModelPlan, whole: Whole, holdings: Sequence[Holding], step: int
) -> Checkpoint:
    parts = write_parts(shelf, plan, whole, holdings, step)
    dtype = str(next(iter(whole.values()))[0].dtype).removeprefix("torch.")
    return shelf.complete(step, step - 1, identity(dtype), parts, plan)
