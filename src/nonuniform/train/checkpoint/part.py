"""One rank's part of a checkpoint: what it holds, copied aside, written, and described.

In: a rank's shard and the units it is to write. Out: a file of tensors in the format of torch's
distributed checkpoints, and its description as plain JSON. Tensors are named and turned as in the
uncut model: a row-parallel weight, whose shard lies transposed, is written as columns of the
logical matrix. DESIGN "Generations". No communication; knows nothing of other ranks' parts.

The copy (`take_snapshot`) is made between two steps, the writing may take its time beside them.
"""

from __future__ import annotations

import io
import os
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nonuniform.layout.cuts import TensorCut
from nonuniform.reshard.save_plan import UnitName
from nonuniform.train.checkpoint.durable import sync_folder
from nonuniform.train.state import SLOTS, ShardState

# A reader takes whole pieces: their size bounds what it reads in vain. A larger unit stays whole.
PIECE_BYTES = 4 << 20
DTYPES = {str(dtype).removeprefix("torch."): dtype for dtype in (torch.float32, torch.float64)}

_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def slot_name(tensor: str, slot: str) -> str:
    """What a slot of a tensor is called in a checkpoint; weights keep the model's names."""
    return tensor if slot == SLOTS[0] else f"optimizer.state.{tensor}.{slot}"


def file_stem(step: int, gpu: str) -> str:
    """A name that no other GPU and no other step has."""
    stem = f"step-{step:08d}-gpu-{gpu.replace('/', '-')}"
    if not _SAFE.fullmatch(stem):
        raise ValueError(f"GPU {gpu!r}: no name for a file")
    return stem


@dataclass(frozen=True)
class _Copied:
    """The rows of some units of a tensor, ascending, in every slot."""

    cut: TensorCut
    units: tuple[int, ...]
    slots: tuple[Tensor, ...]


@dataclass(frozen=True)
class Snapshot:
    """Units of a shard after `step` steps, in memory of their own on the CPU."""

    step: int
    tensors: tuple[_Copied, ...]

    @property
    def nbytes(self) -> int:
        return sum(slot.nbytes for copied in self.tensors for slot in copied.slots)


def all_units(state: ShardState) -> tuple[UnitName, ...]:
    """Everything that the rank holds."""
    return tuple(
        (family.name, unit)
        for family in state.plan.families
        for unit in sorted(family.at(state.degree).held[state.label])
    )


def take_snapshot(state: ShardState, units: Sequence[UnitName]) -> Snapshot:
    """Copy the units, so that training may go on; the caller holds all of them."""
    by_family: dict[str, set[int]] = {}
    for family, unit in units:
        by_family.setdefault(family, set()).add(unit)
    copied = []
    for tensor in state.plan.tensors:
        wanted = tuple(sorted(by_family.get(tensor.family, ())))
        if wanted:
            rows = state.unit_rows(tensor)
            lacking = [unit for unit in wanted if unit not in rows]
            assert not lacking, f"{tensor.name}: units {lacking} are not held"
            spans = [rows[unit] for unit in wanted]
            slots = tuple(_copy(matrix, spans) for matrix in state.matrices[tensor.name])
            copied.append(_Copied(tensor, wanted, slots))
    return Snapshot(state.step, tuple(copied))


def _copy(matrix: Tensor, spans: Sequence[tuple[int, int]]) -> Tensor:
    """Rows of several spans, on the CPU; always new memory, and none besides it on a GPU."""
    total = sum(stop - start for start, stop in spans)
    rows = torch.empty(total, matrix.shape[1], dtype=matrix.dtype)
    at = 0
    for start, stop in _joined(spans):
        rows[at : at + stop - start].copy_(matrix.detach()[start:stop])
        at += stop - start
    return rows


def _joined(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for start, stop in spans:
        if joined and joined[-1][1] == start:
            joined[-1] = (joined[-1][0], stop)
        else:
            joined.append((start, stop))
    return joined


@dataclass(frozen=True)
class PartFile:
    name: str
    bytes: int
    crc32: int


@dataclass(frozen=True)
class Item:
    """A box of a logical tensor, and the bytes of a file that hold it."""

    fqn: str
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    shape: tuple[int, ...]  # of the whole tensor
    dtype: str
    file: str
    offset: int
    length: int
    crc32: int


@dataclass(frozen=True)
class Part:
    """What one GPU wrote; without a file if it had nothing to write."""

    gpu: str
    step: int
    files: tuple[PartFile, ...]
    items: tuple[Item, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "gpu": self.gpu,
            "step": self.step,
            "files": [list(astuple(file)) for file in self.files],
            "items": [list(astuple(item)) for item in self.items],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Part:
        """ValueError where it is no part; a file's name never leads out of the folder."""
        try:
            files = files_from_json(data["files"])
            items = items_from_json(data["items"])
            part = cls(_text(data["gpu"]), _whole(data["step"]), files, items)
        except (LookupError, TypeError, ValueError) as error:
            raise ValueError(f"no part of a checkpoint: {error}") from None
        return part


def files_from_json(rows: Sequence[Any]) -> tuple[PartFile, ...]:
    return tuple(PartFile(_file(name), _whole(size), _whole(crc)) for name, size, crc in rows)


def items_from_json(rows: Sequence[Any]) -> tuple[Item, ...]:
    return tuple(_item(row) for row in rows)


def _item(row: Sequence[Any]) -> Item:
    fqn, offsets, sizes, shape, dtype, file, *numbers = row
    if dtype not in DTYPES:
        raise ValueError(f"dtype {dtype!r}")
    offset, length, crc = map(_whole, numbers)
    return Item(
        fqn=_text(fqn),
        offsets=tuple(map(_whole, offsets)),
        sizes=tuple(map(_whole, sizes)),
        shape=tuple(map(_whole, shape)),
        dtype=dtype,
        file=_file(file),
        offset=offset,
        length=length,
        crc32=crc,
    )


def _whole(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is no whole number")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is no text")
    return value


def _file(value: Any) -> str:
    # ".metadata" is the one hidden name: torch's own description of a checkpoint.
    if not _SAFE.fullmatch(_text(value).removeprefix(".")):
        raise ValueError(f"{value!r} is no name of a file")
    return str(value)


def write_part(snapshot: Snapshot, folder: Path, gpu: str, by_unit: bool = False) -> Part:
    """Write and force to disk. OSError if that fails; then nothing of it is left.

    `by_unit`: no piece joins two units, so that a reader can take single ones out of it.
    """
    name = file_stem(snapshot.step, gpu) + ".distcp"
    if not snapshot.tensors:
        return Part(gpu, snapshot.step, (), ())
    path = folder / name
    try:
        file, items = _write(snapshot, path, by_unit)
        sync_folder(folder)
    except BaseException:
        with suppress(OSError):
            path.unlink(missing_ok=True)
        raise
    return Part(gpu, snapshot.step, (file,), items)


def _write(snapshot: Snapshot, path: Path, by_unit: bool) -> tuple[PartFile, tuple[Item, ...]]:
    items: list[Item] = []
    written, crc = 0, 0
    with open(path, "wb") as file:
        for copied in snapshot.tensors:
            for box in _boxes(copied, by_unit):
                data = _saved(box.tensor)
                items.append(_described(copied.cut, box, path.name, written, data))
                file.write(data)
                written += len(data)
                crc = zlib.crc32(data, crc)
        file.flush()
        os.fsync(file.fileno())
    return PartFile(path.name, written, crc), tuple(items)


@dataclass(frozen=True)
class _Box:
    """Logical rows from `start` on, of one slot, in logical orientation."""

    slot: str
    start: int
    tensor: Tensor


def _boxes(copied: _Copied, by_unit: bool) -> Iterator[_Box]:
    cut = copied.cut
    row_bytes = cut.row_elements * copied.slots[0].element_size()
    limit = 0 if by_unit else PIECE_BYTES // max(1, row_bytes)
    runs = _runs(cut, copied.units, limit)
    for slot, matrix in zip(SLOTS, copied.slots, strict=True):
        at = 0
        for start, stop in runs:
            rows = matrix[at : at + stop - start]
            yield _Box(slot, start, logical_view(cut, rows).contiguous())
            at += stop - start


def _runs(cut: TensorCut, units: Sequence[int], limit: int) -> list[tuple[int, int]]:
    """Neighbouring units as one stretch of logical rows, of at most `limit` rows if they join."""
    runs: list[tuple[int, int]] = []
    for unit in units:
        start, stop = cut.unit_span(unit)
        if runs and runs[-1][1] == start and stop - runs[-1][0] <= limit:
            runs[-1] = (runs[-1][0], stop)
        else:
            runs.append((start, stop))
    return runs


def logical_view(cut: TensorCut, rows: Tensor) -> Tensor:
    """Rows of a shard [rows, row elements] seen as the box of the uncut tensor that they are."""
    if cut.axis is None:
        return rows.view(cut.shape)
    others = [size for axis, size in enumerate(cut.shape) if axis != cut.axis]
    return rows.view(len(rows), *others).movedim(0, cut.axis)


def _saved(tensor: Tensor) -> memoryview:
    buffer = io.BytesIO()
    # A slice would be saved with the whole storage behind it.
    small = tensor.untyped_storage().nbytes() == tensor.nbytes
    torch.save(tensor if small else tensor.clone(), buffer)
    return buffer.getbuffer()


def _described(cut: TensorCut, box: _Box, file: str, offset: int, data: memoryview) -> Item:
    offsets = [0] * len(cut.shape)
    if cut.axis is not None:
        offsets[cut.axis] = box.start
    return Item(
        fqn=slot_name(cut.name, box.slot),
        offsets=tuple(offsets),
        sizes=tuple(box.tensor.shape),
        shape=cut.shape,
        dtype=str(box.tensor.dtype).removeprefix("torch."),
        file=file,
        offset=offset,
        length=len(data),
        crc32=zlib.crc32(data),
    )
