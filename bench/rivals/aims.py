"""What the figures of a bench shall be, and whether they are.

In: figures with their limits. Out: a line for each, and an exit status. Limits are for a quiet
machine; a noisy one is measured again before anything is concluded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console


@dataclass(frozen=True)
class Aim:
    """`value` shall be at most `limit`."""

    name: str
    value: float
    limit: float

    @property
    def met(self) -> bool:
        return self.value <= self.limit


def tell_aims(console: Console, aims: Sequence[Aim]) -> int:
    """0 if all are met, else 1."""
    for aim in aims:
        verdict = "met" if aim.met else "NOT met"
        console.print(f"aim: {aim.name}: {aim.value:.3f}, at most {aim.limit:g}: {verdict}")
    return 0 if all(aim.met for aim in aims) else 1
