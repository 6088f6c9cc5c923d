"""A curve drawn with characters.

In: one value per column (None: nothing there yet). Out: lines of text, top line first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

_BLOCKS = " ▁▂▃▄▅▆▇█"
_ASCII = " .,:-=+*#"


def resample(values: Sequence[float | None], columns: int) -> list[float | None]:
    """Mean of the values that fall in each column; with fewer values than columns they repeat."""
    count = len(values)
    out: list[float | None] = []
    for column in range(columns if count else 0):
        start = column * count // columns
        stop = max(start + 1, (column + 1) * count // columns)
        known = [v for v in values[start:stop] if v is not None and math.isfinite(v)]
        out.append(sum(known) / len(known) if known else None)
    return out


def sparkline(values: Sequence[float | None], rows: int = 1, ascii_only: bool = False) -> list[str]:
    """Filled columns; the smallest value is one eighth of a row, the largest is full."""
    marks = _ASCII if ascii_only else _BLOCKS
    known = [value for value in values if value is not None]
    if not known:
        return [" " * len(values)] * rows
    low, high = min(known), max(known)
    top = 8 * rows - 1
    levels = [
        0 if v is None else 1 + (round((v - low) / (high - low) * top) if high > low else top // 2)
        for v in values
    ]
    return [
        "".join(marks[min(8, max(0, level - 8 * below))] for level in levels)
        for below in range(rows - 1, -1, -1)
    ]
