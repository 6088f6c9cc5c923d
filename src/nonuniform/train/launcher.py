"""The launcher: hears what happens, asks the control what follows, and does it.

In: a job, its corpus, orders for failures and returns. Out: an exit reason; files through the
chronicle. One loop, one thread: it sleeps until a process ends or a tick has passed, then looks
around. What to do is decided by `protocol.control`, which is pure; this file does it.
DESIGN "The step is a transaction", "Generations". Knows nothing of tensors.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from nonuniform.errors import RunFailed, StateWrong
from nonuniform.placement.shares import share_grain_cost
from nonuniform.protocol import events as ev
from nonuniform.protocol.commit import Work
from nonuniform.protocol.control import advance, begin
from nonuniform.protocol.outcome import is_commit
from nonuniform.protocol.record import Position, Record
from nonuniform.protocol.state import Control, Phase
from nonuniform.protocol.vital import Limits
from nonuniform.train.audit import Auditor
from nonuniform.train.chronicle import Chronicle
from nonuniform.train.interrupt import Interrupt
from nonuniform.train.keeper import holdings_of
from nonuniform.train.listener import Listener
from nonuniform.train.membership import Board
from nonuniform.train.orders import Orders
from nonuniform.train.recovery import Recovery
from nonuniform.train.roster import JobSetup, Roster
from nonuniform.train.saver import Result, Saver, savers
from nonuniform.train.slow import SlowRanks
from nonuniform.train.watch import beat_interval_s
from nonuniform.train.worker import RESCUE_S

TICK_S = 0.003
HEARING_TICK_S = 0.001
END_PATIENCE_S = 10.0
KEPT_TRANSACTIONS = 2
GRAIN_COST = 0.02  # above this an event says what whole sequences cost


@dataclass(frozen=True)
class Crew:
    """Those that the launcher works with."""

    roster: Roster
    board: Board
    chronicle: Chronicle
    saver: Saver
    orders: Orders
    interrupt: Interrupt


class Launcher:
    """One run, from the first process to the last commit."""

    def __init__(self, setup: JobSetup, crew: Crew, state: Control, reason: str) -> None:
        self.setup = setup
        self.crew = crew
        self.state = state
        self._reason = reason
        self.auditor = Auditor(crew.board)
        self.slow = SlowRanks(setup.job.health)
        run = setup.job.run
        limits = Limits(run.hang_timeout_s, run.start_timeout_s)
        beat_s = beat_interval_s(run.hang_timeout_s)
        self.listener = Listener(crew.roster, crew.board, limits, beat_s)
        self.recovery: Recovery | None = None
        self._noticed_s: dict[str, float] = {}
        self._signals = 0
        self._over: ev.Over | None = None
        self._queue: deque[ev.Event] = deque()
        self._written: deque[tuple[Record, Work]] = deque()
        self._under_way: set[Work] = set()

    # --- the loop

    def run(self) -> str:
        """The reason why nothing is left to do. Raises RunFailed when the run could not go on."""
        try:
            self._start_all()
            while self._over is None:
                self._look_around()
            self._let_them_leave()
        except StateWrong:
            raise
        except Exception:
            self._let_them_rescue()
            raise
        finally:
            self.crew.roster.end(END_PATIENCE_S)
        if self._over.failed:
            raise RunFailed(self._over.reason)
        return self._over.reason

    def _start_all(self) -> None:
        placement = self.state.record.placement
        for gpu in [*(member.gpu for member in placement.members()), *placement.spares]:
            self._feed(ev.Started(gpu, self._start(gpu, after=self.state.record.generation - 1)))
            if self.crew.interrupt.count:
                break
        if self.setup.job.checkpoint.every or self.setup.job.checkpoint.final:
            self.crew.saver.warm_up()
        self.state, orders = begin(self.state, self._reason)
        self._carry_out(orders)

    def _look_around(self) -> None:
        crew, tick_s = self.crew, TICK_S
        if self.state.phase is Phase.HEARING:
            tick_s = HEARING_TICK_S
        dead = list(crew.roster.wait_dead(tick_s))
        while (commit := self.listener.committed(self.state)) is not None:
            self._feed(commit)
            self._obey(crew.orders)
        for ended in self.listener.ended(self.state, dead):
            self._noticed_s[ended.gpu] = time.monotonic()
            self._feed(ended)
        for event in self.listener.said(self.state):
            self._feed(event)
        for event in self.listener.missing(self.state):
            self._feed(event)
        self._obey(crew.orders)
        self._listen_for_signals()
        self._check_units()
        self._hear_saver()
        self._feed(ev.Tick())
        crew.chronicle.tick()

    def _obey(self, orders: Orders) -> None:
        for event in orders.due(self.state):
            self._feed(event)

    def _feed(self, event: ev.Event) -> None:
        """Let the control hear an event, and all that follows from it."""
        self._queue.append(event)
        while self._queue:
            self.state, orders = advance(self.state, self._queue.popleft(), time.monotonic())
            self._carry_out(orders)

    def _carry_out(self, orders: tuple[ev.Order, ...]) -> None:
        for order in orders:
            self._HANDS[type(order)](self, order)

    def _listen_for_signals(self) -> None:
        interrupt = self.crew.interrupt
        if interrupt.count > self._signals:
            self._signals = interrupt.count
            reason = f"interrupted by {interrupt.name}"
            self._feed(ev.Interrupted(reason, save=interrupt.count == 1))

    def _let_them_rescue(self) -> None:
        """This launcher has failed: the processes write what they hold, as if it was gone."""
        roster = self.crew.roster
        with contextlib.suppress(Exception):  # without a store they know it by themselves
            self.crew.board.abandon(self.state.record.generation)
        limit_s = time.monotonic() + RESCUE_S
        while roster.living and time.monotonic() < limit_s:
            for process in roster.wait_dead(TICK_S):
                roster.remove(process)
            if self.crew.interrupt.count > self._signals + 1:  # somebody wants it to end now
                break

    def _let_them_leave(self) -> None:
        """The processes hear that it is over, finish what they write and end by themselves; where
        something went wrong only what is being written is waited for, and not for long."""
        crew, failed = self.crew, self._over is None or self._over.failed
        hang_s = 0.0 if failed else self.setup.job.run.hang_timeout_s
        limit_s = time.monotonic() + max(END_PATIENCE_S, hang_s)
        leaving = set() if failed else self.state.placed()
        while leaving & set(crew.roster.living) or crew.saver.busy():
            for process in crew.roster.wait_dead(TICK_S):
                crew.roster.remove(process)
                crew.saver.lose(process.gpu)
            for result in crew.saver.poll():
                self._tell_saved(result)
            if time.monotonic() > limit_s or crew.interrupt.count > self._signals:
                break
        self._check_units()
        for result in crew.saver.abandon():
            self._tell_saved(result)

    # --- what the control orders

    def _do_start(self, order: ev.Start) -> None:
        # The record that stands may speak of the process that was there before it.
        try:
            life = self._start(order.gpu, after=self.state.record.generation)
        except (OSError, EOFError) as error:  # no memory, no process, no file is to be had now
            life, words = self.crew.roster.lives[order.gpu], f"{type(error).__name__}: {error}"
            reason = f"its process could not be started: {words}"
            self._queue.append(ev.Started(order.gpu, life))
            self._queue.append(ev.Ended(order.gpu, life, reason))
            return
        self._queue.append(ev.Started(order.gpu, life))

    def _start(self, gpu: str, after: int) -> int:
        roster, generation = self.crew.roster, self.state.record.generation
        process = roster.start(gpu, after=after)
        self.crew.chronicle.event(
            "started" if process.life == 1 else "returned",
            f"process {process.pid} started",
            gpu=gpu,
            step=self.state.position.step,
            generation=generation,
            extra={"pid": process.pid},
        )
        return process.life

    def _do_kill(self, order: ev.Kill) -> None:
        crew, living = self.crew, self.crew.roster.living
        if order.gpu in living and living[order.gpu].life == order.life:
            self._noticed_s[order.gpu] = time.monotonic()
            crew.saver.lose(order.gpu)
            crew.roster.fence(order.gpu)
            crew.board.forget_process(order.gpu, order.life)

    def _do_read_votes(self, order: ev.ReadVotes) -> None:
        votes = self.crew.board.votes(order.generation, order.work, list(self.state.members))
        self._queue.append(ev.Voted(order.generation, order.work, votes))

    def _do_propose(self, order: ev.Propose) -> None:
        board, generation, work = self.crew.board, order.generation, order.work
        self._under_way.add(work)
        outcome = board.decide(generation, work, order.outcome)
        self._tell_outcome(order, outcome)
        commit = is_commit(outcome)
        votes = board.votes(generation, work, list(self.state.members)) if commit else {}
        self._queue.append(ev.Decided(generation, work, outcome, votes))

    def _tell_outcome(self, order: ev.Propose, outcome: str) -> None:
        work = order.work
        what = "validation after step" if work.kind == "validate" else "step"
        reason = order.reason
        if outcome != order.outcome:
            reason = f"the ranks had decided before the launcher saw that {reason}"
        text = f"{what} {work.step}: {outcome}: {reason}"
        step, generation = work.step, order.generation
        self.crew.chronicle.event("outcome", text, step=step, generation=generation)

    def _do_write_down(self, order: ev.WriteDown) -> None:
        record, work, chronicle = order.record, order.work, self.crew.chronicle
        if work.kind == "train":
            ids = self.setup.windows.step_ids(work.step)
            shown = ids if self.setup.job.run.log_sample_ids else None
            chronicle.step(work.step, record, order.votes, len(ids), shown)
            self._after_step(record, work.step)
            for event in self.slow.after(work.step, record, order.votes, chronicle):
                self._queue.append(event)
        else:
            chronicle.validation(work.step, record, order.votes)
        self.listener.progressed()
        if self.recovery is not None:
            self.recovery.finish(self.crew.board, record, chronicle)
            self.recovery = None
        # The one before may still be read by a rank that is late; the one before that by nobody.
        self._written.append((record, work))
        if len(self._written) > KEPT_TRANSACTIONS:
            self._forget(*self._written.popleft())

    def _after_step(self, record: Record, step: int) -> None:
        run = self.setup.job.run
        if run.check_units:
            self.auditor.expect(step, record)
        if self.setup.job.checkpoint.due(step, run.steps):
            position = Position(step, self.state.position.validated)
            gpus = savers(self.setup.plan, holdings_of(record.placement))
            self.crew.saver.expect(record.generation, position, gpus)

    def _do_pause(self, order: ev.Pause) -> None:
        self.crew.board.request_pause(order.generation)

    def _do_end_generation(self, order: ev.EndGeneration) -> None:
        self.crew.board.end_generation(order.generation, order.reason)
        now_s = time.monotonic()
        if self.recovery is None:  # else one more change before the last has come to a commit
            moments = [self._noticed_s.get(gpu, now_s) for gpu in self.state.lost]
            noticed_s = min(moments, default=now_s)
            self.recovery = Recovery(noticed_s, self.state.work.step)

    def _do_publish(self, order: ev.Publish) -> None:
        crew, record = self.crew, order.record
        crew.board.publish(record)
        self._forget_generation(record.generation - 1)  # the ranks do not wait for that
        self.listener.progressed()
        if self.recovery is not None:
            self._note_losses(self.recovery, order)
            self.recovery.published_s = time.monotonic()
        if record.task == "leave":
            return
        kind = "generation" if record.task == "train" else "saving"
        placed = {str(entry.replica): list(entry.gpus) for entry in record.placement.replicas}
        crew.chronicle.event(
            kind,
            order.reason,
            step=record.step,
            generation=record.generation,
            extra={"placement": placed, "spares": list(record.placement.spares)},
        )
        if record.task == "save":
            position = Position(record.step, record.validated)
            gpus = savers(self.setup.plan, record.holdings)
            crew.saver.expect(record.generation, position, gpus)
        else:
            self._tell_grain(record)

    def _note_losses(self, recovery: Recovery, order: ev.Publish) -> None:
        for gpu in order.lost:
            noticed_s = self._noticed_s.pop(gpu, time.monotonic())
            recovery.add_loss(gpu, self.crew.roster.take_killed_s(gpu), noticed_s)
        recovery.joined += order.joined

    def _forget_generation(self, generation: int) -> None:
        """What nobody will ask for any more of the generation that ended."""
        board = self.crew.board
        board.forget_generation(generation, self.crew.roster.lives)
        while self._written:
            self._forget(*self._written.popleft())
        gpus = list(self.crew.roster.lives)
        for work in self._under_way:
            board.forget(generation, work, gpus)
        self._under_way.clear()

    def _forget(self, record: Record, work: Work) -> None:
        gpus = [member.gpu for member in record.placement.members()]
        self.crew.board.forget(record.generation, work, gpus)

    def _do_look_for_checkpoint(self, order: ev.LookForCheckpoint) -> None:
        self.crew.saver.recall(self.setup.job.run.hang_timeout_s)

    def _do_rewind(self, order: ev.Rewind) -> None:
        self.crew.chronicle.rewind(order.position, order.reason, order.lost_steps)

    def _do_tell(self, order: ev.Tell) -> None:
        extra: dict[str, Any] = dict(order.extra)
        if order.kind == "failed" and order.gpu is not None:
            extra["pid"] = self.crew.roster.last_pid(order.gpu)
            self.crew.saver.lose(order.gpu)
        self.crew.chronicle.event(
            order.kind,
            order.reason,
            gpu=order.gpu,
            step=self.state.position.step + (order.kind == "failed"),
            generation=order.generation,
            extra=extra,
        )

    def _do_over(self, order: ev.Over) -> None:
        self._over = order

    _HANDS: dict[type, Callable[..., None]] = {  # noqa: RUF012
        ev.Start: _do_start,
        ev.Kill: _do_kill,
        ev.ReadVotes: _do_read_votes,
        ev.Propose: _do_propose,
        ev.WriteDown: _do_write_down,
        ev.Pause: _do_pause,
        ev.EndGeneration: _do_end_generation,
        ev.Publish: _do_publish,
        ev.LookForCheckpoint: _do_look_for_checkpoint,
        ev.Rewind: _do_rewind,
        ev.Tell: _do_tell,
        ev.Over: _do_over,
    }

    # --- what is looked at besides

    def _check_units(self) -> None:
        complaint = self.auditor.complaint(self.state.record)
        if complaint:
            self.crew.chronicle.event("unit_mismatch", complaint, step=self.state.position.step)
            raise StateWrong(complaint)

    def _hear_saver(self) -> None:
        saver = self.crew.saver
        for result in saver.poll():
            self._tell_saved(result)
        if (answer := saver.recalled()) is not None:
            found, rejected = answer
            for name, reason in rejected:
                self.crew.chronicle.event("checkpoint_rejected", f"{name}: {reason}")
            self._feed(found)

    def _tell_saved(self, result: Result) -> None:
        kind = "checkpoint_failed" if result.problem else "checkpoint"
        words = result.problem or f"checkpoint {result.name} is complete"
        saving = (self.state.phase, self.state.record.generation)
        if saving == (Phase.SAVING, result.generation):
            self._feed(ev.Saved(result.generation, result.problem))
            if result.problem:
                return
        self.crew.chronicle.event(kind, words, step=result.step, generation=result.generation)

    def _tell_grain(self, record: Record) -> None:
        degrees = [float(degree) for degree in record.placement.degrees]
        cost = share_grain_cost(degrees, record.placement.shares)
        if cost > GRAIN_COST:
            shares = "+".join(str(share) for share in record.placement.shares)
            self.crew.chronicle.event(
                "grain",
                f"whole sequences ({shares}) make the step {cost:.1%} longer than exact shares",
                step=self.state.position.step,
                generation=record.generation,
                extra={"cost": cost},
            )
