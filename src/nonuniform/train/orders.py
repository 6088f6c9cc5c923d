"""Failures, returns and drains that somebody orders, on the command line or while the run goes on.

In: scripted events, and the file `health.jsonl` in the run's folder, to which a person or a program
appends lines such as {"kind": "drained", "gpu": "0/3", "reason": "XID 79"}. Out: events for the
control; a scripted failure is a real blow to the process. DESIGN "Two arrows": health events come
in. Knows nothing of what follows from them.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from nonuniform.cluster.health import ClusterState, HealthEvent
from nonuniform.cluster.topology import parse_gpu
from nonuniform.config import ScheduledEvent
from nonuniform.errors import BadInput
from nonuniform.protocol.events import Drained, Event, Returned
from nonuniform.protocol.state import Control, Phase
from nonuniform.train.chronicle import Chronicle
from nonuniform.train.roster import Roster

HEALTH_FILE = "health.jsonl"
LOOK_S = 0.2


class HealthFile:
    """Lines that are appended to a file while it is read; what was there at the start is old."""

    def __init__(self, path: Path, cluster: ClusterState) -> None:
        self._path = path
        self._cluster = cluster
        self._offset = path.stat().st_size if path.exists() else 0
        self._rest = b""

    def read(self) -> Iterator[HealthEvent | str]:
        """The new events; for a line that is none, what is wrong with it."""
        try:
            with self._path.open("rb") as file:
                if file.seek(0, os.SEEK_END) < self._offset:  # somebody has begun it anew
                    self._offset, self._rest = 0, b""
                file.seek(self._offset)
                new = file.read()
        except OSError:  # not there, or not now: no reason to end a run
            return
        self._offset += len(new)
        *lines, self._rest = (self._rest + new).split(b"\n")
        for line in lines:
            if line.strip():
                yield self._parse(line)

    def _parse(self, line: bytes) -> HealthEvent | str:
        try:
            row = json.loads(line)
            event = HealthEvent(row["kind"], parse_gpu(row["gpu"]), str(row.get("reason", "")))
            self._cluster.apply(event)
        except (
            BadInput,
            ValueError,
            LookupError,
            TypeError,
            AttributeError,
            RecursionError,
        ) as error:
            return f"{HEALTH_FILE}: {line.decode(errors='replace')[:200]}: {error}"
        return event


class Orders:
    """What is still to come of the script, and the file beside it."""

    def __init__(
        self,
        schedule: Sequence[ScheduledEvent],
        health: HealthFile,
        roster: Roster,
        chronicle: Chronicle,
    ) -> None:
        self._schedule = list(schedule)
        self._health = health
        self._roster = roster
        self._chronicle = chronicle
        self._looked_s = 0.0

    def due(self, state: Control) -> Iterator[Event]:
        """Orders for step S are carried out while S runs: after S - 1 was committed."""
        yield from self._script(state)
        if time.monotonic() - self._looked_s >= LOOK_S:
            self._looked_s = time.monotonic()
            yield from self._said(state)

    def _script(self, state: Control) -> Iterator[Event]:
        due = [event for event in self._schedule if event.step <= state.position.step + 1]
        for event in due:
            gpu, alive = event.gpu, event.gpu in self._roster.living
            if event.kind == "returned":
                if not alive:
                    self._schedule.remove(event)
                    yield Returned(gpu)
            elif not alive:
                self._schedule.remove(event)
                self._chronicle.event("order", f"nothing to do: it was {event.kind}", gpu=gpu)
            # Blows are not dealt while a group forms: the script says "while step S runs".
            elif state.phase is Phase.RUNNING and state.all_settled:
                self._schedule.remove(event)
                if event.kind == "failed":
                    self._roster.kill(gpu)
                else:
                    yield Drained(gpu, "drained as ordered")

    def _said(self, state: Control) -> Iterator[Event]:
        for event in self._health.read():
            if isinstance(event, str):
                self._chronicle.event("order", f"not understood: {event}")
            elif event.kind == "returned":
                yield Returned(str(event.gpu), event.reason)
            elif event.kind == "drained":
                yield Drained(str(event.gpu), event.reason or "drained as told")
            elif str(event.gpu) in self._roster.living:
                self._roster.kill(str(event.gpu))
            else:  # it may be on its way back
                yield Drained(str(event.gpu), event.reason or "failed as told")
