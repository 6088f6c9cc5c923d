"""A run's folder, followed while the run writes to it.

In: the folder. Out: what is new in it since somebody last asked, as plain data for JSON. Only
what was added is read. A log that got shorter, or whose last line is another one, was rewound or
belongs to a new run: then everything is read and told anew, under another `epoch`. What is kept
does not grow with the length of the run; which old points stay is decided here alone, and a page
that has others is told the steps. Only reads; knows nothing of sockets.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nonuniform.report.run_data import EventRow, StepPoint, event_row, step_point
from nonuniform.report.run_files import EVENTS, STEPS, SUMMARY, Row, number, parse_row, text
from nonuniform.report.run_timeline import after, gpu_order
from nonuniform.report.said import LANGUAGES, Language
from nonuniform.report.texts import load_texts

# After a thinning; the newest, which are always there; how many come before the next thinning.
POINTS_KEPT, POINTS_FRESH, POINTS_RAW = 2000, 100, 400
PINS_KEPT = 1000
EVENTS_KEPT, MARKS_KEPT = 300, 2000
POINTS_TOLD = 2000
# Of a file at once, and how long one look may take; a longer log is read in several looks.
BLOCK_BYTES, LOOK_S = 1 << 18, 0.2
MARKS = ("failed", "joined")
# Said by others, or once for each GPU.
QUIET = ("started", "grain")
PARTS = ("detect", "regroup", "transfer", "redo")


class Tail:
    """The lines that were added to a file since the last look."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.forget()

    def forget(self) -> None:
        self._offset = 0
        self.more = False
        self._last = b""

    def rewritten(self) -> bool:
        """What was read is no longer what the file begins with."""
        if not self._offset:
            return False
        try:
            with open(self._path, "rb") as file:
                file.seek(self._offset - len(self._last))
                return file.read(len(self._last)) != self._last
        except OSError:
            return True

    def new_rows(self) -> list[Row]:
        """Of the next whole lines, a block of them; a line that is no object is left out."""
        self.more = False
        try:
            with open(self._path, "rb") as file:
                file.seek(self._offset)
                added = file.read(BLOCK_BYTES)
                if len(added) == BLOCK_BYTES:
                    added += file.readline()
                    self.more = b"\n" in added
        except OSError:
            return []
        whole, newline, _ = added.rpartition(b"\n")
        if not newline:
            return []
        lines = whole.split(b"\n")
        self._offset += len(whole) + 1
        self._last = lines[-1] + b"\n"
        return [row for line in lines if (row := parse_row(line)) is not None]


@dataclass(frozen=True)
class Asked:
    """What a page has: the steps up to `step`, as after so many thinnings, and `events` events of
    `epoch`."""

    step: int = 0
    events: int = 0
    epoch: str = ""
    thinned: int = 0


def thinned(points: Sequence[StepPoint], width: int, pinned: AbstractSet[int]) -> list[StepPoint]:
    """Of each `width` steps the points with the lowest and the highest loss, besides those that
    are pinned, the first, and the newest. Thinned again, also to a multiple of the width, gives
    what thinning once would, so nothing fades with age."""
    stay = {point.step for point in (*points[:1], *points[-POINTS_FRESH:])} | pinned
    low: dict[int, tuple[float, int]] = {}
    high: dict[int, tuple[float, int]] = {}
    for point in points:
        bucket = point.step // width
        if point.loss is None:
            continue
        if bucket not in low or point.loss < low[bucket][0]:
            low[bucket] = (point.loss, point.step)
        if bucket not in high or point.loss > high[bucket][0]:
            high[bucket] = (point.loss, point.step)
    stay |= {step for _, step in (*low.values(), *high.values())}
    return [point for point in points if point.step in stay]


class Curve:
    """The points of a run of any length. Pinned are the steps at which a degree changed or a GPU
    went or came: all of them, up to PINS_KEPT, then the first of each stretch."""

    def __init__(self) -> None:
        self.points: list[StepPoint] = []
        self.thinnings = 0
        self._width = 1
        self._raw = 0
        self._pinned: set[int] = set()

    def pin(self, step: int) -> None:
        self._pinned.add(step)

    def add(self, points: Iterable[StepPoint]) -> None:
        for point in points:
            if self.points and point.degrees != self.points[-1].degrees:
                self.pin(point.step)
            self.points.append(point)
            self._raw += 1
        if self._raw > POINTS_RAW and len(self.points) > POINTS_KEPT:
            self._thin()

    def _thin(self) -> None:
        kept = thinned(self.points, self._width, self._pins())
        while len(kept) > POINTS_KEPT and self._width <= self.points[-1].step:
            self._width *= 2
            kept = thinned(kept, self._width, self._pins())
        self.thinnings += len(kept) < len(self.points)
        self.points, self._raw = kept, 0

    def _pins(self) -> set[int]:
        if len(self._pinned) > PINS_KEPT:
            firsts: dict[int, int] = {}
            for step in sorted(self._pinned):
                firsts.setdefault(step // self._width, step)
            self._pinned = set(firsts.values())
        return self._pinned


def summary_mark(folder: Path) -> str:
    """Tells one summary from the next; empty where there is none."""
    try:
        found = (folder / SUMMARY).stat()
    except OSError:
        return ""
    return f"{found.st_ino}-{found.st_mtime_ns}"


class Follower:
    """May be asked by several threads. `before`: the mark of a summary that an earlier session
    left, which says nothing of this one. An epoch is a random word, so that a page of another
    server is not taken for one of this."""

    def __init__(self, folder: Path, planned: int = 0, before: str = "") -> None:
        self._folder = folder
        self._planned = planned
        self._before = before
        self._lock = threading.Lock()
        self._reading = False
        self._tails = (Tail(folder / STEPS), Tail(folder / EVENTS))
        title = load_texts()("run.live_title", name=folder.name)
        self._title = {lang: title.text(lang) for lang in LANGUAGES}
        self._clear()

    def _clear(self) -> None:
        self._epoch = secrets.token_hex(8)
        self._curve = Curve()
        self._events: list[tuple[int, EventRow]] = []
        self._marks: list[tuple[int, EventRow]] = []
        self._told = 0
        self._gpus: dict[str, str] = {}
        self._generation = 0
        self._device = ""

    def news(self, asked: Asked) -> dict[str, Any]:
        with self._lock:
            self._look()
            if asked.epoch != self._epoch:
                return {**self._answer(Asked()), "anew": True}
            return {**self._answer(asked), "anew": False}

    def _look(self) -> None:
        """Read on, for a while."""
        limit_s = time.monotonic() + LOOK_S
        self._reading = True
        while self._reading and time.monotonic() < limit_s:
            self._reading = self._read_block()

    def _read_block(self) -> bool:
        """Whether there is more to read. Events first: they pin steps."""
        if any(tail.rewritten() for tail in self._tails):
            self._clear()
            for tail in self._tails:
                tail.forget()
        steps, events = self._tails
        for row in events.new_rows():
            if (event := event_row(row)) is not None:
                self._hear(event)
        self._events, self._marks = self._events[-EVENTS_KEPT:], self._marks[-MARKS_KEPT:]
        if events.more:
            return True
        self._curve.add(point for row in steps.new_rows() if (point := step_point(row)))
        return steps.more

    def _hear(self, event: EventRow) -> None:
        self._gpus |= after(self._gpus, event.kind, event.gpu, event.extra)
        self._generation = event.generation or self._generation
        self._device = text(event.extra.get("device")) or self._device
        if event.kind not in QUIET:
            self._told += 1
            self._events.append((self._told, event))
        if event.kind in MARKS and event.step is not None:
            self._marks.append((self._told, event))
            self._curve.pin(event.step)

    def _answer(self, asked: Asked) -> dict[str, Any]:
        held = self._curve.points
        points = [point for point in held if point.step > asked.step][:POINTS_TOLD]
        old = None
        if asked.thinned != self._curve.thinnings:
            old = [point.step for point in held if point.step <= asked.step]
        return {
            "epoch": self._epoch,
            "title": self._title,
            "points": [_point(point) for point in points],
            "more": self._reading or (bool(points) and points[-1] is not held[-1]),
            "kept": old,
            "thinned": self._curve.thinnings,
            "marks": [_mark(event) for number, event in self._marks if number > asked.events],
            "events": [_event(event) for number, event in self._events if number > asked.events],
            "told": self._told,
            "gpus": [[gpu, self._gpus[gpu]] for gpu in sorted(self._gpus, key=gpu_order)],
            "generation": self._generation,
            "planned": self._planned,
            **self._state(),
        }

    def _state(self) -> dict[str, str]:
        """The summary is there as a whole or not at all."""
        summary = None if self._reading else self._summary()
        if summary is None:
            status = "reading" if self._reading else "running"
            return {"status": status, "reason": "", "kind": _kind(self._device)}
        status = "done" if summary.get("status") == "done" else "failed"
        kind = _kind(text(summary.get("device")) or self._device)
        return {"status": status, "reason": text(summary.get("reason")), "kind": kind}

    def _summary(self) -> Row | None:
        if self._before and summary_mark(self._folder) == self._before:
            return None
        try:
            return parse_row((self._folder / SUMMARY).read_bytes())
        except OSError:
            return None


def _kind(device: str) -> str:
    if not device:
        return "unknown"
    return "measured" if device == "cuda" else "emulated"


def _point(point: StepPoint) -> list[Any]:
    power = list(point.power_w)
    return [
        point.step,
        point.time_s,
        point.loss,
        point.tokens,
        list(point.degrees),
        list(point.shares),
        power,
    ]


def _mark(event: EventRow) -> list[Any]:
    return [event.step, event.kind, event.gpu]


def _event(event: EventRow) -> dict[str, Any]:
    name = load_texts().known("run.event", event.kind)
    return {
        "time_s": event.time_s,
        "step": event.step,
        "kind": event.kind,
        "name": {lang: name.text(lang) for lang in LANGUAGES},
        "gpu": event.gpu,
        "reason": event.reason,
        "took": {lang: _took(event, lang) for lang in LANGUAGES},
    }


def _took(event: EventRow, lang: Language) -> str:
    """The parts of a recovery, as far as they are told."""
    texts = load_texts()
    parts = {name: number(event.extra.get(f"{name}_s")) for name in (*PARTS, "total")}
    return ", ".join(
        f"{texts.words(f'run.table.{name}', lang)} {seconds:.2f} s"
        for name, seconds in parts.items()
        if seconds is not None
    )
