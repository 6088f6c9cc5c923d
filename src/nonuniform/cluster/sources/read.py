"""A failure log -> a trace of a fleet.

In: a file, what a person says about it, and the fleet. Out: the trace, and a report of what was
assumed and left out; wrong rows end the reading unless they are to be skipped. DESIGN "Outside
contract". Knows nothing of jobs and policies.

One pass: the reader of the format gives failures by node name (row, node, gpu, cause, start, end,
in hours on the log's own clock); then they are finished, put on the fleet, and cut to the window.
"""

from __future__ import annotations

import math
from pathlib import Path

import polars as pl

from nonuniform.cluster.fleet import Fleet
from nonuniform.cluster.sources.bad_rows import Findings, LogReport, counted
from nonuniform.cluster.sources.clock import one_time
from nonuniform.cluster.sources.failures import failures_of
from nonuniform.cluster.sources.log_format import FileKind, LogFormat
from nonuniform.cluster.sources.numbering import need_of_expansion, on_the_fleet
from nonuniform.cluster.sources.slurm import Span, read_sacct, read_scontrol
from nonuniform.cluster.sources.table_log import (
    read_csv,
    read_json,
    read_json_lines,
    read_parquet,
)
from nonuniform.cluster.sources.xid import read_xid
from nonuniform.cluster.trace import Trace, make_trace
from nonuniform.errors import BadInput

_SUFFIXES: dict[str, FileKind] = {
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
}
_TABLES = {"csv": read_csv, "parquet": read_parquet, "jsonl": read_json_lines, "json": read_json}
_TEXTS = {"sacct": read_sacct, "scontrol": read_scontrol}


def read_log(
    path: Path | str, form: LogFormat, fleet: Fleet, skip_bad_rows: bool = False
) -> tuple[Trace, LogReport]:
    """The failures of the log's window on the fleet."""
    path = Path(path)
    findings = Findings(str(path))
    failures, span = _read(path, form, fleet, findings)
    if not findings.rows:
        raise BadInput(f"{path}: the file has no rows")
    failures = _finished(failures, form, findings)
    failures = on_the_fleet(failures, form, fleet, findings)
    findings.check(skip_bad_rows)
    start, end = _window(path, failures, span, form, findings)
    failures = _within(failures, start, end, findings)
    _say_overlaps(failures, findings)
    causes = sorted(failures["cause"].unique().to_list())
    trace = make_trace(
        end - start,
        failures["start"].to_numpy(),
        failures["end"].to_numpy(),
        failures["first_gpu"].to_numpy(),
        failures["gpus"].to_numpy(),
        _indices(failures["cause"], causes).to_numpy(),
        causes,
    )
    trace.check(fleet)
    return trace, findings.report(len(trace))


def _read(
    path: Path, form: LogFormat, fleet: Fleet, findings: Findings
) -> tuple[pl.DataFrame, Span]:
    kind = form.format or _SUFFIXES.get(path.suffix.lower(), "")
    if kind in _TABLES:
        need_of_expansion(form, names_gpus=bool(form.columns.gpu))
        return failures_of(_TABLES[kind](path, form, findings), form, findings), None
    if kind in _TEXTS:
        need_of_expansion(form, names_gpus=False)
        return _TEXTS[kind](path, form, findings)
    if kind == "xid":
        return read_xid(path, form, fleet.node, findings)
    raise BadInput(
        f'{path}: nothing says how to read "{path.suffix}" files: say format = "csv", "parquet", '
        '"jsonl", "json", "sacct", "scontrol" or "xid"'
    )


def _finished(failures: pl.DataFrame, form: LogFormat, findings: Findings) -> pl.DataFrame:
    """With an end in every row, infinite where it was not seen, and start < end."""
    open_ended = failures["end"].null_count()
    if open_ended:
        lasting = f"{form.repair_h:g} h each (repair_h)" if form.repair_h else "down for good"
        findings.assume(f"{counted(open_ended, 'failure')} without an end: {lasting}")
    repaired = pl.col("start") + form.repair_h if form.repair_h else pl.lit(math.inf)
    failures = failures.with_columns(pl.col("end").fill_null(repaired))
    instant = pl.col("start") >= pl.col("end")
    if form.instant_s == 0:
        return findings.without(failures, instant, "a start and an end at one time", wrong=False)
    instants = failures.filter(instant).height
    if instants:
        lasting = f"{form.instant_s:g} s each (instant_s)"
        findings.assume(f"{counted(instants, 'failure')} that ended as they began: {lasting}")
    longer = pl.col("start") + form.instant_s / 3600
    return failures.with_columns(pl.when(instant).then(longer).otherwise("end").alias("end"))


def _window(
    path: Path, failures: pl.DataFrame, span: Span, form: LogFormat, findings: Findings
) -> tuple[float, float]:
    times = pl.concat([failures["start"], failures["end"]]).drop_nulls()
    known = times.filter(times.is_finite())
    seen: list[float] = known.to_list()
    seen.extend(span or ())
    bounds, edges = [], []
    for key, given, pick in (("start", form.window.start, min), ("end", form.window.end, max)):
        if given is not None:
            bounds.append(one_time(given, f"window.{key}", form.clock))
            edges.append(f"{given}")
        elif seen:
            bounds.append(pick(seen))
            edges.append(f"the {_EDGE[key]} time of the log")
        else:
            raise BadInput(f"{path}: no time in the log says where the window {key}s")
    start, end = bounds
    if not start < end:
        raise BadInput(
            f"{path}: the window has no length (from {start:g} h to {end:g} h on the log's clock): "
            "say window.start and window.end"
        )
    findings.assume(f"the window is {(end - start) / 24:.2f} days: {edges[0]} to {edges[1]}")
    return start, end


_EDGE = {"start": "first", "end": "last"}


def _within(failures: pl.DataFrame, start: float, end: float, findings: Findings) -> pl.DataFrame:
    """Hours from the start of the window; what began before it begins at 0."""
    failures = findings.without(
        failures, pl.col("end") <= start, "an end before the window", wrong=False
    )
    failures = findings.without(
        failures, pl.col("start") >= end, "a start at or after the end of the window", wrong=False
    )
    early = failures.filter(pl.col("start") < start).height
    if early:
        findings.assume(f"{counted(early, 'failure')} from before the window: there from its start")
    return failures.with_columns(
        start=(pl.col("start").fill_null(start) - start).clip(lower_bound=0.0),
        end=pl.col("end") - start,
    )


def _say_overlaps(failures: pl.DataFrame, findings: Findings) -> None:
    ordered = failures.sort("start", "end")
    before = pl.col("end").cum_max().shift(1).over("first_gpu", "gpus")
    overlapping = ordered.filter(pl.col("start") < before).height
    if overlapping:
        findings.assume(
            f"{counted(overlapping, 'failure')} of GPUs that were down already: they count once"
        )


def _indices(causes: pl.Series, names: list[str]) -> pl.Series:
    if not names:
        return pl.Series([], dtype=pl.Int64)
    return causes.replace_strict(names, list(range(len(names))), return_dtype=pl.Int64)
