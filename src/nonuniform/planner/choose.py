"""Which answer is the best, and whether that is more than chance.

In: for each candidate what it is worth in each history, and how simple it is. Out: `Choice`. DESIGN
"Two arrows". Pure, and knows neither money nor failures: a worth is any number, more is better.

The best mean need not be the choice. A simpler candidate is taken in its place unless the better
one wins by more than the interval of the difference, seed by seed, and by more than `material`,
below which the model itself is not right. So the choice changes only where it matters.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nonuniform.planner.trials import Candidate
from nonuniform.sim.outcome import Spread, spread

Worths = Mapping[Candidate, Sequence[float]]


@dataclass(frozen=True)
class Choice:
    """`best`: of the means; `chosen`: what is recommended; `rival`: the best of another policy;
    `margin`: of the chosen over the rival. `stable`: so far ahead that other histories would not
    give another choice."""

    chosen: Candidate
    best: Candidate
    rival: Candidate | None
    margin: Spread
    stable: bool


def choose(worths: Worths, simplicity: Mapping[str, int], material: float) -> Choice:
    """Candidates of one policy differ by their spares: fewer are simpler."""
    means = {candidate: _mean(values) for candidate, values in worths.items()}
    ordered = sorted(worths, key=lambda c: (simplicity[c[0]], c[1]))
    best = max(ordered, key=lambda c: means[c])
    chosen = next(c for c in ordered if not beats(worths[best], worths[c], material))
    others = [c for c in ordered if c[0] != chosen[0]]
    rival = max(others, key=lambda c: means[c], default=None)
    if rival is None:
        return Choice(chosen, best, None, Spread(0.0, None, None), True)
    margin = difference(worths[chosen], worths[rival])
    return Choice(chosen, best, rival, margin, clear(worths[chosen], worths[rival], material))


def difference(ours: Sequence[float], theirs: Sequence[float]) -> Spread:
    """Seed by seed: both have lived through the same histories."""
    return spread([a - b for a, b in zip(ours, theirs, strict=True)])


def beats(ours: Sequence[float], theirs: Sequence[float], material: float) -> bool:
    """By more than chance and by more than is material."""
    gain = difference(ours, theirs)
    low = gain.ci95[0] if gain.ci95 else gain.mean
    return low > material


def clear(ours: Sequence[float], theirs: Sequence[float], material: float) -> bool:
    """Other histories, as many, would find the same: their difference is off by the root of two of
    its interval from this one, and must still be beyond its own."""
    gain = difference(ours, theirs)
    half = gain.mean - gain.ci95[0] if gain.ci95 else 0.0
    return gain.mean - (1 + math.sqrt(2)) * half > material


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
