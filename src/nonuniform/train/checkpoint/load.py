"""A rank's shard out of a checkpoint, whatever degrees it was written at.

In: a checkpoint, a plan, a place in a replica. Out: the shard as it was after the checkpoint's
step. DESIGN "Nested layouts": rows are known by their logical number, so a checkpoint of any mix of
degrees is one of all. Works from the manifest alone, reads only the pieces in which the rank has
rows, each once, and unpickles nothing but tensors whose bytes are as they were written.
No communication; knows nothing of other ranks.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nonuniform.errors import RunFailed
from nonuniform.layout.cuts import ModelPlan, TensorCut
from nonuniform.train.checkpoint.manifest import check_boxes, span_of
from nonuniform.train.checkpoint.part import DTYPES, Item, slot_name
from nonuniform.train.checkpoint.shelf import Checkpoint, read_manifest
from nonuniform.train.state import SLOTS, Matrices, ShardState


def load_shard(
    checkpoint: Checkpoint | Path,
    plan: ModelPlan,
    where: tuple[int, int],
    dtype: torch.dtype,
    device: torch.device,
    working: Callable[[], object] = lambda: None,
) -> ShardState:
    """The shard of `where` = (degree, label). RunFailed where the checkpoint does not have it.
    `working` is called with every piece that is read: the whole may take minutes."""
    if isinstance(checkpoint, Path):
        try:
            checkpoint = Checkpoint(checkpoint, read_manifest(checkpoint))
        except (OSError, ValueError) as error:
            raise RunFailed(f"checkpoint {checkpoint}: {error}") from None
    by_name: dict[str, list[Item]] = {}
    for item in checkpoint.manifest.items:
        by_name.setdefault(item.fqn, []).append(item)
    matrices: Matrices = {}
    with _Files(checkpoint.path, working) as files:
        for tensor in plan.tensors:
            rows = plan.local_rows(tensor, *where)
            slots = []
            for slot in SLOTS:
                name = slot_name(tensor.name, slot)
                items = by_name.get(name, [])
                _check(checkpoint.path, name, tensor, items, dtype)
                matrix = torch.empty(len(rows), tensor.row_elements, dtype=dtype)
                _fill(matrix, rows, tensor, items, files)
                slots.append(matrix.to(device))
            matrices[tensor.name] = tuple(slots)
    return ShardState(plan, *where, checkpoint.step, matrices)


class _Files:
    """Open files of one checkpoint, read by pieces whose checksums are verified."""

    def __init__(self, folder: Path, working: Callable[[], object]) -> None:
        self._folder = folder
        self._working = working
        self._open: dict[str, IO[bytes]] = {}

    def __enter__(self) -> _Files:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._open.values():
            file.close()

    def read(self, item: Item) -> Tensor:
        path = self._folder / item.file
        self._working()
        try:
            if item.file not in self._open:
                self._open[item.file] = open(path, "rb")  # noqa: SIM115 (closed in __exit__)
            file = self._open[item.file]
            file.seek(item.offset)
            data = file.read(item.length)
        except OSError as error:
            raise RunFailed(f"{path}: {error.strerror}") from None
        if len(data) != item.length or zlib.crc32(data) != item.crc32:
            raise RunFailed(
                f"{path}: {item.fqn}, {item.length} bytes from byte {item.offset} on, is not as it "
                "was written"
            )
        tensor = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
        if not isinstance(tensor, Tensor) or tuple(tensor.shape) != item.sizes:
            raise RunFailed(f"{path}: {item.fqn} is not of the shape {list(item.sizes)}")
        return tensor


def _check(
    path: Path, name: str, tensor: TensorCut, items: Sequence[Item], dtype: torch.dtype
) -> None:
    try:
        check_boxes(name, tensor, items)
    except RunFailed as error:
        raise RunFailed(f"{path}: {error}") from None
    for item in items:
        # A silent conversion would change the run: who wants one says so elsewhere.
        if DTYPES[item.dtype] != dtype:
            raise RunFailed(f"{path}: {name} is {item.dtype}, not {dtype}")


def _fill(
    matrix: Tensor,
    rows: NDArray[np.int64],
    tensor: TensorCut,
    items: Sequence[Item],
    files: _Files,
) -> None:
    """Each wanted logical row from the piece that has it to its place in the shard."""
    place = np.full(tensor.rows, -1, dtype=np.int64)
    place[rows] = np.arange(len(rows))
    filled = 0
    for item in items:
        start, stop = span_of(item, tensor.axis)
        wanted = place[start:stop]
        source = np.flatnonzero(wanted >= 0)
        if not len(source):
            continue
        piece = _as_rows(tensor, files.read(item))
        matrix[torch.from_numpy(wanted[source])] = piece[torch.from_numpy(source)]
        filled += len(source)
    if filled != len(rows):
        raise RunFailed(
            f"checkpoint: {slot_name(tensor.name, SLOTS[0])} has {filled} of {len(rows)} rows"
        )


def _as_rows(tensor: TensorCut, piece: Tensor) -> Tensor:
    """A box of the uncut tensor as rows of a shard."""
    if tensor.axis is None:
        return piece.reshape(1, -1)
    return piece.movedim(tensor.axis, 0).reshape(piece.shape[tensor.axis], -1)
