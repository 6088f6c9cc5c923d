"""The output folder of a simulation: summary.json, runs.parquet, trajectory.parquet.

In: rows of plain values, and the summary. Out: the files, each there as a whole or not at all; the
summary comes last, so whoever finds it finds all. DESIGN "Outside contract". Knows nothing of how
the figures were made.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from nonuniform.errors import BadInput
from nonuniform.whole_file import plain, replace_whole

SUMMARY, RUNS, TRAJECTORY = "summary.json", "runs.parquet", "trajectory.parquet"
FILES = (SUMMARY, RUNS, TRAJECTORY)
# A folder of `nonuniform train` has a summary too.
_OTHERS = ("steps.jsonl", "events.jsonl")


class ResultsFolder:
    """Made before anything is simulated, so that a wrong folder costs no time."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, path: Path, overwrite: bool = False) -> ResultsFolder:
        try:
            path.mkdir(parents=True, exist_ok=True)
            held = [name for name in (*FILES, *_OTHERS) if os.path.lexists(path / name)]
            if held and not overwrite:
                raise BadInput(
                    f"--out {path}: holds other results ({', '.join(held)}); choose another "
                    "folder, or replace them with --overwrite"
                )
            training = [name for name in held if name in _OTHERS]
            if training:
                raise BadInput(
                    f"--out {path}: holds a training run ({', '.join(training)}); choose another "
                    "folder"
                )
            for name in FILES:
                (path / name).unlink(missing_ok=True)
        except OSError as error:
            raise BadInput(f"--out {path}: {error.strerror}") from error
        return cls(path)

    def write_table(self, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """A Parquet file; the rows have the same keys."""
        frame = pl.DataFrame([_flat(row) for row in rows], infer_schema_length=None)
        replace_whole(self.path / name, frame.write_parquet)

    def close(self, summary: Mapping[str, Any]) -> None:
        text = json.dumps(plain(summary), indent=2, allow_nan=False) + "\n"
        replace_whole(self.path / SUMMARY, lambda part: part.write_text(text, encoding="utf-8"))


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """A table has no lists and tables in its cells, and no NaN where there is no value."""
    return {
        key: json.dumps(value) if isinstance(value, list | tuple | dict) else plain(value)
        for key, value in row.items()
    }
