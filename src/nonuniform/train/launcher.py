"""The launcher: starts one process per GPU, knows who lives, decides, publishes, writes the log.

In: a job, its corpus, scripted events. Out: an exit reason; files through the chronicle. One loop,
one thread: it sleeps until a process ends or a tick has passed, then reads the board. What to
decide is pure (`commit.decide`, `regroup.next_record`); this file does it.
DESIGN "The step is a transaction", "Generations". Knows nothing of tensors.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from nonuniform.cluster.health import ClusterState, HealthEvent
from nonuniform.cluster.topology import parse_gpu
from nonuniform.config import ScheduledEvent
from nonuniform.errors import RunFailed
from nonuniform.placement.ntp import NtpOptions
from nonuniform.placement.shares import share_grain_cost
from nonuniform.train.audit import Auditor
from nonuniform.train.chronicle import Chronicle
from nonuniform.train.commit import Outcome, Work, WorkOptions, decide, work_after
from nonuniform.train.interrupt import Interrupt
from nonuniform.train.membership import (
    ABORT,
    COMMIT,
    COMMIT_AND_REGROUP,
    Board,
    Record,
    Report,
    is_commit,
)
from nonuniform.train.recovery import Recovery
from nonuniform.train.regroup import Position, next_record, transfer_of
from nonuniform.train.roster import JobSetup, Roster, how_it_ended
from nonuniform.train.spawn import ForkedProcess, Spawner

TICK_S = 0.003
REPORT_TICK_S = 0.001
END_PATIENCE_S = 10.0
GRAIN_COST = 0.02  # above this an event says what whole sequences cost


class Launcher:
    """One run, from the first process to the last commit."""

    def __init__(
        self,
        setup: JobSetup,
        board: Board,
        chronicle: Chronicle,
        schedule: Sequence[ScheduledEvent],
        interrupt: Interrupt,
        spawner: Spawner,
    ) -> None:
        self.setup = setup
        self.interrupt = interrupt
        self.job = setup.job
        self.board = board
        self.chronicle = chronicle
        self.schedule = list(schedule)
        self.roster = Roster(setup, spawner)
        self.auditor = Auditor(board)
        parallel = self.job.parallel
        self.cluster = ClusterState(parallel.replicas, parallel.degree)
        self.options = WorkOptions(self.job.run.steps, self.job.run.val_every)
        self.position = Position(0, 0)
        self.recovery: Recovery | None = None
        self._settled = False
        self._progress_s = time.monotonic()
        self._exceptions: dict[Work, set[int]] = {}
        self._exception: tuple[Work, str] | None = None
        self.record, self._reason = self._next_record(1, [])

    # --- the loop

    def run(self) -> None:
        """Returns when all work is committed. Raises RunFailed when it cannot go on."""
        try:
            for member in self.record.placement.members():
                self._start(member.gpu)
                self._check_signal()
            self._publish(self.record, self._reason)
            while not self._done():
                dead = self.roster.wait_dead(TICK_S)
                self._advance()
                self._bury(dead)
                self._play_schedule()
                self._welcome()
                self._check_units()
                self._check()
                self.chronicle.tick()
            self._let_them_end()
        finally:
            self.roster.end(END_PATIENCE_S)

    def _let_them_end(self) -> None:
        """All is committed: the members say their last hashes and end by themselves."""
        limit_s = time.monotonic() + END_PATIENCE_S
        while self._living_members() and time.monotonic() < limit_s:
            for process in self.roster.wait_dead(TICK_S):
                self.roster.remove(process)
        self._check_units()

    def _lenders(self) -> set[str]:
        """Spares that the generation's members need to become complete."""
        sources = {move.source for move in transfer_of(self.setup.plan, self.record).moves}
        return sources & set(self.record.placement.spares)

    def _living_placed(self) -> set[str]:
        """Members and spares: all that the record speaks of."""
        return self._living_members() | (
            set(self.record.placement.spares) & set(self.roster.living)
        )

    def _living_members(self) -> set[str]:
        return {m.gpu for m in self.record.placement.members()} & set(self.roster.living)

    def _done(self) -> bool:
        return self._next_work().kind == "done"

    def _next_work(self) -> Work:
        return work_after(self.position.step, self.position.validated, self.options)

    def _check_signal(self) -> None:
        self.interrupt.check(lambda: f"after step {self.position.step}")

    def _check(self) -> None:
        self._check_signal()
        idle_s = time.monotonic() - self._progress_s
        if idle_s > self.job.run.hang_timeout_s:
            raise RunFailed(
                f"no progress for {idle_s:.0f} s (hang_timeout_s = "
                f"{self.job.run.hang_timeout_s:g}) after step {self.position.step}"
            )

    # --- processes

    def _start(self, gpu: str) -> None:
        process = self.roster.start(gpu, after=self.record.generation - 1)
        self.chronicle.event(
            "started" if process.life == 1 else "returned",
            f"process {process.pid} started",
            gpu=gpu,
            step=self.position.step,
            generation=self.record.generation,
            extra={"pid": process.pid},
        )

    def _bury(self, ended: list[ForkedProcess]) -> None:
        """Take note of processes that ended; members of the generation end it."""
        dead = [process for process in ended if self.roster.is_current(process)]
        if not dead or self._done():
            return
        noticed_s = time.monotonic()
        needed = self._living_members() | (set() if self._all_settled() else self._lenders())
        hurt = [process for process in dead if process.gpu in needed]
        for process in dead:
            self._bury_one(process)
        if hurt:
            names = ", ".join(process.gpu for process in hurt)
            self._regroup(f"{names} failed", noticed_s, hurt)

    def _bury_one(self, process: ForkedProcess) -> None:
        self.roster.remove(process)
        self.cluster = self.cluster.apply(HealthEvent("failed", parse_gpu(process.gpu)))
        words = self.board.read_last_words(process.gpu, process.life)
        self.chronicle.event(
            "failed",
            words or how_it_ended(process),
            gpu=process.gpu,
            step=self.position.step + 1,
            generation=self.record.generation,
            extra={"pid": process.pid},
        )
        if words and self.record.placement.where(process.gpu):
            self._count_exception(words)

    def _count_exception(self, words: str) -> None:
        """An exception that comes again would take one GPU after the other: end the run."""
        work = self._next_work()
        self._exception = (work, f": {words}")
        generations = self._exceptions.setdefault(work, set())
        generations.add(self.record.generation)
        if len(generations) > 1:
            raise RunFailed(self._tell_exception(work, f" again: {words}"))

    def _tell_exception(self, work: Work, words: str) -> str:
        validate = work.kind == "validate"
        what = "validation after step" if validate else "step"
        ids = self._validation_ids() if validate else self.setup.windows.step_ids(work.step)
        samples = ", ".join(map(str, ids))
        return f"{what} {work.step} failed by an exception{words}; its samples: {samples}"

    # --- commits

    def _advance(self) -> None:
        """Write down what was committed since the last look."""
        while not self._done():
            work = self._next_work()
            outcome = self.board.outcome(self.record.generation, work)
            if outcome is None or not is_commit(outcome):
                return
            self._write_down(work)
            if outcome == COMMIT_AND_REGROUP and not self._done():
                self._regroup("a GPU joins", time.monotonic(), [])

    def _write_down(self, work: Work) -> None:
        record = self.record
        gpus = [member.gpu for member in record.placement.members()]
        votes = self.board.votes(record.generation, work, gpus)
        if work.kind == "train":
            self.position = Position(work.step, self.position.validated)
            ids = self.setup.windows.step_ids(work.step)
            shown = ids if self.job.run.log_sample_ids else None
            self.chronicle.step(work.step, record, votes, len(ids), shown)
            if self.job.run.check_units:
                self.auditor.expect(work.step, record)
            self._stop_if_not_finite(work.step, all(vote.finite for vote in votes.values()))
        else:
            self.position = Position(self.position.step, work.step)
            self.chronicle.validation(work.step, record, votes)
        self._settled = True
        self._progress_s = time.monotonic()
        if self.recovery is not None:
            self.recovery.finish(self.board, record, self.chronicle)
            self.recovery = None
        if work.step > 1:
            self.board.forget(record.generation, Work(work.kind, work.step - 2), gpus)

    def _stop_if_not_finite(self, step: int, finite: bool) -> None:
        if not finite and self.job.run.nonfinite == "stop":
            raise RunFailed(f'step {step}: loss or gradient not finite ([run] nonfinite = "stop")')

    def _validation_ids(self) -> tuple[int, ...]:
        return self.setup.windows.validation_ids(self.job.run.val_sequences)

    def _check_units(self) -> None:
        complaint = self.auditor.complaint(self.record)
        if complaint:
            self.chronicle.event("unit_mismatch", complaint, step=self.position.step)
            raise RunFailed(complaint)

    # --- generations

    def _next_record(self, generation: int, reports: list[Report]) -> tuple[Record, str]:
        options = NtpOptions(self.job.parallel.min_degree, self.job.batch.sequences)
        try:
            return next_record(
                self.setup.plan, options, self.cluster, reports, self.position, generation
            )
        except RunFailed as error:
            if self._exception is None or self._exception[0] != self._next_work():
                raise
            raise RunFailed(f"{error}; {self._tell_exception(*self._exception)}") from None

    def _regroup(self, reason: str, noticed_s: float, hurt: list[ForkedProcess]) -> None:
        """End the generation: settle what is under way, hear the survivors, publish the next."""
        self._settle_outcome()
        if self._done():
            return
        self.board.end_generation(self.record.generation, reason)
        if self.recovery is None:  # else one more change before the last has come to a commit
            self.recovery = Recovery(noticed_s, self._next_work().step)
        for process in hurt:
            killed_s = self.roster.take_killed_s(process.gpu)
            self.recovery.add_loss(process.gpu, killed_s, noticed_s)
        reports = self._hear_survivors(self.recovery)
        self.recovery.joined += self._admit_ready()
        record, why = self._next_record(self.record.generation + 1, reports)
        self._forget_generation()
        self._publish(record, why)

    def _settle_outcome(self) -> None:
        """Decide the work under way; votes that were complete are a commit, whoever died since."""
        members = [member.gpu for member in self.record.placement.members()]
        while not self._done():
            work = self._next_work()
            votes = self.board.votes(self.record.generation, work, members)
            verdict, _ = decide(
                votes,
                self.roster.living,
                members,
                self.record.generation,
                work.step,
                self.record.digest,
            )
            wish = COMMIT if verdict == Outcome.COMMIT else ABORT
            outcome = self.board.decide(self.record.generation, work, wish)
            if not is_commit(outcome):
                return
            self._write_down(work)

    def _hear_survivors(self, recovery: Recovery) -> list[Report]:
        """What each living member or spare holds, once it has given up; more may die meanwhile."""
        generation = self.record.generation
        reports: dict[str, Report] = {}
        limit_s = time.monotonic() + self.job.run.hang_timeout_s
        while waiting := self._living_placed() - set(reports):
            for gpu in sorted(waiting):
                if report := self.board.read_report(generation, gpu, self.roster.lives[gpu]):
                    reports[gpu] = report
            for process in self.roster.wait_dead(REPORT_TICK_S):
                self._bury_one(process)
                killed_s = self.roster.take_killed_s(process.gpu)
                recovery.add_loss(process.gpu, killed_s, time.monotonic())
            self._check_signal()
            if time.monotonic() > limit_s:
                raise RunFailed(
                    f"{', '.join(sorted(waiting))} did not give up generation {generation} within "
                    f"hang_timeout_s = {self.job.run.hang_timeout_s:g}"
                )
        return [report for report in reports.values() if report.gpu in self.roster.living]

    def _forget_generation(self) -> None:
        """What nobody will ask for any more of the generation that ended."""
        gpus, generation = list(self.roster.lives), self.record.generation
        self.board.forget_generation(generation, self.roster.lives)
        for back in (-1, 0, 1):
            self.board.forget(generation, Work("train", self.position.step - back), gpus)
            self.board.forget(generation, Work("validate", self.position.validated - back), gpus)

    def _publish(self, record: Record, reason: str) -> None:
        self.record = record
        self._settled = False
        self.board.publish(record)
        self._progress_s = time.monotonic()
        if self.recovery is not None:
            self.recovery.published_s = time.monotonic()
        self.chronicle.event("generation", reason, step=record.step, generation=record.generation)
        self._tell_grain(record)

    def _tell_grain(self, record: Record) -> None:
        cost = share_grain_cost(
            [float(d) for d in record.placement.degrees], record.placement.shares
        )
        if cost > GRAIN_COST:
            shares = "+".join(str(share) for share in record.placement.shares)
            self.chronicle.event(
                "grain",
                f"whole sequences ({shares}) make the step {cost:.1%} longer than exact shares",
                step=self.position.step,
                generation=record.generation,
                extra={"cost": cost},
            )

    # --- failures and returns that were ordered

    def _play_schedule(self) -> None:
        """Orders for step S are carried out while S runs: after S - 1 was committed."""
        due = [event for event in self.schedule if event.step <= self.position.step + 1]
        for event in due:
            alive = event.gpu in self.roster.living
            if event.kind == "failed" and not alive:
                self.schedule.remove(event)
                self.chronicle.event("order", "nothing to kill: it had failed", gpu=event.gpu)
            elif event.kind == "failed" and self._all_settled():
                self.schedule.remove(event)
                self.roster.kill(event.gpu)
            elif event.kind == "returned" and not alive:
                self.schedule.remove(event)
                self._start(event.gpu)

    def _all_settled(self) -> bool:
        """Whether every member holds its shard; blows are not dealt while a group forms."""
        if not self._settled:
            self._settled = all(
                self.board.read_settled(self.record.generation, member.gpu)
                for member in self.record.placement.members()
            )
        return self._settled

    def _ready(self) -> tuple[str, ...]:
        """Processes that came back and wait to be placed."""
        lives = self.roster.lives
        return tuple(g for g in sorted(self.roster.warming) if self.board.is_ready(g, lives[g]))

    def _welcome(self) -> None:
        """Somebody is ready to join: let the generation end at its next commit."""
        if self._ready():
            self.board.request_pause(self.record.generation)

    def _admit_ready(self) -> tuple[str, ...]:
        ready = self._ready()
        for gpu in ready:
            self.roster.warming.discard(gpu)
            self.cluster = self.cluster.apply(HealthEvent("returned", parse_gpu(gpu)))
        return ready
