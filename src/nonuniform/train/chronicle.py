"""What a run tells: every commit and event, once, to the output folder and to the observer.

In: votes of committed work, events with their reasons. Out: lines of steps.jsonl, events.jsonl,
the summary. DESIGN "Outside contract". Knows nothing of stores or processes.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

from nonuniform.protocol.commit import StepTotals, Vote, step_totals
from nonuniform.protocol.record import LoggedStep, Position, Record
from nonuniform.train.guard import GuardedObserver
from nonuniform.train.journal import Event, RunFolder, StepRecord
from nonuniform.view.observer import RunObserver


class Chronicle:
    """`time_s` of everything counts from the start of the run, which may have begun in an earlier
    session of it; `steps`: committed so far."""

    def __init__(self, folder: RunFolder, observer: RunObserver, replicas: int) -> None:
        self._folder = folder
        self._observer = GuardedObserver(observer)
        self._replicas = replicas
        self._past = folder.past
        self._start = time.monotonic() - self._past.time_s
        self._counts: dict[str, int] = {}
        self._trouble = ""
        self.steps = folder.last_step
        self._committed = 0
        self._resumed_from: int | None = None
        self._device: object = None
        self._loss_first = self._past.loss_first
        self._loss_last = self._past.loss_last
        self.validation_loss = self._past.validation_loss

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
        self._committed += 1
        totals = step_totals(votes, record.digest)
        known = LoggedStep.of(next(iter(votes.values())), record.placement)
        self._log_step(totals, known, samples, sample_ids)
        if not totals.finite:
            reason = f"gradient norm {totals.grad_norm}: committed without an update"
            self.event("skip", reason, step=step, generation=record.generation)

    def _log_step(
        self,
        totals: StepTotals,
        known: LoggedStep,
        samples: int,
        sample_ids: tuple[int, ...] | None,
    ) -> None:
        row = StepRecord(
            step=known.vote.step,
            loss=totals.loss,
            tokens=totals.tokens,
            samples=samples,
            grad_norm=totals.grad_norm,
            generation=known.vote.generation,
            degrees=self._by_replica(known.degrees),
            batch_shares=self._by_replica(known.shares),
            time_s=self.now_s(),
            sample_ids=sample_ids,
        )
        self._folder.log_step(row)
        self.steps = row.step
        self._loss_first = totals.loss if self._loss_first is None else self._loss_first
        self._loss_last = totals.loss
        self._observer.on_step(row.to_json())
        self._tell_trouble()

    def remembered_step(
        self, known: LoggedStep, samples: int, sample_ids: tuple[int, ...] | None
    ) -> None:
        """A step that was committed when the launcher before this one could not log it any more."""
        vote = known.vote
        totals = step_totals({vote.gpu: vote}, vote.digest)
        self._log_step(totals, known, samples, sample_ids)

    def skip_to(self, step: int) -> None:
        """Nobody knows any more what the log lacks up to `step`."""
        text = f"the log lacks the steps {self.steps + 1} to {step}"
        self._folder.skip_to(step)
        self.steps = step
        self.event("log_gap", text, step=step)

    def _by_replica(self, values: Mapping[int, int]) -> tuple[int, ...]:
        """The replica's id as index; 0 for one that is dissolved."""
        return tuple(values.get(replica, 0) for replica in range(self._replicas))

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

    def rewind(self, position: Position, reason: str, lost_steps: int) -> None:
        """Later steps are taken out of the log, and their checks count no more: they come again."""
        self._loss_last = self._folder.rewind(position.step)
        self.validation_loss = self._folder.validation_loss(position.step)
        if position.step == 0:
            self._loss_first = None
        self.steps = position.step
        extra = {"steps_lost": lost_steps}
        self.event("fallback", reason, step=position.step, extra=extra)

    def resume(self, step: int, reason: str) -> None:
        """The run goes on after `step`; what an earlier session did beyond it comes again."""
        self._resumed_from = step
        self.event("resumed", reason, step=step, extra={"steps_lost": self._past.steps_lost})
        for name, count in self._past.unreadable.items():
            lines = "1 line" if count == 1 else f"{count} lines"
            self.event("log_gap", f"{name}: {lines} cannot be read and left as is", step=step)

    def _tell_trouble(self) -> None:
        """Once: the disk does not take the log. It is kept in memory meanwhile."""
        trouble, before = self._folder.trouble, self._trouble
        self._trouble = trouble
        if trouble and not before:
            self.event("disk", f"the log is kept in memory: {trouble}", step=self.steps)
        elif before and not trouble:
            self.event("disk", "the log is written again", step=self.steps)

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
        if kind == "generation" and self._device is not None:  # so that a run under way tells it
            extra = {**(extra or {}), "device": self._device}
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
        self._device = info.get("device")
        self._observer.on_start(info)

    def tick(self) -> None:
        self._observer.tick()

    def close(self, status: str, reason: str) -> None:
        """Of the whole run; `session` is what came since the last start of it."""
        summary = {
            "status": status,
            "reason": reason,
            "steps": self.steps,
            "loss_first": self._loss_first,
            "loss_last": self._loss_last,
            "validation_loss": self.validation_loss,
            **_changes(Counter(self._past.counts) + Counter(self._counts)),
            "time_s": self.now_s(),
            "device": self._device,
            "resumed_from": self._resumed_from,
            "sessions": 1 + self._past.counts.get("resumed", 0) + self._counts.get("resumed", 0),
            "session": {
                "steps": self._committed,
                **_changes(self._counts),
                "time_s": self.now_s() - self._past.time_s,
            },
        }
        self._folder.close(summary)
        self._observer.on_end(summary)


def _changes(counts: Mapping[str, int]) -> dict[str, int]:
    """Of membership, from how often each kind of event was told."""
    kinds = {"generations": "generation", "failures": "failed", "returns": "joined"}
    return {name: counts.get(kind, 0) for name, kind in kinds.items()}
