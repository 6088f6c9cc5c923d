"""The life of a small cluster, a simpy process per GPU; what it did is written down piece by piece.

In: failures as (start, end, first GPU, number of GPUs), the case. Out: pieces of time in which
nothing changes. Time is in hours, exact. Knows nothing of how the same is computed fast.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import simpy

from oracle.shape import Case, Work, degrees_of_domain, work

Failure = tuple[float, float, int, int]
Waiting = Generator[simpy.Event, Any, None]


@dataclass(frozen=True)
class Piece:
    """A stretch of time, what the job did in it, and what each domain had really lost."""

    start: Fraction
    end: Fraction
    mode: str  # run, stall or redo
    work: Work
    lost: tuple[int, ...]


def exact_hours(seconds: float) -> Fraction:
    """Seconds as a person writes them."""
    return Fraction(str(seconds)) / 3600


class Cluster:
    """GPUs that die and return, and somebody who looks when all of an instant has happened."""

    def __init__(self, case: Case, failures: Sequence[Failure], hours: float) -> None:
        self.case, self.hours = case, Fraction(hours)
        self.env = simpy.Environment(initial_time=Fraction(0))  # type: ignore[arg-type]
        self.down = [[False] * case.domain for _ in range(case.domains)]
        self.bell = self.env.event()
        self.training = Training(case)
        for gpu in range(case.domains * case.domain):
            self.env.process(self._gpu(gpu, _outages(gpu, failures)))
        self.env.process(self._watch())
        if case.options.repack == "next-checkpoint":
            self.env.process(self._checkpoints())

    def live(self) -> Training:
        self.env.run(until=self.hours)  # type: ignore[arg-type]
        self.training.advance(self.hours)
        return self.training

    def _gpu(self, gpu: int, outages: list[tuple[Fraction, Fraction | None]]) -> Waiting:
        domain, index = divmod(gpu, self.case.domain)
        for start, end in outages:
            yield self.env.timeout(start - self.env.now)
            self.down[domain][index] = True
            self._ring()
            if end is None:
                return
            yield self.env.timeout(end - self.env.now)
            self.down[domain][index] = False
            self._ring()

    def _checkpoints(self) -> Waiting:
        while True:
            yield self.env.timeout(exact_hours(self.case.options.checkpoint_every_s))  # type: ignore[arg-type]
            self.training.checkpoint_due = True
            self._ring()

    def _ring(self) -> None:
        # What rings comes after all that was due at the same instant, since it was asked for later.
        if not self.bell.triggered:
            self.bell.succeed()

    def _watch(self) -> Waiting:
        while True:
            yield self.bell
            self.bell = self.env.event()
            lost = tuple(sum(gpus) for gpus in self.down)
            self.training.advance(Fraction(self.env.now))
            self.training.hear(lost)


class Training:
    """The job: what it believes of the cluster, what it waits for, what it has to do again."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.now = Fraction(0)
        self.actual = self.effective = (0,) * case.domains
        self.work = work(case, self.effective)
        self.stalled_until = Fraction(0)
        self.debt = Fraction(0)
        self.position = self.highest = Fraction(0)
        self.checkpoint_due = False
        self.stalls = 0
        self.pieces: list[Piece] = []

    # ------------------------------------------------------------------------- time goes on

    def advance(self, until: Fraction) -> None:
        while self.now < until:
            if self.now < self.stalled_until:
                self._spend(min(until, self.stalled_until), "stall")
            elif self.work.throughput == 0:
                self._spend(until, "run")
            elif self._restarts_from_a_checkpoint():
                self._advance_between_checkpoints(until)
            elif self.debt > 0:
                end = min(until, self.now + self.debt / self.work.throughput)
                self.debt -= (end - self.now) * self.work.throughput
                self._spend(end, "redo")
            else:
                self._spend(until, "run")

    def _restarts_from_a_checkpoint(self) -> bool:
        options = self.case.options
        return options.checkpoint_every_s > 0 and options.restart_s > 0

    def _advance_between_checkpoints(self, until: Fraction) -> None:
        speed, every = self.work.throughput, exact_hours(self.case.options.checkpoint_every_s)
        again = self.position < self.highest
        goal = self.highest if again else every
        end = min(until, self.now + (goal - self.position) / speed)
        self.position += (end - self.now) * speed
        self._spend(end, "redo" if again else "run")
        if self.position == every:
            self.position = Fraction(0)
            self.highest = max(Fraction(0), self.highest - every)
        self.highest = max(self.highest, self.position)

    def _spend(self, end: Fraction, mode: str) -> None:
        self.pieces.append(Piece(self.now, end, mode, self.work, self.actual))
        self.now = end

    # ----------------------------------------------------------------------- something changes

    def hear(self, lost: tuple[int, ...]) -> None:
        before, self.actual = self.actual, lost
        if any(new > old for new, old in zip(lost, before, strict=True)):
            self._failure()
        elif lost != before:
            self._return()
        if self.checkpoint_due:
            self.checkpoint_due = False
            self._adopt_as_planned()

    def _failure(self) -> None:
        options = self.case.options
        if options.repack == "next-checkpoint":
            self._believe(tuple(map(max, self.effective, self.actual)))
        else:
            self._believe(self.actual)
        self._stall(exact_hours(options.detect_s) + self._change_takes())
        self.position = Fraction(0)
        if not self._restarts_from_a_checkpoint():
            self.debt += exact_hours(options.redo_s)

    def _return(self) -> None:
        if self.case.options.repack in ("at-once", "never"):
            self._adopt_as_planned()

    def _adopt_as_planned(self) -> None:
        groups = [degrees_of_domain(self.case, n) for n in self.effective]
        if self.effective == self.actual:
            return
        self._believe(self.actual)
        waits = self.case.options.kind == "uniform" and self.case.options.on_failure == "wait"
        if groups != [degrees_of_domain(self.case, n) for n in self.effective] and not (
            waits and self.work.throughput == 0
        ):
            self._stall(self._change_takes())

    def _believe(self, lost: tuple[int, ...]) -> None:
        self.effective = lost
        self.work = work(self.case, lost)

    def _change_takes(self) -> Fraction:
        options = self.case.options
        return exact_hours(options.regroup_s + options.transfer_s + options.restart_s)

    def _stall(self, takes: Fraction) -> None:
        self.stalls += 1
        self.stalled_until = max(self.stalled_until, self.now + takes)


def _outages(gpu: int, failures: Sequence[Failure]) -> list[tuple[Fraction, Fraction | None]]:
    """When this GPU is down: failures that overlap or touch are one; None is for ever."""
    mine = sorted((s, e) for s, e, first, number in failures if first <= gpu < first + number)
    merged: list[tuple[float, float]] = []
    for start, end in mine:
        if end <= start:
            continue
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return [(Fraction(s), None if e == float("inf") else Fraction(e)) for s, e in merged]
