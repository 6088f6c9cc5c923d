"""A bar on a terminal, nothing elsewhere, for work that says how much of it is done.

In: what is counted. Out: a callable (done, all). Goes to stderr, so that what a command answers can
be read by a script.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


@contextlib.contextmanager
def counted(what: str) -> Iterator[Callable[[int, int], None]]:
    """(done, all) may be told as often as one likes."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task(what, total=None)

        def told(done: int, whole: int) -> None:
            bar.update(task, completed=done, total=whole)

        yield told
