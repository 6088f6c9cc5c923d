"""A table with named columns -> failures of nodes or GPUs, in hours.

In: the frame that `table_log.py` read and what its columns mean. Out: a frame of failures (row,
node, gpu, cause, start, end) with null where nothing was written: no node, no GPU, an end that
nobody saw. Knows nothing of the fleet.
"""

from __future__ import annotations

import polars as pl

from nonuniform.cluster.sources.bad_rows import ROW, Findings
from nonuniform.cluster.sources.clock import not_a_time, read_numbers, read_times
from nonuniform.cluster.sources.log_format import HOURS, Clock, LogFormat
from nonuniform.cluster.sources.pairing import FAILURE, in_order, pair

NO_CAUSE = "unknown"


def failures_of(table: pl.DataFrame, form: LogFormat, findings: Findings) -> pl.DataFrame:
    """From a table with a row per failure, or per event."""
    columns = form.columns
    frame = table.select(
        ROW,
        _text(columns.node).alias("node"),
        _text(columns.gpu).alias("gpu_text"),
        _cause(columns.cause).alias("cause"),
    )
    frame = frame.with_columns(gpu=read_numbers(frame["gpu_text"]))
    if columns.time:
        frame = frame.with_columns(table[columns.event].cast(pl.String).alias("event"))
        frame = _timed(frame, table[columns.time], "time", form.clock, findings)
    else:
        frame = _timed(frame, table[columns.start], "start", form.clock, findings)
        frame = _ended(frame, table, form, findings)
    frame = _refused(frame, form, findings)
    if columns.time:
        return _paired(frame, form, findings)
    frame = in_order(frame, "start", findings).select(FAILURE)
    return findings.without(
        frame,
        ~pl.struct(*FAILURE[1:]).is_first_distinct(),
        "what an earlier row says already (duplicated)",
    )


def _text(name: str) -> pl.Expr:
    if not name:
        return pl.lit(None, pl.String)
    text = pl.col(name).cast(pl.String).str.strip_chars()
    return pl.when(text != "").then(text)


def _cause(names: tuple[str, ...]) -> pl.Expr:
    if not names:
        return pl.lit(NO_CAUSE)
    return pl.concat_str([_text(name).fill_null(NO_CAUSE) for name in names], separator=" / ")


def _timed(
    frame: pl.DataFrame, values: pl.Series, name: str, clock: Clock, findings: Findings
) -> pl.DataFrame:
    """With the column `name` in hours, and `name`_text with what stood there."""
    read = read_times(values, clock)
    for text in read.assumed(clock):
        findings.assume(text)
    return frame.with_columns(read.hours.alias(name), _as_text(values).alias(f"{name}_text"))


def _as_text(values: pl.Series) -> pl.Series:
    texts = values.cast(pl.String).str.strip_chars()
    return texts.set(texts == "", None)


def _ended(
    frame: pl.DataFrame, table: pl.DataFrame, form: LogFormat, findings: Findings
) -> pl.DataFrame:
    columns = form.columns
    if columns.duration:
        lasting = read_numbers(table[columns.duration]) * HOURS.get(form.clock.unit, 1 / 3600)
        if form.clock.unit == "iso":
            findings.assume(f'column "{columns.duration}" is in seconds')
        text = _as_text(table[columns.duration]).alias("end_text")
        return frame.with_columns((frame["start"] + lasting).alias("end"), text)
    if columns.end:
        return _timed(frame, table[columns.end], "end", form.clock, findings)
    return frame.with_columns(end=pl.lit(None, pl.Float64), end_text=pl.lit(None, pl.String))


def _refused(frame: pl.DataFrame, form: LogFormat, findings: Findings) -> pl.DataFrame:
    """Without the rows that say too little, or nothing that can be read."""
    node, gpu = form.columns.node, form.columns.gpu
    if node:
        frame = findings.without(frame, pl.col("node").is_null(), f'nothing in column "{node}"')
    elif gpu:
        frame = findings.without(frame, pl.col("gpu_text").is_null(), f'nothing in column "{gpu}"')
    no_gpu = pl.col("gpu_text").is_not_null() & (
        pl.col("gpu").is_null() | (pl.col("gpu") < 0) | (pl.col("gpu") % 1 != 0)
    )
    frame = findings.without(frame, no_gpu, "a bad GPU (not a whole number from 0)", "gpu_text")
    frame = frame.with_columns(pl.col("gpu").cast(pl.Int64))
    first = "time" if form.columns.time else "start"
    frame = findings.without(
        frame, pl.col(first).is_null(), not_a_time(form.clock), f"{first}_text"
    )
    if form.columns.time:
        return frame
    bad_end = pl.col("end").is_null() & pl.col("end_text").is_not_null()
    kind = "a bad duration" if form.columns.duration else not_a_time(form.clock)
    frame = findings.without(frame, bad_end, kind, "end_text")
    return findings.without(
        frame, pl.col("end") < pl.col("start"), "a negative duration", "end_text"
    )


def _paired(frame: pl.DataFrame, form: LogFormat, findings: Findings) -> pl.DataFrame:
    word = pl.col("event").str.strip_chars()
    starts, ends = form.columns.starts, form.columns.ends
    frame = findings.without(
        frame,
        ~word.is_in([starts, ends]).fill_null(value=False),
        f'an event that is neither "{starts}" nor "{ends}"',
        "event",
    )
    events = frame.with_columns(starts=word == starts)
    return pair(events, findings, form.end_without_start == "since-window")
