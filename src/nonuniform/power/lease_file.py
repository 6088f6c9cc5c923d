"""The record of what has to be restored: on disk as a whole, or as it was.

In: set points owed. Out: a small JSON file, forced to disk before anybody believes in it. It names
the actuator as well, as only the one that raised a set point can take it back.

Does not know what a lease is.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from nonuniform.errors import BadInput
from nonuniform.power.lease_values import Owed

_VERSION = 1


@dataclass(frozen=True)
class LeaseFile:
    path: Path
    actuator: str

    def read(self) -> tuple[Owed, ...]:
        """A file that is not there owes nothing. One that cannot be understood ends the start:
        some GPU may be raised, and somebody has to look."""
        try:
            content = json.loads(self.path.read_bytes())
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise BadInput(f"{self.path}: cannot be read: {error.strerror}") from None
        except (ValueError, RecursionError):
            raise BadInput(f"{self.path}: is no record of set points; look at the GPUs") from None
        try:
            owed = tuple(_owed(line) for line in content["owed"])
            version, actuator = content["version"], content["actuator"]
        except (KeyError, TypeError, ValueError):
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
        with open(part, "wb") as file:
            file.write(json.dumps(content, allow_nan=False, indent=1).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, self.path)
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _owed(line: Any) -> Owed:
    owed = Owed(str(line["gpu"]), float(line["restore_w"]), float(line["set_point_w"]))
    if not (0 < owed.restore_w < math.inf and math.isfinite(owed.set_point_w)):
        raise ValueError
    return owed
