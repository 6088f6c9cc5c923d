"""One number of the answer, with its interval, its unit, and how it is known.

In: values. Out: `Figure`, and the object of it in summary.json. DESIGN "Outside contract". Knows
nothing of what the numbers mean. An interval is what 95 % of the histories or constants leave open;
None where there is none to tell.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, get_args

from nonuniform.sim.outcome import Spread, spread

Kind = Literal["simulated", "published", "measured", "emulated", "computed", "assumed"]
UNITS = frozenset(
    {
        *("1", "GPU", "GPU-h", "GPU-h/year", "domains", "s", "h", "days", "weeks", "W", "degC"),
        *("money", "money/year", "money/GPU-h"),
    }
)


@dataclass(frozen=True)
class Figure:
    value: float | None
    unit: str
    kind: Kind
    source: str
    low: float | None = None
    high: float | None = None

    def __post_init__(self) -> None:
        assert self.unit in UNITS, self.unit
        assert self.kind in get_args(Kind), self.kind

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def mapped(self, change: Callable[[float], float], unit: str, source: str) -> Figure:
        """Through a function that rises or falls throughout: the interval goes the same way."""
        found = [None if v is None else change(v) for v in (self.value, self.low, self.high)]
        ends = sorted(v for v in found[1:] if v is not None and math.isfinite(v))
        value = found[0] if found[0] is not None and math.isfinite(found[0]) else None
        low, high = ends if len(ends) == 2 else (None, None)
        return replace(self, value=value, low=low, high=high, unit=unit, source=source)


def of_seeds(values: Sequence[float], unit: str, source: str) -> Figure:
    """The mean over histories, and where it lies with 95 % confidence."""
    return figure_of(spread(values), unit, source)


def figure_of(found: Spread, unit: str, source: str) -> Figure:
    low, high = found.ci95 or (None, None)
    return Figure(found.mean, unit, "simulated", source, low, high)


def nothing(unit: str, why: str) -> Figure:
    """A figure that could not be told."""
    return Figure(None, unit, "computed", why)
