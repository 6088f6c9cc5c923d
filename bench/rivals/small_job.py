"""The job that the rivals are compared on: 0.3 M parameters, two replicas of four GPUs.

Out: the text of JOB.toml, and the GPU that dies. So small that communication and bookkeeping, not
arithmetic, decide how long a step or a recovery takes.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

REPLICAS, DEGREE, SEQUENCES = 2, 4, 12
LIVING = REPLICAS * DEGREE - 1  # after the failure
# Not the last of its replica, so that the last one has to take over its place; and not the first,
# in which some runtimes host something that the others need.
VICTIM = "1/2"
STEPS_FOR_PACE = 15


@dataclass(frozen=True)
class Times:
    """`steps` in all; the GPU dies once `kill_after` steps are committed, and `phase` of the next
    step has passed."""

    steps: int = 60
    kill_after: int = 25
    checkpoint_every: int = 10
    phase: float = 0.5

    def wait_into_step(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """`rows` of the steps so far, as they were seen."""
        pairs = itertools.pairwise(row["seen_s"] for row in rows[-STEPS_FOR_PACE:])
        pace_s = statistics.median(later - earlier for earlier, later in pairs)
        time.sleep(max(0.0, rows[-1]["seen_s"] + self.phase * pace_s - time.monotonic()))


def small_job(steps: int, degree: int = DEGREE, more: str = "") -> str:
    return f"""\
[model]
layers = 2
hidden = 96
heads = 12
ffn = 336
vocab = 256
tied = true

[parallel]
replicas = {REPLICAS}
degree = {degree}
min_degree = 2

[batch]
sequences = {SEQUENCES}
length = 64

[run]
steps = {steps}
seed = 1
dtype = "float32"
device = "cpu"
{more}"""
