"""The output folder of a run: steps.jsonl, events.jsonl and summary.json.

In: one record per committed step, one per event, and a summary at the end. Out: the files of the
DESIGN "Outside contract", one JSON object per line, handed to the system as soon as it is logged.
A step is logged once: the next record must carry the next number. Knows nothing of how a step is
committed; the caller writes from the commit record.
"""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from nonuniform.errors import BadInput, RunFailed
from nonuniform.train.row_log import RowLog

STEPS, EVENTS, SUMMARY = "steps.jsonl", "events.jsonl", "summary.json"
LOGS = "workers"  # a folder: what each worker prints, by GPU
_PART = SUMMARY + ".part"


@dataclass(frozen=True)
class StepRecord:
    """One committed step; `extra` adds keys and may not replace one."""

    step: int
    loss: float
    tokens: int
    samples: int
    grad_norm: float
    generation: int
    degrees: tuple[int, ...]
    batch_shares: tuple[int, ...]
    time_s: float
    sample_ids: tuple[int, ...] | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The keys of the contract; `sample_ids` only where they are logged."""
        row = _row(self, self.extra)
        if self.sample_ids is None:
            del row["sample_ids"]
        return row


@dataclass(frozen=True)
class Event:
    """Something that happened; what does not apply is None.

    A recovery carries detect_s, regroup_s, transfer_s, redo_s and transfer_bytes in `extra`.
    """

    time_s: float
    kind: str
    gpu: str | None = None
    replica: int | None = None
    step: int | None = None
    generation: int | None = None
    reason: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return _row(self, self.extra)


@dataclass(frozen=True)
class Past:
    """What the log says of a run that goes on: `counts` of events by kind, losses of the steps that
    stay, how many steps were taken out, how long the run has taken so far, and how many lines of
    each file cannot be read."""

    counts: Mapping[str, int] = field(default_factory=dict)
    loss_first: float | None = None
    loss_last: float | None = None
    validation_loss: float | None = None
    last_step: int = 0
    steps_lost: int = 0
    time_s: float = 0.0
    unreadable: Mapping[str, int] = field(default_factory=dict)


class RunFolder:
    """The open files of one run; made by `create` or `resume`. `past`: of the run so far."""

    past: Past = Past()

    def __init__(self, path: Path, steps: RowLog, events: RowLog, last_step: int) -> None:
        self.path = path
        self._steps = steps
        self._events = events
        self._last_step = last_step
        self._closed = False

    @classmethod
    def create(cls, path: Path, overwrite: bool = False, last_step: int = 0) -> RunFolder:
        """Make the folder; `last_step` is the step that a run goes on from without its log."""
        path = Path(path)
        try:
            path.mkdir(parents=True, exist_ok=True)
            held = [name for name in (STEPS, EVENTS, SUMMARY) if os.path.lexists(path / name)]
            if held and not overwrite:
                raise BadInput(
                    f"--out {path}: holds another run ({', '.join(held)}); choose another folder, "
                    "go on with it by --resume, or replace it with --overwrite"
                )
            for name in (STEPS, EVENTS, SUMMARY, _PART):
                (path / name).unlink(missing_ok=True)
            (path / LOGS).mkdir(exist_ok=True)
            for log in (path / LOGS).glob("*.log"):
                log.unlink()
            return cls(path, RowLog(path / STEPS), RowLog(path / EVENTS), last_step)
        except OSError as error:
            raise BadInput(f"--out {path}: {error.strerror}") from error

    @classmethod
    def resume(cls, path: Path, step: int) -> RunFolder:
        """Go on with the run in the folder after `step`: later steps are taken out of the log, and
        the summary, which was that of its end. Ask `last_step` for what the log still has."""
        path = Path(path)
        try:
            path.mkdir(parents=True, exist_ok=True)
            (path / LOGS).mkdir(exist_ok=True)
            for name in (SUMMARY, _PART):
                (path / name).unlink(missing_ok=True)
            steps, events = (RowLog(path / name, resume=True) for name in (STEPS, EVENTS))
            folder = cls(path, steps, events, step)
            folder.past = _past(steps, events, step)
            folder._cut(step)
            folder._last_step = folder.past.last_step
            return folder
        except OSError as error:
            raise BadInput(f"--out {path}: {error.strerror}") from error

    def rewind(self, step: int) -> float | None:
        """Take all steps after `step` out of the log; the loss of the last one that stays."""
        last = self._cut(step)
        self._last_step = step
        return _number(last.get("loss")) if last else None

    def validation_loss(self, step: int) -> float | None:
        """Of the last check that still counts when the run goes on after `step`."""
        return _validation_loss(self._events.read()[0], step)

    def _cut(self, step: int) -> dict[str, Any] | None:
        """The last row that the log has then."""
        return self._steps.cut(lambda row: not _beyond(row, step))

    @property
    def last_time_s(self) -> float:
        """How long the run has taken before it goes on here."""
        return self.past.time_s

    @property
    def trouble(self) -> str:
        """What the disk says that does not take a line; the line is kept for later."""
        return self._steps.trouble or self._events.trouble

    @property
    def logs(self) -> Path:
        """Where processes write what they print; absolute."""
        return self.path.resolve() / LOGS

    @property
    def last_step(self) -> int:
        """The last step that was logged."""
        return self._last_step

    def log_step(self, record: StepRecord | Mapping[str, Any]) -> None:
        row = record.to_json() if isinstance(record, StepRecord) else dict(record)
        if row["step"] != self._last_step + 1:
            raise RunFailed(
                f"{STEPS}: step {row['step']} after step {self._last_step}, "
                f"expected {self._last_step + 1}"
            )
        self._append(self._steps, row)
        self._last_step += 1

    def skip_to(self, step: int) -> None:
        """The log lacks some steps for good: go on after `step`."""
        self._last_step = step

    def log_event(self, event: Event | Mapping[str, Any]) -> None:
        self._append(self._events, event.to_json() if isinstance(event, Event) else dict(event))

    def close(self, summary: Mapping[str, Any]) -> None:
        """Write the summary, once: it is there as a whole or not at all."""
        if self._closed:
            raise RunFailed(f"{self.path / SUMMARY}: written twice")
        text = json.dumps(_plain(summary), indent=2, allow_nan=False) + "\n"
        self._closed = True
        try:
            for log in (self._steps, self._events):
                log.close()
            _replace_file(self.path / SUMMARY, self.path / _PART, text)
        except OSError as error:
            raise RunFailed(f"{self.path / SUMMARY}: {error.strerror}") from error

    def _append(self, log: RowLog, row: Mapping[str, Any]) -> None:
        line = json.dumps(_plain(row), allow_nan=False)
        if self._closed:
            raise RunFailed(f"{log.path}: logged after the summary: {line}")
        log.append(line)
        for one in (self._steps, self._events):  # of the other one nothing may come for hours
            one.retry()


def _past(steps: RowLog, events: RowLog, step: int) -> Past:
    """Read before anything is cut: also what comes out again has taken its time."""
    (logged, bad_steps), (told, bad_events) = steps.read(), events.read()
    kept = [row for row in logged if _up_to(row, step)]
    losses = [_number(row.get("loss")) for row in kept]
    times = [_number(row.get("time_s")) or 0.0 for row in (*logged[-1:], *told[-1:])]
    unreadable = {STEPS: bad_steps, EVENTS: bad_events}
    return Past(
        counts=Counter(str(row.get("kind")) for row in told),
        loss_first=losses[0] if losses else None,
        loss_last=losses[-1] if losses else None,
        validation_loss=_validation_loss(told, step),
        last_step=kept[-1]["step"] if kept else 0,
        steps_lost=sum(_beyond(row, step) for row in logged),
        time_s=max(times, default=0.0),
        unreadable={name: count for name, count in unreadable.items() if count},
    )


def _validation_loss(told: Iterable[Mapping[str, Any]], step: int) -> float | None:
    """A return to a checkpoint also takes back the checks of what came after it."""
    checks: list[Mapping[str, Any]] = []
    for row in told:
        if row.get("kind") in ("fallback", "resumed") and isinstance(row.get("step"), int):
            checks = [check for check in checks if _up_to(check, row["step"])]
        elif row.get("kind") == "validation":
            checks.append(row)
    counted = [check for check in checks if _up_to(check, step)]
    return _number(counted[-1].get("loss")) if counted else None


def _up_to(row: Mapping[str, Any], step: int) -> bool:
    return isinstance(row.get("step"), int) and row["step"] <= step


def _beyond(row: Mapping[str, Any], step: int) -> bool:
    return isinstance(row.get("step"), int) and row["step"] > step


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _replace_file(path: Path, part: Path, text: str) -> None:
    with open(part, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)
    # The rename is durable only once the folder is on disk too.
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _row(record: StepRecord | Event, extra: Mapping[str, Any]) -> dict[str, Any]:
    row = {item.name: getattr(record, item.name) for item in fields(record) if item.name != "extra"}
    taken = sorted(row.keys() & extra.keys())
    assert not taken, f"extra keys {taken} are keys of {type(record).__name__}"
    return row | dict(extra)


def _plain(value: Any) -> Any:
    """The value as JSON holds it; JSON has no NaN and no infinity, so those become null."""
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return value
