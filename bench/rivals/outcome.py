"""What a failure cost, from the commits around it: the same arithmetic for every runtime.

In: commits as somebody outside the run saw them. Out: `Outcome`. What a GPU does is counted, not
timed: all processes share the cores of one machine, so a replica that is gone even makes the
others faster here. Knows nothing of how a runtime works.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from rivals.small_job import LIVING, SEQUENCES

WINDOW_S = 60.0
WARM_UP = 5  # the first steps allocate, connect and compile


@dataclass(frozen=True)
class Commit:
    """One committed step. `membership` changes with who takes part; `busy`: how many GPUs' worth
    of work that was (`busy_gpus`)."""

    seen_s: float
    step: int
    samples: int
    busy: float
    membership: int


@dataclass(frozen=True)
class Outcome:
    """Of one failure, with the lost GPU not coming back.

    `gap_s`: from the last commit before to the first new progress after. `pause_s`: that less a
    step of the processes that are left, since it is they who do the step again: where all share
    the same cores, those of a runtime that has given half of them up do it faster. `over_usual_s`:
    less a step of all instead. `pause_only_s`: the pause without what was done again beyond
    the step under way. `redone`: steps done again, the one under way at the failure
    included. The `lost` figures are of the `WINDOW_S` after the failure.
    """

    gap_s: float
    pause_s: float
    pause_only_s: float
    over_usual_s: float
    step_s: float
    step_after_s: float
    redone: int
    idle_gpus: float
    lost_gpu_s: float
    lost_share: float
    lost_samples: float
    measured_s: float


def busy_gpus(degrees: Sequence[int], shares: Sequence[int]) -> float:
    """A replica that has less to do for each of its GPUs waits for the others; so the work of a
    step is worth as many GPUs as would do it at the pace of the slowest replica."""
    pace = max(share / degree for degree, share in zip(degrees, shares, strict=True) if degree)
    return sum(shares) / pace


def outcome(commits: Sequence[Commit], dropped: int) -> Outcome:
    """`dropped`: attempts at a step that ended without a commit and without a later record."""
    last_old = max(i for i, c in enumerate(commits) if c.membership == commits[0].membership)
    before, rest = commits[: last_old + 1], commits[last_old + 1 :]
    repeated = [commit for commit in rest if commit.step <= before[-1].step]
    after = [commit for commit in rest if commit.step > before[-1].step]
    if len(before) < WARM_UP + 3 or len(after) < 3:
        raise ValueError(f"{len(before)} steps before, {len(after)} after: too few to compare")
    step_s, step_after_s = _step_s(before[WARM_UP:]), _step_s(after)
    gap_s = after[0].seen_s - before[-1].seen_s
    idle = LIVING - after[-1].busy
    missing = SEQUENCES - statistics.median(commit.samples for commit in after)
    stopped_s = min(max(0.0, gap_s - step_after_s), WINDOW_S)
    rest_s = WINDOW_S - stopped_s
    redone = len(repeated) + dropped
    return Outcome(
        gap_s=gap_s,
        pause_s=gap_s - step_after_s,
        pause_only_s=gap_s - max(1, redone) * step_after_s,
        over_usual_s=gap_s - step_s,
        step_s=step_s,
        step_after_s=step_after_s,
        redone=redone,
        idle_gpus=idle,
        lost_gpu_s=stopped_s * LIVING + rest_s * idle,
        lost_share=missing / SEQUENCES,
        lost_samples=missing * rest_s / step_after_s,
        measured_s=after[-1].seen_s - after[0].seen_s,
    )


def _step_s(commits: Sequence[Commit]) -> float:
    return statistics.median(b.seen_s - a.seen_s for a, b in itertools.pairwise(commits))
