"""What a checkpoint consists of, and whether that is everything, once.

In: the parts that ranks wrote. Out: `manifest.json`, a sealed description from which the loader
works alone; an error that names what lacks. DESIGN "Generations". Knows nothing of folders.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any

from nonuniform.errors import RunFailed
from nonuniform.layout.cuts import ModelPlan, TensorCut
from nonuniform.train.checkpoint.durable import sealed, unsealed
from nonuniform.train.checkpoint.identity import Identity
from nonuniform.train.checkpoint.part import (
    Item,
    Part,
    PartFile,
    files_from_json,
    items_from_json,
    slot_name,
)
from nonuniform.train.state import SLOTS

FORMAT = 1


@dataclass(frozen=True)
class Manifest:
    """`validated`: the last step that was validated. `files` are all but the manifest itself."""

    step: int
    validated: int
    identity: Identity
    files: tuple[PartFile, ...]
    items: tuple[Item, ...]

    def to_bytes(self) -> bytes:
        content = {
            "format": FORMAT,
            "step": self.step,
            "validated": self.validated,
            "identity": self.identity.to_json(),
            "files": [astuple(file) for file in self.files],
            "items": [astuple(item) for item in self.items],
        }
        return sealed(content)

    @classmethod
    def from_bytes(cls, data: bytes) -> Manifest:
        """ValueError where a byte differs from what was written, or it is of another format."""
        content = unsealed(data)
        if content.get("format") != FORMAT:
            raise ValueError(f"format {content.get('format')!r}, this version reads {FORMAT}")
        try:
            return cls._from_content(content)
        except (LookupError, TypeError, ValueError) as error:
            raise ValueError(f"no manifest: {error}") from None

    @classmethod
    def _from_content(cls, content: Mapping[str, Any]) -> Manifest:
        return cls(
            int(content["step"]),
            int(content["validated"]),
            Identity.from_json(content["identity"]),
            files_from_json(content["files"]),
            items_from_json(content["items"]),
        )


def check_cover(plan: ModelPlan, parts: Sequence[Part], dtype: str | None = None) -> None:
    """RunFailed unless the parts hold every element of every tensor and slot exactly once."""
    files = [file for part in parts for file in part.files]
    sizes = {file.name: file.bytes for file in files}
    if len(sizes) < len(files):
        raise RunFailed(f"checkpoint: {len(files)} files of {len(sizes)} names")
    by_name: dict[str, list[Item]] = {}
    for part in parts:
        for item in part.items:
            if item.offset + item.length > sizes.get(item.file, 0):
                raise RunFailed(
                    f"checkpoint: {item.fqn} ends at byte {item.offset + item.length} of "
                    f"{item.file}, which has {sizes.get(item.file, 0)}"
                )
            by_name.setdefault(item.fqn, []).append(item)
    dtypes = {item.dtype for items in by_name.values() for item in items} | {dtype} - {None}
    if len(dtypes) > 1:
        raise RunFailed(f"checkpoint: dtypes {', '.join(sorted(map(str, dtypes)))} at once")
    for tensor in plan.tensors:
        for slot in SLOTS:
            name = slot_name(tensor.name, slot)
            _check_tensor(name, tensor, by_name.pop(name, ()))
    if by_name:
        raise RunFailed(f"checkpoint: {min(by_name)} is no tensor of the model")


def span_of(item: Item, axis: int | None) -> tuple[int, int]:
    """Rows [start, stop) along the axis that is cut; an uncut tensor is one row."""
    if axis is None:
        return 0, 1
    return item.offsets[axis], item.offsets[axis] + item.sizes[axis]


def check_boxes(name: str, tensor: TensorCut, items: Iterable[Item]) -> None:
    """RunFailed unless all items are whole rows of this tensor."""
    for item in items:
        if item.shape != tensor.shape:
            raise RunFailed(
                f"checkpoint: {name} has the shape {list(item.shape)} there and "
                f"{list(tensor.shape)} in the model"
            )
        start, stop = span_of(item, tensor.axis)
        offsets, sizes = [0] * len(tensor.shape), list(tensor.shape)
        if tensor.axis is not None:
            offsets[tensor.axis], sizes[tensor.axis] = start, stop - start
        if [*item.offsets] != offsets or [*item.sizes] != sizes or not start < stop <= tensor.rows:
            raise RunFailed(
                f"checkpoint: {name} has a box of {list(item.sizes)} at {list(item.offsets)} "
                f"in {list(tensor.shape)}"
            )


def _check_tensor(name: str, tensor: TensorCut, items: Sequence[Item]) -> None:
    check_boxes(name, tensor, items)
    reached = 0
    ends = (tensor.rows, tensor.rows)
    for start, stop in (*sorted(span_of(item, tensor.axis) for item in items), ends):
        if start > reached:
            raise RunFailed(
                f"checkpoint: {name} lacks rows {reached} to {start - 1} of {tensor.rows}"
            )
        if start < reached:
            raise RunFailed(
                f"checkpoint: {name} has rows {start} to {min(stop, reached) - 1} of "
                f"{tensor.rows} twice"
            )
        reached = stop
