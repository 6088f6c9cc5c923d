"""Names of GPUs.

In: text "R/I" as people write it (replica R, local GPU index I). Out: `Gpu` values that sort by
number, so that 0/10 comes after 0/9. DESIGN "Outside contract". Knows nothing of health, degree or
labels: a GPU keeps its name for the whole run, also when its replica is dissolved.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from nonuniform.errors import BadInput

_NAME = re.compile(r"([0-9]+)/([0-9]+)")


@dataclass(frozen=True, order=True)
class Gpu:
    """One GPU: the replica it was launched in and its index there; a GPU that was launched as a
    spare has the number of replicas in its place."""

    replica: int
    index: int

    def __str__(self) -> str:
        return f"{self.replica}/{self.index}"


def parse_gpu(text: str) -> Gpu:
    """Read "R/I"."""
    match = _NAME.fullmatch(text)
    if match is None:
        raise BadInput(f'gpu "{text}": expected R/I, replica and local GPU index, such as 1/3')
    return Gpu(int(match[1]), int(match[2]))
