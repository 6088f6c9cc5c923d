"""The description that torch's own tools read, so that a checkpoint outlives this package.

In: what the parts consist of. Out: the bytes of torch.distributed.checkpoint's `.metadata`. It is
only written: it is a pickle, and our loader works from the manifest. Its own module because the
import takes a second, which only who publishes a checkpoint has to spend.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable

import torch
from torch.distributed.checkpoint.filesystem import CURRENT_DCP_VERSION, _StorageInfo
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)

from nonuniform.train.checkpoint.part import DTYPES, Item


def metadata_bytes(items: Iterable[Item]) -> bytes:
    """The content of `.metadata`."""
    return pickle.dumps(metadata_of(items))


def metadata_of(items: Iterable[Item]) -> Metadata:
    tensors: dict[str, TensorStorageMetadata] = {}
    storage: dict[MetadataIndex, _StorageInfo] = {}
    for item in items:
        about = tensors.setdefault(item.fqn, _about(item))
        offsets, sizes = torch.Size(item.offsets), torch.Size(item.sizes)
        index = MetadataIndex(item.fqn, offsets, len(about.chunks))
        about.chunks.append(ChunkStorageMetadata(offsets, sizes))
        storage[index] = _StorageInfo(item.file, item.offset, item.length)
    return Metadata(
        state_dict_metadata=dict(tensors),
        planner_data={fqn: (fqn,) for fqn in tensors},
        storage_data=storage,
        version=CURRENT_DCP_VERSION,
    )


def _about(item: Item) -> TensorStorageMetadata:
    return TensorStorageMetadata(
        TensorProperties(dtype=DTYPES[item.dtype]), torch.Size(item.shape), []
    )
