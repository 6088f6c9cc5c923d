"""The page docs/perf-validation.md, made from reports.

In: `Report`s, fits, and the slowdowns of hurt replicas. Out: Markdown. Does not know: how they came
to be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from nonuniform.perf.calibrate import FREE, Fit
from nonuniform.perf.catalog import load_intervals, load_machine, load_model
from nonuniform.perf.hardware import Constants
from nonuniform.perf.nonuniform import Band, Cut, slowdown_band, spans
from nonuniform.perf.parallelism import Parallel, Work
from nonuniform.perf.validate import Report, Summary, fit_generation, validate


@dataclass(frozen=True)
class Target:
    """What a table should reach. `part`: a name in `Report.groups`, or fitted, or held out."""

    table: str
    part: str
    mean: float
    largest: float = float("inf")
    within_10: float = 0.0


TARGETS = (
    Target("korthikanti", "fitted", 0.035, 0.07),
    Target("vtrain", "held out", 0.08, within_10=0.8),
    Target("h100-readme", "held out", 0.055),
    Target("bridge-llama", "H100 fp8", 0.12),
    Target("bridge-llama", "B200 fp8", 0.12),
    Target("bridge-llama", "GB200 fp8", 0.12),
    Target("bridge-llama", "GB200 mxfp8", 0.12),
    Target("bridge-llama", "all, one constant", 0.05),
)

HEAD = """# How far the model is from measurements

Made by `make perf-page`; do not edit. How tables are read:
[perf-conventions](perf-conventions.md). An error is predicted against measured seconds of a step;
a positive bias is too slow. *Held out*: the constants were fitted without this row and without all
rows of the same model size, in any table; of tables that nothing was fitted to, all rows. Rows that
count in no average are in brackets. *One constant*: the rate of products is set by one named row
per GPU and precision, which is then left out.
"""

NO_MEASUREMENT = """
No published table contains an uneven tensor-parallel group. The slowdowns below have no measurement
behind them: they are what the same formulas give for fewer ranks. The band (95%) is what the
constants leave open: fitted ones in their interval, assumed ones by a quarter, time between kernels
by two. It holds nothing else: not the shape of the model, not the software.
"""


def slowdowns() -> dict[tuple[int, Cut], Band]:
    """A 480 B model in groups of 32 on GB200, one of them at 30 and 28."""
    machine = load_machine("gb200_nvl72")
    work = Work(load_model("gpt_480b"), 4096, 8192)
    spread = Parallel(tensor=32, pipeline=4, data=64, cross_domain=False)
    intervals = spans(machine.constants, load_intervals(machine.gpu.generation))
    cuts: tuple[Cut, ...] = ("finer", "whole")
    return {
        (degree, cut): slowdown_band(machine, work, spread, degree, cut, intervals)
        for degree in (30, 28)
        for cut in cuts
    }


def generate(folder: Path) -> str:
    """The whole page."""
    fits = {generation: fit_generation(folder, generation) for generation in FREE}
    return page(validate(folder), fits, slowdowns())


def page(
    reports: Sequence[Report], fits: Mapping[str, Fit], bands: Mapping[tuple[int, Cut], Band]
) -> str:
    parts = [HEAD, _targets(reports), _overview(reports), _constants(fits), _hurt(bands)]
    parts += ["## Row by row\n", *(_rows(report) for report in reports)]
    return "\n".join(parts).rstrip() + "\n"


def summary_of(report: Report, part: str) -> Summary | None:
    if part in ("fitted", "held out"):
        return report.summary(held_out=part == "held out")
    return report.groups.get(part)


def reached(target: Target, summary: Summary) -> bool:
    return (
        summary.mean <= target.mean
        and summary.largest <= target.largest
        and summary.within_10 >= target.within_10
    )


def _targets(reports: Sequence[Report]) -> str:
    lines = ["## Targets\n", "| table | rows | target | found | |", "|---|---|---|---|---|"]
    tables = {report.table: report for report in reports}
    for target in TARGETS:
        summary = summary_of(tables[target.table], target.part) if target.table in tables else None
        if summary is None:
            continue
        wanted = f"mean {target.mean:.1%}"
        found = f"{summary.mean:.1%}"
        if target.largest < float("inf"):
            wanted, found = f"{wanted}, max {target.largest:.0%}", f"{found}, {summary.largest:.1%}"
        if target.within_10:
            wanted = f"{wanted}, {target.within_10:.0%} of rows within 10%"
            found = f"{found}, {summary.within_10:.0%}"
        mark = "reached" if reached(target, summary) else "**missed**"
        lines.append(f"| {target.table} | {target.part} | {wanted} | {found} | {mark} |")
    return "\n".join(lines) + "\n"


def _overview(reports: Sequence[Report]) -> str:
    lines = ["## By table\n"]
    lines += ["| table | part | rows | mean | max | bias | within 10% |"]
    lines += ["|---|---|---|---|---|---|---|"]
    for report in reports:
        parts = ["fitted", "held out"] if report.used else ["held out"]
        if report.table.startswith("bridge"):
            parts += list(report.groups)
        for part in parts:
            s = summary_of(report, part)
            if s is not None:
                lines.append(
                    f"| {report.table} | {part} | {s.rows} | {s.mean:.1%} | {s.largest:.1%} "
                    f"| {s.bias:+.1%} | {s.within_10:.0%} |"
                )
    return "\n".join(lines) + "\n"


def _constants(fits: Mapping[str, Fit]) -> str:
    lines = [
        "## Constants\n",
        "With 95% intervals where they are fitted; the others are assumed.\n",
    ]
    lines += [f"| constant | {' | '.join(fits)} |", "|---" * (len(fits) + 1) + "|"]
    for key in asdict(next(iter(fits.values())).constants):
        cells = [
            _constant(found.constants, key, found.intervals.get(key)) for found in fits.values()
        ]
        lines.append(f"| `{key}` | {' | '.join(cells)} |")
    lines.append("\nBlackwell takes those of Hopper: no table of it is fitted to.\n")
    return "\n".join(lines)


def _constant(constants: Constants, key: str, interval: tuple[float, float] | None) -> str:
    value = f"{getattr(constants, key):.3g}"
    return f"{value} [{interval[0]:.3g}, {interval[1]:.3g}]" if interval else f"{value} assumed"


def _hurt(bands: Mapping[tuple[int, Cut], Band]) -> str:
    lines = ["## Hurt replicas", NO_MEASUREMENT]
    lines += ["480 B parameters, 128 heads, length 8,192, groups of 32 GB200, one of them hurt.\n"]
    lines += ["| degree | heads | time against 32 | band |", "|---|---|---|---|"]
    for (degree, cut), band in bands.items():
        heads = "whole" if cut == "whole" else "cut finer (mean load)"
        lines.append(
            f"| {degree} | {heads} | {band.middle:.3f} | {band.low:.3f} to {band.high:.3f} |"
        )
    return "\n".join(lines) + "\n"


def _rows(report: Report) -> str:
    lines = [f"### {report.table}\n", "| row | measured | error | held out |", "|---|---|---|---|"]
    for entry in report.entries:
        label = entry.label if entry.counted else f"({entry.label})"
        held = "" if entry.held_out is None else f"{entry.held_out:+.1%}"
        lines.append(f"| {label} | {entry.measured_s:.4g} s | {entry.error:+.1%} | {held} |")
    return "\n".join(lines) + "\n"
