"""How long a step of pipeline stages takes: one forward, one backward, in turn, maybe interleaved.

In: seconds of each stage for a micro-batch. Out: seconds. The slowest stage sets the pace; filling
and draining pass all other stages once, and with v chunks per stage only 1/v of that is waited for.
With equal stages the bubble is (p - 1) / (m v). Does not know: what stages compute.
"""

from __future__ import annotations

from collections.abc import Sequence


def pipeline_s(stages: Sequence[float], micro_batches: int, interleave: int = 1) -> float:
    slowest = max(stages)
    return micro_batches * slowest + (sum(stages) - slowest) / interleave


def bubble_share(stages: int, micro_batches: int, interleave: int = 1) -> float:
    """Of the time that is computed, where stages are equal."""
    return (stages - 1) / (micro_batches * interleave)
