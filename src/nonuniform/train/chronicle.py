"""What a run tells: every commit and event, once, to the output folder and to the observer.

In: votes of committed work, events with their reasons. Out: lines of steps.jsonl, events.jsonl,
the summary. DESIGN "Outside contract". Knows nothing of stores or processes.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from nonuniform.train.commit import Vote, step_totals
from nonuniform.train.guard import GuardedObserver
from nonuniform.train.journal import Event, RunFolder, StepRecord
from nonuniform.train.membership import Record
from nonuniform.view.observer import RunObserver


class Chronicle:
    """`time_s` of everything counts from the start of the run."""

    def __init__(self, folder: RunFolder, observer: RunObserver, replicas: int) -> None:
        self._folder = folder
        self._observer = GuardedObserver(observer)
        self._replicas = replicas
        self._start = time.monotonic()
        self._counts: dict[str, int] = {}
        self.losses: list[float] = []
        self.validation_loss: float | None = None

    def now_s(self) -> float:
        return time.monotonic() - self._start

    def step(
        self,
        step: int,
        record: Record,
        votes: Mapping[str, Vote],
        samples: int,
        sample_ids: tuple[int, ...] | None,
    ) -> None:
        totals = step_totals(votes, record.digest)
        degrees, shares = self._by_replica(record)
        row = StepRecord(
            step=step,
            loss=totals.loss,
            tokens=totals.tokens,
            samples=samples,
            grad_norm=totals.grad_norm,
            generation=record.generation,
            degrees=degrees,
            batch_shares=shares,
            time_s=self.now_s(),
            sample_ids=sample_ids,
        )
        self._folder.log_step(row)
        self.losses.append(totals.loss)
        self._observer.on_step(row.to_json())
        if not totals.finite:
            reason = f"gradient norm {totals.grad_norm}: committed without an update"
            self.event("skip", reason, step=step, generation=record.generation)

    def _by_replica(self, record: Record) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """(degrees, shares) with the replica's id as index; 0 for one that is dissolved."""
        entries = {entry.replica: entry for entry in record.placement.replicas}
        present = [entries.get(replica) for replica in range(self._replicas)]
        degrees = tuple(entry.degree if entry else 0 for entry in present)
        return degrees, tuple(entry.share if entry else 0 for entry in present)

    def validation(self, step: int, record: Record, votes: Mapping[str, Vote]) -> None:
        totals = step_totals(votes, record.digest)
        self.validation_loss = totals.loss
        self.event(
            "validation",
            f"held-out loss {totals.loss:.4f} after step {step}",
            step=step,
            generation=record.generation,
            extra={"loss": totals.loss, "tokens": totals.tokens},
        )

    def event(
        self,
        kind: str,
        reason: str,
        gpu: str | None = None,
        step: int | None = None,
        generation: int | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        replica = int(gpu.split("/")[0]) if gpu else None
        event = Event(
            time_s=self.now_s(),
            kind=kind,
            gpu=gpu,
            replica=replica,
            step=step,
            generation=generation,
            reason=reason,
            extra=extra or {},
        )
        self._counts[kind] = self._counts.get(kind, 0) + 1
        self._folder.log_event(event)
        self._observer.on_event(event.to_json())

    def start(self, info: dict[str, Any]) -> None:
        self._observer.on_start(info)

    def tick(self) -> None:
        self._observer.tick()

    @property
    def steps(self) -> int:
        """Steps written down so far."""
        return len(self.losses)

    def close(self, status: str, reason: str) -> None:
        summary = {
            "status": status,
            "reason": reason,
            "steps": len(self.losses),
            "loss_first": self.losses[0] if self.losses else None,
            "loss_last": self.losses[-1] if self.losses else None,
            "validation_loss": self.validation_loss,
            "generations": self._counts.get("generation", 0),
            "failures": self._counts.get("failed", 0),
            "returns": self._counts.get("joined", 0),
            "time_s": self.now_s(),
        }
        self._folder.close(summary)
        self._observer.on_end(summary)
