"""Records of starts and ends -> failures from start to end.

In: a frame of events (row, node, gpu, cause, time in hours, starts). Out: a frame of failures (row,
node, gpu, cause, start, end), where a null end was not seen and a null start lies before the log.
Knows nothing of where the events came from.

A start belongs to the next end of the same failure: of the same node, GPU and cause. Events of one
moment happened in the order in which the file has them, or in its reverse where the file runs
backwards. A second start of a failure that has not ended adds nothing, and an end needs a start:
both are wrong rows.
"""

from __future__ import annotations

import polars as pl

from nonuniform.cluster.sources.bad_rows import ROW, Findings, counted

SAME = ("node", "gpu", "cause")
FAILURE = (ROW, *SAME, "start", "end")


def pair(events: pl.DataFrame, findings: Findings, orphans_begin_before: bool) -> pl.DataFrame:
    """One row per failure, with the key of the row that started it."""
    events = in_order(events, "time", findings)
    events = findings.without(
        events,
        ~pl.struct(*SAME, "time", "starts").is_first_distinct(),
        "what an earlier row says already (duplicated)",
    )
    events = events.with_columns(before=pl.col("starts").shift(1).over(*SAME))
    events = findings.without(
        events, pl.col("starts") & pl.col("before"), "a start of what has not ended yet"
    )
    orphan = ~pl.col("starts") & ~pl.col("before").fill_null(value=False)
    # Only the first event of a failure can end what began before the log.
    early = orphan & pl.col("before").is_null() if orphans_begin_before else pl.lit(value=False)
    began_before = events.filter(early)
    if began_before.height:
        findings.assume(
            f"{counted(began_before.height, 'failure')} with an end and no start: "
            "since before the window"
        )
    events = findings.without(events, orphan & ~early, "an end without a start")
    return _joined(events.filter(~early), began_before)


def in_order(frame: pl.DataFrame, column: str, findings: Findings) -> pl.DataFrame:
    """By time, stable; says so where the file was not."""
    moments = frame[column]
    if moments.is_sorted():
        return frame
    if moments.is_sorted(descending=True):
        findings.assume("the rows run backwards in time; reversed")
        return frame.reverse()
    findings.assume("the rows are not in order of time; sorted")
    return frame.sort(column, maintain_order=True)


def _joined(events: pl.DataFrame, began_before: pl.DataFrame) -> pl.DataFrame:
    """Starts and ends alternate by now, so that the next event of a start is its end."""
    moved = events.with_columns(end=pl.col("time").shift(-1).over(*SAME))
    found = moved.filter("starts").rename({"time": "start"}).select(FAILURE)
    before = began_before.rename({"time": "end"}).with_columns(start=pl.lit(None, pl.Float64))
    return pl.concat([before.select(FAILURE), found]).sort(ROW)
