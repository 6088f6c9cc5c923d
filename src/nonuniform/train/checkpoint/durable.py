"""Files that are there as a whole or not at all, and that say themselves when they were damaged.

In: bytes, paths. Out: files and folders that outlive a power cut; JSON under a checksum.
DESIGN "The step is a transaction": what was said to be saved is saved. Knows nothing of tensors.
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_BLOCK = 1 << 20


def write_file(path: Path, data: bytes) -> None:
    """Write and force to disk; its name is durable once its folder is forced too."""
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def replace_file(path: Path, data: bytes) -> None:
    """The new content or the old one, never a mixture."""
    part = unfinished(path)
    try:
        write_file(part, data)
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def unfinished(path: Path) -> Path:
    """Where the new content is made before it takes the name; what a crash leaves of it."""
    return path.with_name(f".{path.name}.new")


def replace_link(link: Path, target: str) -> None:
    """Point a symbolic link elsewhere; it always points to one of the two."""
    new = unfinished(link)
    new.unlink(missing_ok=True)
    os.symlink(target, new)
    os.replace(new, link)
    sync_folder(link.parent)


def sync_folder(folder: Path) -> None:
    """Force the names in a folder to disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def crc32_of(path: Path) -> int:
    crc = 0
    with open(path, "rb") as file:
        while block := file.read(_BLOCK):
            crc = zlib.crc32(block, crc)
    return crc


def sealed(content: Mapping[str, Any]) -> bytes:
    """JSON that carries its own checksum, in the one form that `unsealed` accepts."""
    body = _plain(content)
    return _plain({"content": content, "sha256": hashlib.sha256(body).hexdigest()}) + b"\n"


def unsealed(data: bytes) -> dict[str, Any]:
    """The content, or ValueError where a byte is not what was written."""
    try:
        content = json.loads(data)["content"]
        whole = isinstance(content, dict) and sealed(content) == data
    except (ValueError, TypeError, LookupError, RecursionError):
        raise ValueError(f"{len(data)} bytes that are no sealed JSON") from None
    if not whole:
        raise ValueError(f"{len(data)} bytes that do not match their checksum")
    return dict(content)


def _plain(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
