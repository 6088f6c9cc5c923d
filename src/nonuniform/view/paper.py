"""The paper's figures beside ours, as tables.

In: rows with `section`, `what`, `paper`, `ours`, `assumption`. Out: one table for each section.
Knows nothing of how the figures were made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby

from rich.console import Console
from rich.text import Text

from nonuniform.view.tables import plain_table, print_table


def print_paper(rows: Iterable[Mapping[str, str]], console: Console | None = None) -> None:
    console = console or Console()
    columns = ("what", "paper", "ours", "assumption")
    for section, members in groupby(rows, key=lambda row: row["section"]):
        table = plain_table(section, columns, left=len(columns))
        for row in members:
            table.add_row(*(Text(row[column]) for column in columns))
        print_table(table, console, folds=True)
        console.print()
