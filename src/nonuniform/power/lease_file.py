"""The record of what has to be restored: on disk as a whole, or as it was.

In: set points owed. Out: a small JSON file, forced to disk before anybody believes in it. It names
the actuator as well, as only the one that raised a set point can take it back. It is obeyed by
whoever may set power, so nobody else may be able to write it.

Does not know what a lease is.
"""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from nonuniform.errors import BadInput
from nonuniform.power.lease_messages import is_gpu_name
from nonuniform.power.lease_values import Owed

_VERSION = 1


@dataclass(frozen=True)
class LeaseFile:
    path: Path
    actuator: str

    def read(self) -> tuple[Owed, ...]:
        """A file that is not there owes nothing. One that cannot be understood ends the start:
        some GPU may be raised, and somebody has to look."""
        self._check_folder()
        try:
            with open(self.path, "rb") as file:
                self._check_owner(os.fstat(file.fileno()))
                content = json.loads(file.read())
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise BadInput(f"{self.path}: cannot be read: {error.strerror}") from None
        except (ValueError, RecursionError):
            raise BadInput(f"{self.path}: is no record of set points; look at the GPUs") from None
        try:
            owed = tuple(_owed(line) for line in _list(content["owed"]))
            version, actuator = content["version"], content["actuator"]
            if len({line.gpu for line in owed}) < len(owed):
                raise ValueError
        except (KeyError, TypeError, AttributeError, ValueError, OverflowError):
            raise BadInput(f"{self.path}: is no record of set points; look at the GPUs") from None
        if version != _VERSION:
            raise BadInput(f"{self.path}: version {version}, expected {_VERSION}")
        if owed and actuator != self.actuator:
            raise BadInput(
                f"{self.path}: {len(owed)} GPUs were raised with the actuator {actuator}, "
                f"which must restore them, not {self.actuator}"
            )
        return owed

    def write(self, owed: Sequence[Owed]) -> None:
        """On disk when this returns; OSError where it may not be."""
        lines = [asdict(line) for line in owed]
        content = {"version": _VERSION, "actuator": self.actuator, "owed": lines}
        part = self.path.with_name(f".{self.path.name}.new")
        part.unlink(missing_ok=True)
        handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(handle, "wb") as file:
            file.write(json.dumps(content, allow_nan=False, indent=1).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, self.path)
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def stamp(self) -> tuple[int, int, int] | None:
        """Another one than after a write: somebody has replaced, changed or removed the file."""
        try:
            found = os.stat(self.path)
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size

    def _check_folder(self) -> None:
        try:
            found = os.stat(self.path.parent)
        except OSError:
            return  # reading says so
        sticky = found.st_mode & stat.S_ISVTX
        others = found.st_mode & stat.S_IWOTH
        group = found.st_mode & stat.S_IWGRP and found.st_gid != os.getegid()
        if not _ours(found) or ((others or group) and not sticky):
            raise BadInput(f"{self.path}: others may write its folder, and so name GPUs to be set")

    def _check_owner(self, found: os.stat_result) -> None:
        if not _ours(found) or found.st_mode & stat.S_IWOTH:
            raise BadInput(f"{self.path}: others may write it, and so name GPUs to be set")


def _ours(found: os.stat_result) -> bool:
    return found.st_uid in (os.geteuid(), 0)


def _list(lines: Any) -> list[Any]:
    if not isinstance(lines, list):
        raise TypeError
    return lines


def _owed(line: Any) -> Owed:
    flow = line.get("flow_l_per_min")
    owed = Owed(
        line["gpu"],
        float(line["restore_w"]),
        float(line["set_point_w"]),
        None if flow is None else float(flow),
    )
    if owed.flow_l_per_min is not None and not 0 < owed.flow_l_per_min < math.inf:
        raise ValueError
    if not is_gpu_name(owed.gpu):
        raise ValueError
    if not (0 < owed.restore_w < math.inf and math.isfinite(owed.set_point_w)):
        raise ValueError
    return owed
