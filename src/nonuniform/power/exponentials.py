"""Where a sum of decaying exponentials is zero, and where it turns.

In: terms (c, rate), meaning the sum of c * exp(-rate * t). Out: times. A sum of n such terms has at
most n - 1 zeros: divided by its slowest term, its derivative has one term fewer, and between the
zeros of that derivative it only rises or only falls. So no zero is missed, however close two are
to each other, and none is looked for by small steps.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

Terms = Sequence[tuple[float, float]]


def first_zero(terms: Terms, end_s: float) -> float:
    """The first zero after 0, up to `end_s`; infinite if there is none."""
    found = zeros(terms, end_s)
    return found[0] if found else math.inf


def turning_points(terms: Terms, end_s: float) -> list[float]:
    return zeros([(-c * rate, rate) for c, rate in terms if rate > 0], end_s)


def zeros(terms: Terms, end_s: float) -> list[float]:
    """All changes of sign in (0, end_s], in order."""
    kept = sorted(((c, rate) for c, rate in terms if c != 0), key=lambda term: term[1])
    if len(kept) < 2:
        return []
    slowest = kept[0][1]
    shifted = [(c, rate - slowest) for c, rate in kept]

    def value(t_s: float) -> float:
        return math.fsum(c * math.exp(-rate * t_s) for c, rate in shifted)

    rest = [(-c * rate, rate) for c, rate in shifted if rate > 0]
    marks = [0.0, *zeros(rest, end_s), end_s]
    found = []
    for left, right in itertools.pairwise(marks):
        at_left, at_right = value(left), value(right)
        if at_right == 0:
            found.append(right)
        elif at_left * at_right < 0:
            found.append(_halved(value, left, right, at_left))
    return found


def _halved(value: Callable[[float], float], left: float, right: float, at_left: float) -> float:
    """By halves: where a sum has nearly died out, methods that trust its slope do not end."""
    for _ in range(100):
        middle = (left + right) / 2
        if not left < middle < right or right - left < 1e-13 * right:
            break
        if (value(middle) < 0) == (at_left < 0):
            left = middle
        else:
            right = middle
    return (left + right) / 2
