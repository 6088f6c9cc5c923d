"""What a simulation understood and what came out of it, as tables that fit 80 columns.

In: plain dicts, those of `summary.json`. Out: tables on a console, without colours where that is no
terminal. DESIGN "Outside contract". Knows nothing of how the figures were made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from nonuniform.view.tables import as_written, plain_table, print_table

Summary = Mapping[str, Any]

ASSUMED = "*"


class SimulationView(Protocol):
    """Watches one simulation; is told, and never answers."""

    def understood(self, facts: Sequence[Mapping[str, Any]]) -> None: ...

    def progress(self, done: int, total: int) -> None: ...

    def came_out(self, summary: Summary) -> None: ...

    def swept(self, points: Sequence[Summary]) -> None: ...

    def close(self) -> None: ...


class QuietView:
    """Shows nothing."""

    def understood(self, facts: Sequence[Mapping[str, Any]]) -> None:
        pass

    def progress(self, done: int, total: int) -> None:
        pass

    def came_out(self, summary: Summary) -> None:
        pass

    def swept(self, points: Sequence[Summary]) -> None:
        pass

    def close(self) -> None:
        pass


class TableView:
    """Tables on `console`, as wide as the terminal; in a file nothing is cut. The bar is drawn on
    stderr, where that is a terminal."""

    def __init__(self, console: Console | None = None, bar: Console | None = None) -> None:
        self._console = console or Console()
        bar = bar or Console(stderr=True)
        columns = ("[progress.description]{task.description}", BarColumn(), MofNCompleteColumn())
        self._bar = Progress(
            *columns,
            TimeRemainingColumn(),
            console=bar,
            transient=True,
            disable=not bar.is_terminal,
        )
        self._task: TaskID | None = None

    def understood(self, facts: Sequence[Mapping[str, Any]]) -> None:
        print_understood(facts, self._console)

    def progress(self, done: int, total: int) -> None:
        if self._task is None:
            self._task = self._bar.add_task("seeds", total=total)
            self._bar.start()
        self._bar.update(self._task, completed=done, total=total)

    def came_out(self, summary: Summary) -> None:
        self.close()
        print_summary(summary, self._console)

    def swept(self, points: Sequence[Summary]) -> None:
        self.close()
        print_sweep(points, self._console)

    def close(self) -> None:
        """The terminal is as it was, also after an interrupt."""
        self._bar.stop()


def print_understood(facts: Sequence[Mapping[str, Any]], console: Console) -> None:
    """What the scenario means here: `about`, `text`, and `assumed` where nobody said so."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for _ in range(3):
        table.add_column(overflow="fold")
    before = ""
    for fact in facts:
        about = str(fact["about"])
        mark = Text(ASSUMED if fact.get("assumed") else " ", style="yellow")
        table.add_row(about if about != before else "", mark, Text(str(fact["text"])))
        before = about
    print_table(table, console, folds=True)
    if any(fact.get("assumed") for fact in facts):
        console.print(Text(f"{ASSUMED} assumed: the scenario does not say", style="dim"))
    console.print()


def print_summary(summary: Summary, console: Console) -> None:
    """The three tables of one scenario."""
    failed = summary["failed_share_mean"]
    console.print(Text(f"{_percent(failed, 3)} of the GPUs in domains are down in the mean\n"))
    policies = summary["policies"]
    for table in (throughput_table(policies), hours_table(policies), spares_table(policies)):
        print_table(table, console)
        console.print()


def throughput_table(policies: Mapping[str, Summary]) -> Table:
    """Shares of the healthy job; per owned GPU, spares and GPUs left over count as idle too."""
    table = plain_table(
        "throughput", ("policy", "mean", "worst", "per owned GPU", "mean loss (95 %)", "amplified")
    )
    for name, policy in policies.items():
        table.add_row(
            as_written(name),
            _percent(policy["throughput_mean"]),
            _percent(policy["throughput_worst"]),
            _percent(policy["throughput_owned"]),
            _interval(policy["loss_mean"], policy["loss_ci95"]),
            "-" if policy["amplification"] is None else f"{policy['amplification']:.1f} x",
        )
    return table


def hours_table(policies: Mapping[str, Summary]) -> Table:
    """Where the GPU-hours of the domains went that did no useful work."""
    reasons = ("failed", "idled", "transition", "redone", "spare")
    table = plain_table("GPU-hours lost, mean of the seeds", ("policy", *reasons))
    for name, policy in policies.items():
        table.add_row(
            as_written(name), *(f"{policy['gpu_hours'][reason]:,.0f}" for reason in reasons)
        )
    return table


def spares_table(policies: Mapping[str, Summary]) -> Table:
    """Spares that keep the batch whole for 50, 95, 100 % of the time; and how often it changes."""
    shares = ("p50", "p95", "p100")
    table = plain_table(
        "spare domains (and GPUs) that keep the batch whole",
        ("policy", "50 % of time", "95 %", "100 %", "transitions"),
    )
    for name, policy in policies.items():
        pairs = [
            (policy["spares_domains"][share], policy["spares_gpus"][share]) for share in shares
        ]
        cells = ["-" if a is None else f"{_count(a)} ({_count(b)})" for a, b in pairs]
        table.add_row(as_written(name), *cells, f"{policy['transitions_mean']:,.0f}")
    return table


def print_sweep(points: Sequence[Summary], console: Console) -> None:
    """One row per point and policy; a point's `set` holds the keys that were varied."""
    keys = list(points[0]["set"]) if points else []
    table = plain_table(
        "sweep",
        (
            *keys,
            "policy",
            "mean",
            "worst",
            "per owned GPU",
            "mean loss (95 %)",
            "amplified",
            "spares 95 %",
        ),
        left=len(keys) + 1,
    )
    for point in points:
        values = [as_written(point["set"][key]) for key in keys]
        for name, policy in point["policies"].items():
            table.add_row(
                *values,
                as_written(name),
                _percent(policy["throughput_mean"]),
                _percent(policy["throughput_worst"]),
                _percent(policy["throughput_owned"]),
                _interval(policy["loss_mean"], policy["loss_ci95"]),
                "-" if policy["amplification"] is None else f"{policy['amplification']:.1f} x",
                _count(policy["spares_domains"]["p95"]),
            )
    print_table(table, console)


def _percent(share: float, digits: int = 2) -> str:
    return f"{100 * share:.{digits}f} %"


def _interval(mean: float, interval: Sequence[float] | None) -> str:
    if interval is None:
        return _percent(mean, 3)
    half = (interval[1] - interval[0]) / 2
    return f"{100 * mean:.3f} ± {100 * half:.3f} %"


def _count(value: float | None) -> str:
    return "-" if value is None else f"{value:,.10g}"
