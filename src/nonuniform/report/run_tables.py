"""The numbers of a run as tables for a spreadsheet, and as text for a mail.

In: `RunData`, or the tables of a page. Out: frames, CSV and Parquet files, Markdown. Knows
nothing of charts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from nonuniform.report.blocks import Table
from nonuniform.report.run_data import RunData
from nonuniform.report.run_page import Content
from nonuniform.report.said import Language

# A spreadsheet takes a cell that begins like that for a formula.


def run_frames(data: RunData) -> dict[str, pl.DataFrame]:
    """By name of the file; each with at least its columns."""
    return {
        "steps": _steps(data),
        "events": _events(data),
        "recoveries": _frame(
            [
                {**vars(one), "lost": " ".join(one.lost), "joined": " ".join(one.joined)}
                for one in data.recoveries
            ],
            ("time_s", "step", "lost", "joined"),
        ),
        "goodput": _frame(
            [{"reason": reason, "seconds": s} for reason, s in data.goodput.seconds.items()], ()
        ),
        "gpus": _frame(
            [{"gpu": line.gpu, **vars(span)} for line in data.gpus for span in line.spans],
            ("gpu", "start_s", "end_s", "state"),
        ),
    }


def comparison_frame(numbers: Mapping[str, Any]) -> pl.DataFrame:
    """One row for each run: the single numbers of its page, and its seconds by reason."""
    rows = []
    for run in numbers["runs"]:
        row = {"run": run["name"], "status": run["status"]}
        row |= {key: one["value"] for key, one in run.items() if _is_figure(one)}
        row |= {f"{key}_s": one["seconds"]["value"] for key, one in run["goodput"].items()}
        rows.append(row)
    return _frame(rows, ("run",))


def _is_figure(value: Any) -> bool:
    return isinstance(value, Mapping) and "unit" in value


def _steps(data: RunData) -> pl.DataFrame:
    rows = []
    for point in data.steps:
        row = {
            key: value
            for key, value in vars(point).items()
            if key not in ("degrees", "shares", "power_w")
        }
        columns = (("degree", point.degrees), ("share", point.shares), ("power_w", point.power_w))
        for name, values in columns:
            row |= {f"{name}_{replica}": value for replica, value in enumerate(values)}
        rows.append(row)
    return _frame(rows, ("step", "time_s", "loss"))


def _events(data: RunData) -> pl.DataFrame:
    names = ("time_s", "kind", "gpu", "replica", "step", "generation", "reason")
    return _frame([{name: getattr(event, name) for name in names} for event in data.events], names)


def _frame(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> pl.DataFrame:
    if not rows:
        return pl.DataFrame(schema=dict.fromkeys(columns, pl.String))
    return pl.DataFrame(list(rows), infer_schema_length=None)


def content_markdown(content: Content, lang: Language) -> str:
    """The answer, the tiles and the tables of a page, without its charts."""
    lines = [f"# {_inline(content.title.text(lang))}", ""]
    lines += [f"> {_inline(notice.text(lang))}\n" for notice in content.notices]
    lines += [_inline(" ".join(sentence.text(lang) for sentence in content.says)), ""]
    lines += [
        f"- {_inline(name.text(lang))}: {_inline(figure.text(lang))}"
        for name, figure in content.tiles
    ]
    tables = [*content.lead, *(chart.table for chart in content.charts if chart.name == "goodput")]
    for table in [*tables, *content.tables[:1]]:
        lines += ["", *table_markdown(table, lang)]
    return "\n".join(lines) + "\n"


def table_markdown(table: Table, lang: Language) -> list[str]:
    marks = ["---:" if table.is_numeric(i) else "---" for i in range(len(table.head))]
    rows = [[_inline(cell.text(lang)) for cell in row] for row in (table.head, *table.rows)]
    head, *body = [f"| {' | '.join(row)} |" for row in rows]
    return [f"**{_inline(table.caption.text(lang))}**", "", head, f"|{'|'.join(marks)}|", *body]


def _inline(words: str) -> str:
    """Names are shown as they are: no markup, no line of their own."""
    out = " ".join(words.split())
    for character in "\\`*_[]<>|":
        out = out.replace(character, f"\\{character}")
    return out
