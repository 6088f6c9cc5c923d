"""What the launcher hears: from the system, from the board, and from what does not come.

In: the state of the control, the roster, the board. Out: events for the control. Each look is
short, and asks only for what the state waits for. Knows nothing of what follows from an event.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from nonuniform.protocol.events import (
    Decided,
    Ended,
    Event,
    Hung,
    Ready,
    Reported,
    Saved,
    SettledIn,
    Stalled,
)
from nonuniform.protocol.outcome import is_commit
from nonuniform.protocol.state import Control, Phase
from nonuniform.protocol.vital import Limits, Sign, hanging, standstill
from nonuniform.train.membership import Board
from nonuniform.train.roster import Roster, how_it_ended
from nonuniform.train.spawn import ForkedProcess
from nonuniform.train.watch import STOPPED_S

ENDING_HANG_S = 5.0  # who ends a run by hand is not kept waiting for a process that hangs
SAVING_LIMIT = 10  # times hang_timeout_s


class Listener:
    """`progressed`: to be called whenever something is committed or published."""

    def __init__(self, roster: Roster, board: Board, limits: Limits, beat_s: float) -> None:
        self._roster = roster
        self._board = board
        self._limits = limits
        self._beat_s = beat_s
        self._signs: dict[tuple[str, int], Sign] = {}
        self._looked_s = time.monotonic()
        self._progress_s = time.monotonic()

    def progressed(self) -> None:
        self._progress_s = time.monotonic()

    # --- what the board says

    def committed(self, state: Control) -> Decided | None:
        """The commit of the work under way, if there is one."""
        if state.phase is not Phase.RUNNING or state.work.kind == "done":
            return None
        generation, work = state.record.generation, state.work
        outcome = self._board.outcome(generation, work)
        if outcome is None or not is_commit(outcome):
            return None
        votes = self._board.votes(generation, work, list(state.members))
        return Decided(generation, work, outcome, votes)

    def said(self, state: Control) -> Iterator[Event]:
        """Words of processes that the control may be waiting for."""
        generation = state.record.generation
        if state.phase is Phase.RUNNING and not state.all_settled:
            for gpu in sorted(set(state.members) - state.settled):
                if self._board.read_settled(generation, gpu):
                    yield SettledIn(gpu, generation)
        if state.phase is Phase.HEARING:
            for gpu in sorted(state.placed() - set(state.reports)):
                life = state.living[gpu]
                if report := self._board.read_report(generation, gpu, life):
                    yield Reported(report, life, generation)
        for gpu, life in sorted(state.living.items()):
            placed = state.record.lives.get(gpu) == life
            known = placed or gpu in state.ready or gpu in state.leaving
            if not known and self._board.is_ready(gpu, life):
                yield Ready(gpu, life)

    # --- what the system says

    def ended(self, state: Control, dead: list[ForkedProcess]) -> Iterator[Ended]:
        """Of processes that the system says are gone, what they said last."""
        for process in dead:
            if not self._roster.is_current(process):
                continue
            self._roster.remove(process)
            words = self._board.read_last_words(process.gpu, process.life)
            reason = words or how_it_ended(process)
            self._board.forget_process(process.gpu, process.life)
            working = self._board.read_settled(state.record.generation, process.gpu) is not None
            yield Ended(process.gpu, process.life, reason, raised=bool(words), working=working)

    # --- what does not come

    def missing(self, state: Control) -> Iterator[Event]:
        """Processes without progress, and a run without any."""
        now_s = time.monotonic()
        if now_s - self._looked_s < self._beat_s / 2:
            return
        self._forgive(now_s - self._looked_s - self._beat_s)
        self._looked_s = now_s
        self._read_beats(state, now_s)
        limits = self._limits
        if state.ending is not None and state.ending.by_hand:
            start_s = min(limits.start_s, ENDING_HANG_S)
            limits = Limits(limits.hang_s, start_s, min(limits.hang_s, ENDING_HANG_S))
        signs = {gpu: sign for (gpu, _), sign in self._signs.items()}
        found = hanging(signs, limits, now_s)
        for gpu, reason in found.items():
            life = state.living.get(gpu)
            if life is not None:
                yield Hung(gpu, life, reason)
        if not found:
            yield from self._stalled(state, now_s)

    def _forgive(self, away_s: float) -> None:
        """Who was away itself (stopped with the whole run) has not listened meanwhile."""
        if away_s > STOPPED_S:
            self._signs = {
                key: Sign(sign.heard_s + away_s, sign.beat) for key, sign in self._signs.items()
            }
            self._progress_s += away_s

    def _read_beats(self, state: Control, now_s: float) -> None:
        current = set(state.living.items())
        self._signs = {key: sign for key, sign in self._signs.items() if key in current}
        for gpu, life in current:
            sign = self._signs.get((gpu, life)) or Sign(self._roster.started_s.get(gpu, now_s))
            beat = self._board.read_beat(gpu, life)
            if beat is not None and (sign.beat is None or beat.count != sign.beat.count):
                sign = Sign(now_s, beat)
            self._signs[gpu, life] = sign

    def _stalled(self, state: Control, now_s: float) -> Iterator[Event]:
        hang_s = self._limits.hang_s
        members = {gpu: sign for (gpu, _), sign in self._signs.items() if gpu in state.members}
        idle_s = now_s - self._progress_s
        # Right after a regroup the last beats still tell of waits for the one that was lost.
        still = idle_s > hang_s and standstill(members, self._limits, now_s)
        if state.phase is Phase.RUNNING and still:
            yield Stalled(
                f"no progress for hang_timeout_s = {hang_s:g} after step {state.position.step}: "
                "every process waits for the others"
            )
        if state.phase is Phase.SAVING and idle_s > SAVING_LIMIT * hang_s:
            yield Saved(state.record.generation, f"not written within {idle_s:.0f} s")
