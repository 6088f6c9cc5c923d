"""How many sequences of the global batch each replica takes.

In: the speed of each replica (any common scale, such as degree / base degree) and the number of
sequences. Out: whole shares, at least one each, that minimise max(share / speed): the time of the
slowest replica. DESIGN "Generations". Knows nothing of GPUs, nor of what a sequence holds.

Sequences are dealt one after the other to the replica that would finish first with one more; of
equal ones the lowest index gets it. That rule is optimal, and of all optimal shares it also gives
the smallest second-largest time, and so on. Exact rationals are used, so ties are ties on every
machine.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from nonuniform.errors import BadInput


def batch_shares(speeds: Sequence[float], sequences: int) -> tuple[int, ...]:
    """The shares, in the order of `speeds`; their sum is `sequences`."""
    _check(speeds, sequences)
    exact = [Fraction(speed) for speed in speeds]
    shares = _whole_start(exact, sequences)
    left = sequences - sum(shares)
    # Fewer than one sequence per replica is left, so this stays cheap for a batch of any size.
    for _ in range(left):
        first = min(range(len(exact)), key=lambda i: ((shares[i] + 1) / exact[i], i))
        shares[first] += 1
    return tuple(shares)


def share_grain_cost(speeds: Sequence[float], shares: Sequence[int]) -> float:
    """How much longer the step is than with shares of any size: 0.03 is 3% longer."""
    if len(speeds) != len(shares) or not speeds:
        raise BadInput(f"{len(shares)} batch shares for {len(speeds)} replicas")
    slowest = max(share / speed for share, speed in zip(shares, speeds, strict=True))
    return slowest / (sum(shares) / math.fsum(speeds)) - 1.0


def _whole_start(speeds: Sequence[Fraction], sequences: int) -> list[int]:
    """What every replica gets in any case: the first steps of the dealing, all at once.

    A replica too slow for one whole sequence gets one all the same; that lowers the time that the
    others would share, which may make further replicas too slow.
    """
    forced: set[int] = set()
    while True:
        others = [i for i in range(len(speeds)) if i not in forced]
        if not others:
            return [1] * len(speeds)
        time = (sequences - len(forced)) / sum((speeds[i] for i in others), Fraction(0))
        slow = {i for i in others if time * speeds[i] < 1}
        if not slow:
            return [1 if i in forced else math.floor(time * v) for i, v in enumerate(speeds)]
        forced |= slow


def _check(speeds: Sequence[float], sequences: int) -> None:
    wrong = [speed for speed in speeds if not (math.isfinite(speed) and speed > 0)]
    if wrong:
        raise BadInput(f"replica speeds must be above 0 and finite, got {wrong[0]}")
    if not speeds:
        raise BadInput("no replica to share the batch between")
    if sequences < len(speeds):
        raise BadInput(
            f"[batch] sequences = {sequences} is fewer than the {len(speeds)} replicas, "
            "each of which needs at least one"
        )
