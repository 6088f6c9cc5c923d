"""What a training run did, as frozen values: for its page, its tables and its comparison with
others.

In: the folder of a run, also of one that is under way, was resumed, or lost its launcher. Out:
`RunData`. DESIGN "Outside contract" names the keys of the files. Pure but for the reading; knows
nothing of pages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from nonuniform.report.run_files import (
    Row,
    RunFiles,
    number,
    numbers,
    read_files,
    text,
    whole,
    whole_or_none,
)
from nonuniform.report.run_goodput import Goodput, Moment, account
from nonuniform.report.run_timeline import GpuLine, gpu_lines

PARTS = ("detect_s", "regroup_s", "transfer_s", "redo_s")
Status = Literal["done", "failed", "unfinished"]
_USUAL = {"time_s", "kind", "gpu", "replica", "step", "generation", "reason"}


@dataclass(frozen=True)
class StepPoint:
    """One committed step; `degrees`, `shares` and `power_w` by replica, 0 for one that is
    dissolved."""

    step: int
    time_s: float
    loss: float | None
    grad_norm: float | None
    tokens: int
    samples: int
    generation: int
    degrees: tuple[int, ...]
    shares: tuple[int, ...]
    power_w: tuple[float, ...] = ()


@dataclass(frozen=True)
class EventRow:
    """One line of events.jsonl; `extra` is what this kind says besides."""

    time_s: float
    kind: str
    gpu: str
    replica: int | None
    step: int | None
    generation: int | None
    reason: str
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Recovery:
    """One change of membership, up to the next commit. `detect_s` is None where nobody knows when
    the GPU went; `lost` and `joined` are the GPUs that led to it."""

    time_s: float
    step: int
    generation: int
    lost: tuple[str, ...]
    joined: tuple[str, ...]
    detect_s: float | None
    regroup_s: float
    transfer_s: float
    redo_s: float
    total_s: float
    transfer_bytes: int


@dataclass(frozen=True)
class RunData:
    """`time_s`: how long the run took, over all its sessions; what lies between two sessions is
    in no file and counts as nothing."""

    name: str
    folder: Path
    status: Status
    reason: str
    time_s: float
    steps: tuple[StepPoint, ...]
    events: tuple[EventRow, ...]
    recoveries: tuple[Recovery, ...]
    goodput: Goodput
    gpus: tuple[GpuLine, ...]
    sessions: tuple[int, ...]
    device: str = ""
    trouble: tuple[tuple[str, str], ...] = ()

    @property
    def replicas(self) -> int:
        return max((len(point.degrees) for point in self.steps), default=0)

    @property
    def tokens(self) -> int:
        return sum(point.tokens for point in self.steps)

    @property
    def loss_last(self) -> float | None:
        return next((p.loss for p in reversed(self.steps) if p.loss is not None), None)

    @property
    def has_power(self) -> bool:
        return any(point.power_w for point in self.steps)

    def count(self, *kinds: str) -> int:
        return sum(event.kind in kinds for event in self.events)

    @property
    def kind(self) -> str:
        """Processes that play GPUs are an emulation."""
        if not self.device:
            return "unknown"
        return "measured" if self.device == "cuda" else "emulated"


def read_run_data(folder: Path) -> RunData:
    return run_data(read_files(folder), folder)


def run_data(files: RunFiles, folder: Path) -> RunData:
    summary = files.summary or {}
    steps = steps_of(files.steps)
    events = events_of(files.events)
    ends_s = [point.time_s for point in steps] + [event.time_s for event in events]
    end_s = max([*ends_s, number(summary.get("time_s")) or 0.0])
    return RunData(
        name=folder.resolve().name or str(folder),
        folder=folder,
        status=_status(files.summary),
        reason=text(summary.get("reason")),
        time_s=end_s,
        steps=steps,
        events=events,
        recoveries=recoveries_of(events),
        goodput=account([*map(_of_step, steps), *_moments(events)], end_s),
        gpus=gpu_lines(
            [(event.time_s, event.kind, event.gpu, event.extra) for event in events], end_s
        ),
        sessions=(0, *(event.step or 0 for event in events if event.kind == "resumed")),
        device=text(summary.get("device")) or _device(events),
        trouble=files.trouble,
    )


def _device(events: Sequence[EventRow]) -> str:
    """As generations name it: a run under way has no summary yet."""
    named = (text(event.extra.get("device")) for event in reversed(events))
    return next((device for device in named if device), "")


def _status(summary: Row | None) -> Status:
    if summary is None:
        return "unfinished"
    return "done" if summary.get("status") == "done" else "failed"


def steps_of(rows: Sequence[Row]) -> tuple[StepPoint, ...]:
    """By step; of a step that is there twice, which would be a fault, the last one counts."""
    found = {point.step: point for row in rows if (point := step_point(row)) is not None}
    return tuple(found[step] for step in sorted(found))


def step_point(row: Row) -> StepPoint | None:
    step, time_s = whole_or_none(row.get("step")), number(row.get("time_s"))
    if step is None or time_s is None:
        return None
    power = row.get("power_w")
    return StepPoint(
        step=step,
        time_s=max(0.0, time_s),
        loss=number(row.get("loss")),
        grad_norm=number(row.get("grad_norm")),
        tokens=whole(row.get("tokens")),
        samples=whole(row.get("samples")),
        generation=whole(row.get("generation")),
        degrees=tuple(int(value) for value in numbers(row.get("degrees"))),
        shares=tuple(int(value) for value in numbers(row.get("batch_shares"))),
        power_w=numbers(power if isinstance(power, list) or power is None else [power]),
    )


def events_of(rows: Sequence[Row]) -> tuple[EventRow, ...]:
    return tuple(event for row in rows if (event := event_row(row)) is not None)


def event_row(row: Row) -> EventRow | None:
    time_s, kind = number(row.get("time_s")), text(row.get("kind"))
    if time_s is None or not kind:
        return None
    return EventRow(
        time_s=max(0.0, time_s),
        kind=kind,
        gpu=text(row.get("gpu")),
        replica=whole_or_none(row.get("replica")),
        step=whole_or_none(row.get("step")),
        generation=whole_or_none(row.get("generation")),
        reason=text(row.get("reason")),
        extra={key: value for key, value in row.items() if key not in _USUAL},
    )


def recoveries_of(events: Sequence[EventRow]) -> tuple[Recovery, ...]:
    """One change is told once for the GPUs that went and once for each that came: with equal
    parts."""
    found: dict[tuple[Any, ...], Recovery] = {}
    session = 0
    for event in events:
        session += event.kind == "resumed"
        if event.kind not in ("recovery", "joined") or number(event.extra.get("total_s")) is None:
            continue
        key = (session, event.generation, event.step, event.extra["total_s"])
        known = found.get(key)
        gpus: tuple[str, ...] = (event.gpu,) if event.gpu else ()
        lost, joined = (gpus, gpus[:0]) if event.kind == "recovery" else (gpus[:0], gpus)
        if known is not None:
            lost, joined = known.lost + lost, known.joined + joined
        found[key] = _recovery(event, lost, joined)
    return tuple(found.values())


def _recovery(event: EventRow, lost: tuple[str, ...], joined: tuple[str, ...]) -> Recovery:
    extra = event.extra
    regroup_s, transfer_s, redo_s, total_s = (
        max(0.0, number(extra.get(key)) or 0.0)
        for key in ("regroup_s", "transfer_s", "redo_s", "total_s")
    )
    return Recovery(
        time_s=event.time_s,
        step=event.step or 0,
        generation=event.generation or 0,
        lost=lost,
        joined=joined,
        detect_s=number(extra.get("detect_s")),
        regroup_s=regroup_s,
        transfer_s=transfer_s,
        redo_s=redo_s,
        total_s=total_s,
        transfer_bytes=whole(extra.get("transfer_bytes")),
    )


def _of_step(point: StepPoint) -> Moment:
    return Moment(point.time_s, "step", point.step)


def _moments(events: Sequence[EventRow]) -> list[Moment]:
    return [
        Moment(
            event.time_s,
            event.kind,
            event.step or 0,
            tuple(max(0.0, number(event.extra.get(key)) or 0.0) for key in PARTS),
            whole(event.extra.get("steps_lost")),
        )
        for event in events
    ]
