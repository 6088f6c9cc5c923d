"""What a run left in its folder, read back.

In: a folder with `steps.jsonl`, `events.jsonl`, `summary.json`. Out: plain dicts in file order.
A last line without its newline is a line still being written and is left out; anything else that
cannot be read is bad input.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nonuniform.errors import BadInput


@dataclass(frozen=True)
class RunRecords:
    """The files of one run; an absent events or summary file is an empty one."""

    folder: Path
    steps: tuple[dict[str, Any], ...]
    events: tuple[dict[str, Any], ...]
    summary: dict[str, Any]

    def of_kind(self, *kinds: str) -> tuple[dict[str, Any], ...]:
        """Those that name a step: only they have a place beside the steps."""
        return tuple(
            event
            for event in self.events
            if event.get("kind") in kinds and event.get("step") is not None
        )


def read_run(folder: Path) -> RunRecords:
    steps = folder / "steps.jsonl"
    if not steps.is_file():
        raise BadInput(f"{folder}: no steps.jsonl here, so this is not the folder of a run")
    events = folder / "events.jsonl"
    return RunRecords(
        folder=folder,
        steps=read_lines(steps, needs=("step", "loss")),
        events=read_lines(events) if events.is_file() else (),
        summary=_read_summary(folder / "summary.json"),
    )


def read_lines(path: Path, needs: tuple[str, ...] = ()) -> tuple[dict[str, Any], ...]:
    lines = path.read_text(encoding="utf-8").split("\n")
    out = []
    for number, line in enumerate(lines[:-1], start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except ValueError as error:
            raise BadInput(f"{path}: line {number} is not JSON ({error})") from None
        missing = [key for key in needs if not isinstance(record, dict) or key not in record]
        if missing:
            raise BadInput(f"{path}: line {number} has no {' and no '.join(missing)}")
        out.append(record)
    return tuple(out)


def _read_summary(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        summary = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise BadInput(f"{path}: not JSON ({error})") from None
    return summary if isinstance(summary, dict) else {}
