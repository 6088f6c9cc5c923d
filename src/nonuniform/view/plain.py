"""A run as short log lines: for files, pipes and terminals that cannot be redrawn.

In: the calls of `RunObserver`. Out: one line per event and some twenty lines of steps per run,
without colours or cursor movement. A reader that goes away ends the lines, not the run.
"""

from __future__ import annotations

import sys
from typing import IO, Any

from nonuniform.view import words
from nonuniform.view.observer import discard
from nonuniform.view.state import (
    RunState,
    after_end,
    after_event,
    after_start,
    after_step,
    tokens_per_s,
)

STEP_LINES = 20


class PlainObserver:
    """Prints; `every` steps one line, by default such that a run has about twenty of them."""

    def __init__(self, stream: IO[str] | None = None, every: int = 0) -> None:
        self._stream = stream
        self._every = every
        self._state = RunState()

    def on_start(self, info: dict[str, Any]) -> None:
        self._state = after_start(self._state, info)
        job = self._state.job
        size = f", {words.parameter_count(job.parameters)}" if job.parameters else ""
        self._line(
            0.0,
            f"{job.replicas} replicas at degree {job.degree} (at least {job.min_degree})"
            f"{size}, {job.steps} steps" + (f", writing to {job.out}" if job.out else ""),
        )

    def on_step(self, record: dict[str, Any]) -> None:
        before = self._state.degrees
        self._state = state = after_step(self._state, record)
        every = self._every or max(1, state.job.steps // STEP_LINES)
        last = state.step == state.job.steps
        if state.step % every and state.step != 1 and not last and state.degrees == before:
            return
        degrees = ", ".join(str(degree) for degree in state.degrees)
        shares = "+".join(str(share) for share in state.batch_shares)
        speed = sum(tokens_per_s(state))
        self._line(
            state.time_s,
            f"step {state.step}/{state.job.steps}  loss {state.loss:.4f}  degrees {degrees}"
            f"  batch {shares}" + (f"  {speed:,.0f} tokens/s" if speed else ""),
        )

    def on_event(self, record: dict[str, Any]) -> None:
        """Says what is new in the stories: a recovery is told with the failure that it answers."""
        before = set(self._state.stories)
        self._state = after_event(self._state, record)
        time_s = float(record.get("time_s", self._state.time_s))
        if record.get("kind") == "validation":
            self._line(time_s, words.other_event(record))
        for story in self._state.stories:
            if story not in before:
                self._line(time_s, story.text)

    def on_end(self, summary: dict[str, Any]) -> None:
        self._state = state = after_end(self._state, summary)
        reason = str(summary.get("reason") or "")
        self._line(
            float(summary.get("time_s") or state.time_s),
            f"ended at step {state.step} of {state.job.steps}, {state.samples:,} samples"
            + (f": {reason}" if reason else ""),
        )

    def tick(self) -> None:
        pass

    def _line(self, time_s: float, text: str) -> None:
        stream = self._stream or sys.stdout
        try:
            stream.write(f"{time_s:7.2f} s  {text}\n")
            stream.flush()
        except UnicodeEncodeError:
            self._line(time_s, text.encode("ascii", "backslashreplace").decode("ascii"))
        except (OSError, ValueError):  # nobody reads on, the disk is full, the stream is closed
            discard(stream)
