"""How far the model is from what others measured, table by table.

In: the folder of published tables. Out: `Report`s as text, JSON or the page
docs/perf-validation.md. A row counts as *held out* when the constants were fitted without it and
without all rows that are alike. Does not know: how the fit works.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq

from nonuniform.perf.calibrate import FREE, TABLES, Fit, errors, fit, predict, start
from nonuniform.perf.hardware import Constants
from nonuniform.perf.tables import CHECK_TABLES, FIT_TABLES, Row, read_table

GENERATION = {"h100-readme": "hopper", "bridge-llama": "hopper", "bridge-moe": "hopper"}
ALSO_ALIKE = {"175B": "gpt3-175B"}  # the same model in both tables of Ampere


class Summary(NamedTuple):
    """Relative errors: `bias` above 0 is too slow."""

    rows: int
    mean: float
    largest: float
    bias: float
    within_10: float


class Entry(NamedTuple):
    """`error` with the constants of the catalog; `held_out` with those fitted without this row."""

    label: str
    group: str
    measured_s: float
    error: float
    held_out: float | None
    counted: bool


@dataclass(frozen=True)
class Report:
    """`used`: whether its rows took part in the fit. `groups`: summaries of parts of it."""

    table: str
    used: bool
    entries: tuple[Entry, ...]
    groups: dict[str, Summary]

    def summary(self, held_out: bool = False) -> Summary | None:
        """Of rows that count; None where no row was held out."""
        counted = [entry for entry in self.entries if entry.counted]
        found = [entry.held_out if held_out else entry.error for entry in counted]
        known = [error for error in found if error is not None]
        return summarise(known) if known else None

    def to_json(self) -> dict[str, object]:
        held = self.summary(held_out=True)
        whole = self.summary()
        return {
            "table": self.table,
            "used_for_fitting": self.used,
            "all": whole._asdict() if whole else None,
            "held_out": held._asdict() if held else None,
            "groups": {key: value._asdict() for key, value in self.groups.items()},
            "rows": [entry._asdict() for entry in self.entries],
        }


def summarise(found: Sequence[float]) -> Summary:
    e = np.asarray(found, dtype=float)
    size = np.abs(e)
    return Summary(
        len(e), float(size.mean()), float(size.max()), float(e.mean()), float((size <= 0.1).mean())
    )


def fit_generation(folder: Path, generation: str) -> Fit:
    """From its tables in fit/; Hopper takes one constant over from Ampere."""
    below = fit_generation(folder, "ampere").constants if generation == "hopper" else None
    return fit(_fit_rows(folder, generation), FREE[generation], start(generation, below))


def _fit_rows(folder: Path, generation: str) -> list[Row]:
    return [row for table in TABLES[generation] for row in read_table(folder, table)]


def validate(folder: Path) -> list[Report]:
    """All tables: those used for fitting, then those that were only looked at."""
    fits = {generation: fit_generation(folder, generation) for generation in FREE}
    reports = []
    for table in (*FIT_TABLES, *CHECK_TABLES):
        generation = GENERATION.get(table, "ampere")
        rows = read_table(folder, table)
        constants = fits[generation].constants
        found = errors(constants, rows)
        used = table in FIT_TABLES
        held = _held_out(folder, generation, fits, rows) if used else list(found)
        entries = tuple(
            Entry(row.label, row.alike, row.measured_s, float(error), float(out), row.counted)
            for row, error, out in zip(rows, found, held, strict=True)
        )
        groups = _groups(entries)
        if table.startswith("bridge"):
            groups |= one_constant(constants, rows)
        reports.append(Report(table, used, entries, groups))
    return reports


def _held_out(
    folder: Path, generation: str, fits: dict[str, Fit], rows: Sequence[Row]
) -> list[float]:
    """Each row by a fit that saw no row like it, in any table of the generation."""
    all_rows = _fit_rows(folder, generation)
    begin = start(generation, fits["ampere"].constants)
    answer: dict[str, Constants] = {}
    found = []
    for row in rows:
        if row.alike not in answer:
            rest = [other for other in all_rows if not _alike(other.alike, row.alike)]
            answer[row.alike] = fit(rest, FREE[generation], begin).constants
        found.append(float(errors(answer[row.alike], [row])[0]))
    return found


def _alike(first: str, second: str) -> bool:
    return first == second or second in (ALSO_ALIKE.get(first), *_keys_of(first))


def _keys_of(value: str) -> list[str]:
    return [key for key, other in ALSO_ALIKE.items() if other == value]


def _groups(entries: Sequence[Entry]) -> dict[str, Summary]:
    names = dict.fromkeys(entry.group for entry in entries if entry.counted)
    return {
        name: summarise([e.error for e in entries if e.group == name and e.counted])
        for name in names
    }


def one_constant(constants: Constants, rows: Sequence[Row]) -> dict[str, Summary]:
    """With the rate of products set by one named row per GPU and precision: the first one of the
    oldest container. The others, summarised."""
    found: dict[str, Summary] = {}
    kept: list[float] = []
    for name in dict.fromkeys(row.alike for row in rows):
        # Labels end with the container's version.
        alike = [row for row in rows if row.alike == name and row.counted]
        alike.sort(key=lambda row: row.label.rsplit(" ", 1)[-1])
        if len(alike) < 2:
            continue
        others = alike[1:]
        share = _share_for(constants, alike[0])
        rest = [float(e) for e in errors(replace(constants, gemm_share=share), others)]
        found[f"{name}, one constant"] = summarise(rest)
        kept += rest
    if kept:
        found["all, one constant"] = summarise(kept)
    return found


def _share_for(constants: Constants, row: Row) -> float:
    """The rate of products with which this row is exact, or the nearest."""

    def late(share: float) -> float:
        return float(predict(replace(constants, gemm_share=share), [row])[0]) - row.measured_s

    low, high = 0.2, 3.0
    if late(high) > 0:
        return high
    return low if late(low) < 0 else float(brentq(late, low, high, xtol=1e-6))


def report_text(reports: Sequence[Report]) -> str:
    """One line per table and part, for a terminal."""
    lines = [f"{'table':34} {'rows':>4} {'mean':>6} {'max':>6} {'bias':>6} {'in 10%':>6}"]
    for report in reports:
        for name, summary in _lines(report):
            lines.append(
                f"{name:34} {summary.rows:4d} {summary.mean:6.1%} {summary.largest:6.1%} "
                f"{summary.bias:+6.1%} {summary.within_10:6.0%}"
            )
    return "\n".join(lines)


def _lines(report: Report) -> list[tuple[str, Summary]]:
    lines = []
    whole, held = report.summary(), report.summary(held_out=True)
    if whole and report.used:
        lines.append((f"{report.table}, fitted", whole))
    if held:
        lines.append((f"{report.table}, held out", held))
    if report.table.startswith("bridge"):
        lines += [(f"  {name}", summary) for name, summary in report.groups.items()]
    return lines
