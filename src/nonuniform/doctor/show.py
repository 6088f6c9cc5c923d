"""The findings as a table for people and as plain values for scripts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from nonuniform.doctor.verdict import Check, Status, exit_status

_STYLE = {Status.OK: "green", Status.WARN: "yellow", Status.FAIL: "bold red"}


def to_json(checks: Sequence[Check]) -> dict[str, Any]:
    return {"ok": exit_status(checks) == 0, "checks": [asdict(check) for check in checks]}


def print_table(checks: Sequence[Check], console: Console | None = None) -> None:
    """Advice stands under what was found, so that the table also fits a narrow terminal."""
    console = console or Console()
    table = Table(box=None, pad_edge=False)
    for title in ("check", "", "found"):
        table.add_column(title)
    for check in checks:
        found = Text(check.found)
        if check.advice:
            found.append(f"\n-> {check.advice}", style=_STYLE[check.status])
        table.add_row(check.name, Text(check.status, style=_STYLE[check.status]), found)
    console.print(table)
    console.print(summary(checks))


def summary(checks: Sequence[Check]) -> str:
    count = Counter(check.status for check in checks)
    if count[Status.FAIL]:
        return f"{count[Status.FAIL]} failed: runs will not work here until that is mended"
    if count[Status.WARN]:
        return f"runs work here, {count[Status.WARN]} with a warning"
    return "everything a run needs is here"
