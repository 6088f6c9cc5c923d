"""What the launcher of a miniature run can do next, with the real control.

In: a world. Out: (label, must, world after it). Orders are carried out in order, each operation on
the board is a move of its own; what touches nothing else is done on the way. As in `train.launcher`
and `train.listener`. Reports are heard together, once all are there: one that is heard changes
nothing before the last one, and that of a process that dies meanwhile is dropped with it. That a
rank has settled is heard only where it matters: while somebody lends or leaves.

With `eager` rules some orders are carried out together with what led to them. The end of a
generation, its successor and a wish to pause only allow more, so being early takes nothing away
from anybody; votes are read right after the event because of which they are read: what could happen
between the two could as well happen before both, since hearing an event looks at nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from miniature.book import Book
from miniature.judge import Judge
from miniature.processes import Move, Processes
from miniature.world import Budget, Held, Pages, Proc, Rules, World, check

from nonuniform.protocol.outcome import is_commit
from nonuniform.protocol.state import Phase

Key = tuple[Any, ...]
LOCAL = ("write", "kill", "start", "look", "rewind", "over")
EARLY = (*LOCAL, "end", "publish", "pause")


class Launching:
    def __init__(self, book: Book, rules: Rules, processes: Processes, budget: Budget) -> None:
        self.book = book
        self.rules = rules
        self.processes = processes
        self.judge = Judge(book, budget)

    def moves(self, world: World) -> Iterator[Move]:
        if world.todo:
            order = world.todo[0]
            rest = world._replace(todo=world.todo[1:])
            yield f"launcher: {order}", True, self.go_on(self._carry_out(rest, order))
            return
        if world.queue:
            event = world.queue[0]
            rest = world._replace(queue=world.queue[1:])
            yield f"launcher hears {event}", True, self.feed(rest, event)
            if self.rules.patient:
                return
        for event in self._events(world):
            after = world
            if event[0] == "ended":
                proc = next(p for p in world.procs[event[1]] if p.ended and not p.fenced)
                after = world.with_proc(event[1], proc, None)
            yield f"launcher hears {event}", True, self.feed(after, event)
        yield from self._hear_reports(world)

    # --- events

    def feed(self, world: World, event: Key) -> World:
        """Let the control hear an event; its orders are next."""
        number, orders = self.book.hear(world.control, event)
        world = self.go_on(world._replace(control=number, todo=world.todo + orders))
        if self.rules.eager and world.todo and world.todo[0][0] == "votes":
            order = world.todo[0]
            world = self.go_on(self._carry_out(world._replace(todo=world.todo[1:]), order))
        return world

    def go_on(self, world: World) -> World:
        """Do what nobody else can see, and hear the answers."""
        local = EARLY if self.rules.eager else LOCAL
        while not world.over:
            if world.todo and world.todo[0][0] in local:
                order = world.todo[0]
                world = self._carry_out(world._replace(todo=world.todo[1:]), order)
            elif not world.todo and world.queue and self.rules.patient:
                number, orders = self.book.hear(world.control, world.queue[0])
                world = world._replace(control=number, todo=orders, queue=world.queue[1:])
            else:
                break
        return world

    def _events(self, world: World) -> Iterator[Key]:
        state = self.book.controls[world.control]
        for gpu, crowd in enumerate(world.procs):
            for proc in crowd:
                if proc.fenced:
                    continue
                if proc.ended:
                    yield ("ended", gpu, proc.life, proc.ended == "raised")
                name = self.book.grid.names[gpu]
                known = name in state.ready or name in state.leaving
                known = known or state.record.lives.get(name) == proc.life
                if proc.warm and state.living.get(name) == proc.life and not known:
                    yield ("ready", gpu, proc.life)
        page = world.page(state.record.generation)
        if page is not None:
            yield from self._words(world, page)
        if any(gpu not in state.living for gpu in state.waiting):
            yield ("tick",)

    def _words(self, world: World, page: Pages) -> Iterator[Key]:
        state = self.book.controls[world.control]
        if state.phase is Phase.RUNNING and state.work.kind != "done":
            ballot = page.ballot((state.work.kind, state.work.step))
            if is_commit(ballot.outcome):
                yield ("decided", page.number, ballot.work, ballot.outcome, ballot.votes)
        if state.phase is Phase.RUNNING and (state.leaving or state.needed() - set(state.members)):
            for gpu in sorted(page.settled):
                if self.book.grid.names[gpu] not in state.settled:
                    yield ("settled", gpu, page.number)
                    break  # in order; the last one counts
        if state.phase is Phase.SAVING and page.parts >= self.book.pages[page.record].savers:
            yield ("saved", page.number)

    def _hear_reports(self, world: World) -> Iterator[Move]:
        state = self.book.controls[world.control]
        page = world.page(state.record.generation)
        if state.phase is not Phase.HEARING or page is None:
            return
        number = self.book.grid.number
        wanted = {(number[gpu], state.living[gpu]) for gpu in state.placed()}
        said = {(held.gpu, held.life): held for held in page.reports}
        if self.rules.hears_singly:
            for key in sorted(wanted & set(said)):
                if self.book.grid.names[key[0]] not in state.reports:
                    after = self._hear(world, [said[key]])
                    yield f"launcher hears the report of {key}", True, after
        elif wanted <= set(said):
            held = [said[key] for key in sorted(wanted)]
            yield "launcher hears all reports", True, self._hear(world, held)

    def _hear(self, world: World, reports: list[Held]) -> World:
        page = world.pages[-1]
        for held in reports:
            self._check_report(world, page, held)
            said = (held.gpu, held.life, page.number, held.units, len(held.past))
            control, orders = self.book.hear(world.control, ("reported", *said))
            world = world._replace(control=control, todo=world.todo + orders)
        return self.go_on(world)

    def _check_report(self, world: World, page: Pages, held: Held) -> None:
        """Who took part in the generation has done all that was committed, and nothing else."""
        record = self.book.pages[page.record]
        if held.gpu in page.settled and record.record.task == "train":
            check(
                held.past == world.ledger,
                f"gpu {held.gpu} reports {held.past}, committed is {world.ledger}",
            )
            check(
                world.logged[0] == len(world.ledger),
                f"{world.logged} is logged, committed is {world.ledger}",
            )

    # --- orders

    def _carry_out(self, world: World, order: Key) -> World:
        carry: Any = getattr(self, f"_do_{order[0]}")
        after: World = carry(world, *order[1:])
        return after

    def _answer(self, world: World, event: Key) -> World:
        return world._replace(queue=(*world.queue, event))

    def _do_votes(self, world: World, generation: int, work: Any) -> World:
        page = world.page(generation)
        assert page is not None
        return self._answer(world, ("voted", generation, work, page.ballot(work).votes))

    def _do_propose(self, world: World, generation: int, work: Any, outcome: str) -> World:
        after = self.processes.decide(world, generation, work, outcome)
        page = after.page(generation)
        assert page is not None
        ballot = page.ballot(work)
        votes = ballot.votes if is_commit(ballot.outcome) else frozenset()
        return self._answer(after, ("decided", generation, work, ballot.outcome, votes))

    def _do_pause(self, world: World, generation: int) -> World:
        page = world.page(generation)
        assert page is not None
        return world.with_page(page._replace(pause=True))

    def _do_end(self, world: World, generation: int) -> World:
        page = world.page(generation)
        assert page is not None
        return world.with_page(page._replace(over=True))

    def _do_write(self, world: World, generation: int, work: Any, votes: Any) -> World:
        kind, step = work
        steps, validated = world.logged
        if kind == "train":
            check(step == steps + 1, f"the log has {steps} steps, and {step} is written")
            made_by = world.ledger[step - 1 : step]
            check(made_by == (generation,), f"step {step} is logged of {generation}: {made_by}")
            world = world._replace(logged=(step, validated))
            if step == self.book.size.checkpoint:
                world = world._replace(shelf=(world.ledger[:step], validated))
        else:
            check((step, generation) in world.checked, f"validation {step} is logged")
            check(validated != step, f"validation {step} is logged twice")
            world = world._replace(logged=(steps, step))
        return self._forget(world, generation, {(kind, step - self.rules.forget_back)})

    def _forget(self, world: World, generation: int, works: set[tuple[str, int]]) -> World:
        page = world.page(generation)
        return world if page is None else world.with_page(page.without(works))

    def _do_publish(self, world: World, number: int) -> World:
        record = self.book.pages[number].record
        last = world.pages[-1]
        check(record.generation == last.number + 1, f"{record.generation} follows {last.number}")
        state = self.book.controls[world.control]
        before = world.page(last.number)
        for gpu, (units, _) in record.holdings.items():
            held = Held(self.book.grid.number[gpu], state.living.get(gpu, 0), units, world.ledger)
            check(
                before is not None and held in before.reports,
                f"generation {record.generation} counts on {held}, which was not reported",
            )
        done = [(k, n - b) for k, n in self._positions(world) for b in (-1, 0, 1)]
        world = self._forget(world, last.number, set(done))
        world = world.with_page(world.pages[-1]._replace(pause=False, settled=frozenset()))
        return world._replace(pages=(*world.pages, Pages(record.generation, number)))

    def _positions(self, world: World) -> list[tuple[str, int]]:
        position = self.book.controls[world.control].position
        return [("train", position.step), ("validate", position.validated)]

    def _do_kill(self, world: World, gpu: int, life: int) -> World:
        for proc in world.procs[gpu]:
            if proc.life == life and not proc.fenced:
                fenced = proc._replace(fenced=world.pages[-1].number)
                lives_on = self.rules.zombies and proc.alive
                return world.with_proc(gpu, proc, fenced if lives_on else None)
        return world

    def _do_start(self, world: World, gpu: int) -> World:
        life = world.lives[gpu] + 1
        after = self.book.controls[world.control].record.generation - self.rules.start_back
        proc = Proc(life, "start", after, warm=False)
        crowd = (*world.procs[gpu], proc)
        world = world._replace(
            procs=(*world.procs[:gpu], crowd, *world.procs[gpu + 1 :]),
            lives=(*world.lives[:gpu], life, *world.lives[gpu + 1 :]),
        )
        return self._answer(world, ("started", gpu, life))

    def _do_look(self, world: World) -> World:
        if world.shelf is None:
            return self._answer(world, ("found",))
        past, validated = world.shelf
        return self._answer(world, ("found", len(past), validated))

    def _do_rewind(self, world: World, step: int, validated: int) -> World:
        check(world.shelf is not None and len(world.shelf[0]) == step, f"back to {step}")
        return world._replace(
            ledger=world.ledger[:step],
            checked=tuple(one for one in world.checked if one[0] <= validated),
            logged=(step, validated),
        )

    def _do_over(self, world: World, failed: bool, kind: str) -> World:
        self.judge.check_verdict(world, failed, kind)
        return world._replace(over=f"{'failed' if failed else 'done'}: {kind}")
