"""The files of a run's folder, whatever state they are in.

In: a folder that a run has written, still writes, or was torn out of. Out: rows as plain dicts,
and what could not be read. A last line without its end is still being written and is left out;
any other line that is no JSON object is left out and told. Knows nothing of what the rows mean.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nonuniform.errors import BadInput

STEPS, EVENTS, SUMMARY = "steps.jsonl", "events.jsonl", "summary.json"
Row = dict[str, Any]


@dataclass(frozen=True)
class RunFiles:
    """`trouble`: (file, what is wrong with it); an absent file is an empty one."""

    steps: tuple[Row, ...]
    events: tuple[Row, ...]
    summary: Row | None
    trouble: tuple[tuple[str, str], ...] = ()


def read_files(folder: Path) -> RunFiles:
    """BadInput where there is no run at all."""
    if not folder.is_dir():
        raise BadInput(f"{folder}: no such folder")
    if not (folder / STEPS).is_file() and not (folder / EVENTS).is_file():
        raise BadInput(f"{folder}: holds neither {STEPS} nor {EVENTS}, so no run was written here")
    trouble: list[tuple[str, str]] = []
    steps, events = (_rows(folder / name, trouble) for name in (STEPS, EVENTS))
    return RunFiles(steps, events, _summary(folder / SUMMARY, trouble), tuple(trouble))


def parse_row(line: bytes) -> Row | None:
    """The object that a line holds; None where it holds none."""
    try:
        row = json.loads(line.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def _rows(path: Path, trouble: list[tuple[str, str]]) -> tuple[Row, ...]:
    try:
        *lines, _ = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        trouble.append((path.name, "missing"))
        return ()
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from None
    rows, broken = [], []
    for number, line in enumerate(lines, start=1):
        row = parse_row(line)
        if row is not None:
            rows.append(row)
        elif line.strip():
            broken.append(number)
    if broken:
        shown = ", ".join(map(str, broken[:5])) + (", ..." if len(broken) > 5 else "")
        trouble.append((path.name, shown))
    return tuple(rows)


def _summary(path: Path, trouble: list[tuple[str, str]]) -> Row | None:
    try:
        row = parse_row(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from None
    if row is None:
        trouble.append((path.name, "1"))
    return row


def number(value: Any) -> float | None:
    """A finite number, or None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        value = float(value)
    except OverflowError:
        return None
    return value if math.isfinite(value) else None


def whole(value: Any, otherwise: int = 0) -> int:
    found = number(value)
    return otherwise if found is None else int(found)


def whole_or_none(value: Any) -> int | None:
    """None also for what no table holds exactly."""
    found = number(value)
    return None if found is None or abs(found) > 2**53 else int(found)


def numbers(value: Any) -> tuple[float, ...]:
    """A list of numbers; what is none of them counts as 0."""
    if not isinstance(value, list):
        return ()
    return tuple(number(item) or 0.0 for item in value)


def text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)
