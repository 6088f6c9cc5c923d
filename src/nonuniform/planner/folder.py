"""The output folder of a plan: summary.json and the tables, each whole or not at all.

In: the summary, rows of tables. Out: files. DESIGN "Outside contract". New files are written beside
the old ones and take their places at the end, so that bad input costs nobody an old result.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from nonuniform.csv_file import csv_bytes
from nonuniform.errors import BadInput
from nonuniform.whole_file import plain, replace_whole

SUMMARY, TABLES = "summary.json", "tables"
_MINE = "plan"
_OTHERS = ("steps.jsonl", "events.jsonl", "runs.parquet", "trajectory.parquet")


class PlanFolder:
    """Touched only when all input has been read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def check(cls, path: Path, overwrite: bool) -> PlanFolder:
        """Refused before anything runs; nothing is changed yet."""
        if path.exists() and not path.is_dir():
            raise BadInput(f"--out {path}: is not a folder")
        others = [name for name in _OTHERS if os.path.lexists(path / name)]
        if others:
            raise BadInput(
                f"--out {path}: holds other results ({', '.join(others)}); choose another folder"
            )
        if os.path.lexists(path / SUMMARY) and not overwrite:
            raise BadInput(
                f"--out {path}: holds other results ({SUMMARY}); choose another folder, or replace "
                "them with --overwrite"
            )
        return cls(path)

    @property
    def has_summary(self) -> bool:
        return os.path.lexists(self.path / SUMMARY)

    def make(self) -> None:
        try:
            (self.path / TABLES).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadInput(f"--out {self.path}: {error.strerror}") from error

    def write_table(self, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """As CSV and as Parquet."""
        frame = pl.DataFrame([dict(row) for row in rows], infer_schema_length=None)
        table = self.path / TABLES / name
        replace_whole(
            table.with_name(f"{name}.csv"), lambda part: part.write_bytes(csv_bytes(frame))
        )
        replace_whole(table.with_name(f"{name}.parquet"), frame.write_parquet)

    def close(self, summary: Mapping[str, Any]) -> None:
        text = json.dumps(plain(summary), indent=1, allow_nan=False) + "\n"
        replace_whole(self.path / SUMMARY, lambda part: part.write_text(text, encoding="utf-8"))
