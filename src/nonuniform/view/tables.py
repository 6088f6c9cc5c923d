"""Tables on a terminal and in files.

In: a table of rich. Out: the table as the console can show it; in a file or a pipe as wide as it
needs to be, without colours and without the blanks that fill up a line.
"""

from __future__ import annotations

import io
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

# Text that is folded has no window to fit into there.
FILE_WIDTH = 100


def plain_table(title: str, columns: Sequence[str], left: int = 1) -> Table:
    """Without lines; the first `left` columns are text, the others numbers."""
    table = Table(title=title, box=None, pad_edge=False, padding=(0, 3, 0, 0))
    table.title_justify, table.title_style = "left", "bold"
    for position, column in enumerate(columns):
        table.add_column(as_written(column), justify="left" if position < left else "right")
    return table


def as_written(name: object) -> Text:
    """What a person has named, on one line: rich would read brackets and colons as orders."""
    return Text(str(name).replace("\n", "\\n"))


def print_table(table: Table, console: Console, folds: bool = False) -> None:
    """`folds`: its cells are sentences, which take a second line where they must."""
    if console.is_terminal:
        console.print(table)
        return
    needed = Console(width=10_000).measure(table).maximum
    file = io.StringIO()
    width = FILE_WIDTH if folds else max(FILE_WIDTH, needed)
    Console(width=width, file=file, color_system=None).print(table)
    lines = [line.rstrip() for line in file.getvalue().splitlines()]
    console.file.write("\n".join(lines) + "\n")
