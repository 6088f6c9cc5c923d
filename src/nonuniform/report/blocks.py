"""The two blocks that pages consist of: a table, and a chart with its data behind it.

In: frozen values of what is to be shown. Out: they go into a template as they are. A chart always
comes with words for those who cannot see it and with a table of its data; plotly's part is a
plain dict, in which words in two languages stand as `{"@en": ..., "@ja": ...}` until the page's
script picks one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nonuniform.report.said import Said

# Rows of the table behind a chart; the rest is in the CSV files.
ROWS_SHOWN = 60


@dataclass(frozen=True)
class Table:
    """`numeric` tells which columns are numbers; `marked` which rows stand out."""

    caption: Said
    head: tuple[Said, ...]
    rows: tuple[tuple[Said, ...], ...]
    numeric: tuple[bool, ...] = ()
    marked: frozenset[int] = frozenset()

    def is_numeric(self, column: int) -> bool:
        return column < len(self.numeric) and self.numeric[column]


@dataclass(frozen=True)
class Chart:
    """`name` is its id on the page; `spec` is `{"data": [...], "layout": {...}}`."""

    name: str
    title: Said
    alt: Said
    spec: dict[str, Any]
    table: Table
    kind: Said
    note: Said | None = None


def every_nth(count: int, shown: int = ROWS_SHOWN) -> range:
    """Which of `count` points a table shows: the first, and then one in so many."""
    return range(0, count, max(1, -(-count // shown)))
