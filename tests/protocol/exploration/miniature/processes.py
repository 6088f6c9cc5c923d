"""What the processes of a miniature run can do next, one operation on the board at a time.

In: a world. Out: (label, must, world after it). `must`: nothing can keep it from happening; other
moves may happen, as the end of work for which somebody has not come. As in `train.worker` and
`train.cycle`; the machine inside is the real `protocol.rank`. Every move checks what has to hold
where it is made. Two operations are one move where the first can only be seen by the process
itself: that it happened later is the same.

    start --ready--> next --record n--> enter --> cycle (WORK, COUNT, LOOK ...) --> tell --> next
                                   +--> lend, save ----------------------------------^
"""

from __future__ import annotations

from collections.abc import Iterator

from miniature.book import Book, Page
from miniature.world import Held, Pages, Proc, Rules, World, check

from nonuniform.protocol.outcome import is_commit
from nonuniform.protocol.rank import ENDS, Stage

Move = tuple[str, bool, World]


class Processes:
    def __init__(self, book: Book, rules: Rules) -> None:
        self.book = book
        self.rules = rules
        self._modes = {
            "start": self._start,
            "next": self._next,
            "enter": self._enter,
            "lend": self._lend,
            "save": self._save,
            "tell": self._tell,
            "cycle": self._cycle,
        }

    def moves(self, world: World) -> Iterator[Move]:
        for gpu, crowd in enumerate(world.procs):
            for proc in crowd:
                if proc.mode != "dead":
                    yield from self.moves_of(world, gpu, proc)

    def moves_of(self, world: World, gpu: int, proc: Proc) -> Iterator[Move]:
        for label, must, after in self._modes[proc.mode](world, gpu, proc):
            yield f"{self._name(gpu, proc)} {label}", must and not proc.fenced, after

    def _name(self, gpu: int, proc: Proc) -> str:
        return f"{self.book.grid.names[gpu]}.{proc.life}" + (" (given up)" if proc.fenced else "")

    def _start(self, world: World, gpu: int, proc: Proc) -> Iterator[Move]:
        yield "is ready", True, world.with_proc(gpu, proc, proc._replace(mode="next", warm=True))

    # --- between generations

    def _next(self, world: World, gpu: int, proc: Proc) -> Iterator[Move]:
        page = world.page(proc.generation + 1)
        if page is None or page.record < 0:
            return
        record = self.book.pages[page.record]
        generation = record.record.generation
        life = record.lives.get(gpu)
        placed = proc.placed or life == proc.life
        if self.rules.checks_life and life != proc.life and (life is not None or proc.placed):
            check(bool(proc.fenced), f"{self._name(gpu, proc)} is well and was left out")
            yield f"is left out of {generation}", True, world.with_proc(gpu, proc, None)
            return
        check(
            not proc.fenced or not placed or generation <= proc.fenced,
            f"{self._name(gpu, proc)} enters generation {generation}",
        )
        new = proc._replace(generation=generation, placed=placed)
        task = record.record.task
        if task == "save":
            new = new._replace(mode="save")
        elif gpu in record.members:
            new = new._replace(mode="enter", rank=0)
        elif len(proc.past) != record.record.step or record.record.load:
            new = new._replace(mode="lend", units=0, past=())
        else:
            new = new._replace(mode="lend")
        held = Held(gpu, proc.life, new.units, new.past)
        world = world.with_page(page._replace(entered=page.entered | {held}))
        yield f"reads record {generation}", True, world.with_proc(gpu, proc, new)

    def _lend(self, world: World, gpu: int, proc: Proc) -> Iterator[Move]:
        yield "lent", True, world.with_proc(gpu, proc, proc._replace(mode="tell"))

    def _save(self, world: World, gpu: int, proc: Proc) -> Iterator[Move]:
        page, record = self._read(world, proc)
        new = proc._replace(mode="tell")
        if gpu in record.savers and proc.units:
            check(proc.past == world.ledger, f"gpu {gpu} saves what was not committed")
            world = world.with_page(page._replace(parts=page.parts | {gpu}))
        yield "saved", True, world.with_proc(gpu, proc, new)

    def _tell(self, world: World, gpu: int, proc: Proc) -> Iterator[Move]:
        page, _ = self._read(world, proc)
        said = Held(gpu, proc.life, proc.units, proc.past)
        world = world.with_page(page._replace(reports=page.reports | {said}))
        yield "reports", True, world.with_proc(gpu, proc, proc._replace(mode="next", rank=0))

    def _read(self, world: World, proc: Proc) -> tuple[Pages, Page]:
        page = world.page(proc.generation)
        assert page is not None
        return page, self.book.pages[page.record]

    def _enter(self, world: World, gpu: int, proc: Proc) -> Iterator[Move]:
        page, record = self._read(world, proc)
        if page.over:
            yield "gives up", True, world.with_proc(gpu, proc, proc._replace(mode="tell"))
        entered = {
            held.gpu: held for held in page.entered if record.lives.get(held.gpu) == held.life
        }
        sources = record.senders.get(gpu, frozenset())
        if sources - set(entered):
            return
        past = self._past(world, gpu, proc, record, entered)
        members, step = len(record.members), record.record.step
        rank = self.book.settled(members, step, record.record.validated)
        new = proc._replace(mode="cycle", rank=rank, units=record.units[gpu], past=past)
        needed = record.members | record.all_senders
        here = all(self._is_there(world, one, proc.generation, record) for one in needed)
        world = world.with_page(page._replace(settled=page.settled | {gpu}))
        yield "settles", here, world.with_proc(gpu, proc, new)

    def _past(
        self, world: World, gpu: int, proc: Proc, record: Page, entered: dict[int, Held]
    ) -> tuple[int, ...]:
        """The state that a rank comes to hold, and whether it is the committed one."""
        step = record.record.step
        if step == 0:
            return ()
        if record.record.load:
            assert world.shelf is not None
            return world.shelf[0]
        sources = [entered[one] for one in record.senders.get(gpu, ())]
        if gpu in record.holders:
            sources.append(Held(gpu, proc.life, proc.units, proc.past))
        for held in sources:
            check(
                held.past == world.ledger[:step] and len(held.past) == step,
                f"gpu {gpu} takes {held.past} from gpu {held.gpu}, committed is "
                f"{world.ledger[:step]}",
            )
        got = 0
        for held in sources:
            got |= held.units
        check(not record.units[gpu] & ~got, f"gpu {gpu} settles without some units")
        return sources[0].past

    def _is_there(self, world: World, gpu: int, generation: int, record: Page) -> bool:
        """It is in the generation and goes on in it, or has already."""
        proc = world.current(gpu, record.lives[gpu])
        return proc is not None and proc.generation >= generation

    # --- transactions

    def _cycle(self, world: World, gpu: int, proc: Proc) -> Iterator[Move]:
        page, record = self._read(world, proc)
        check(
            not self.rules.checks_life or record.lives.get(gpu) == proc.life,
            f"{self._name(gpu, proc)} works in a generation that does not know it",
        )
        stage = self.book.stages[proc.rank]
        match stage:
            case Stage.WORK:
                yield from self._work(world, gpu, proc, page, record)
            case Stage.COUNT:
                yield from self._count(world, gpu, proc, page)
            case Stage.LOOK:
                yield self._look(world, gpu, proc, page, record)
            case Stage.DECIDE:
                yield self._propose(world, gpu, proc)
            case Stage.WAIT:
                yield from self._wait(world, gpu, proc, page)
            case _:
                assert stage in ENDS
                new = proc._replace(mode="tell", rank=0)
                yield f"is {stage}", True, world.with_proc(gpu, proc, new)

    def _work_of(self, proc: Proc) -> tuple[str, int]:
        return self.book.works[proc.rank]

    def _work(
        self, world: World, gpu: int, proc: Proc, page: Pages, record: Page
    ) -> Iterator[Move]:
        if page.over:
            self.book.step("given_up", proc.rank)
            yield "gives up", True, world.with_proc(gpu, proc, proc._replace(mode="tell", rank=0))
        work = self._work_of(proc)
        ballot = page.ballot(work)
        if not proc.fenced:
            done = len(world.ledger)
            fits = work == ("train", done + 1) or work == ("validate", done)
            check(fits, f"gpu {gpu} votes for {work}, {done} steps are committed")
            check(proc.past == world.ledger, f"gpu {gpu} votes with {proc.past}")
        number = self.book.step("voted", self.book.step("worked", proc.rank))
        here = all(
            one in ballot.votes or self._works_too(world, one, proc, record)
            for one in record.members
        )
        ballot = ballot._replace(votes=ballot.votes | {gpu})
        if self.rules.coarse:
            ballot = ballot._replace(count=ballot.count + 1)
            number = self.book.step("counted", number, ballot.count)
        after = world.with_page(page.with_ballot(ballot))
        yield f"votes for {work}", here, after.with_proc(gpu, proc, proc._replace(rank=number))

    def _works_too(self, world: World, gpu: int, proc: Proc, record: Page) -> bool:
        """At the same work: what everybody needs of it comes."""
        other = world.current(gpu, record.lives[gpu])
        return (
            other is not None
            and (other.generation, other.mode) == (proc.generation, "cycle")
            and other.rank == proc.rank
        )

    def _count(self, world: World, gpu: int, proc: Proc, page: Pages) -> Iterator[Move]:
        ballot = page.ballot(self._work_of(proc))
        for times in (1, 2) if world.budget.doubles else (1,):
            count = ballot.count + times
            number = self.book.step("counted", proc.rank, count)
            after = world.with_page(page.with_ballot(ballot._replace(count=count)))
            after = after.with_proc(gpu, proc, proc._replace(rank=number))
            if times == 2:
                after = after._replace(budget=world.budget.spend("doubles"))
            yield f"counts {times}", times == 1, after

    def _look(self, world: World, gpu: int, proc: Proc, page: Pages, record: Page) -> Move:
        complete = page.ballot(self._work_of(proc)).votes >= record.members
        number = self.book.step("looked", proc.rank, complete, page.pause)
        new = proc._replace(rank=number)
        return f"looks: {complete}", True, world.with_proc(gpu, proc, new)

    def _propose(self, world: World, gpu: int, proc: Proc) -> Move:
        rank = self.book.ranks[proc.rank]
        assert rank is not None
        after = self.decide(world, proc.generation, self._work_of(proc), rank.wish)
        new = proc._replace(rank=self.book.step("proposed", proc.rank))
        return f"proposes {rank.wish}", True, after.with_proc(gpu, proc, new)

    def _wait(self, world: World, gpu: int, proc: Proc, page: Pages) -> Iterator[Move]:
        work = self._work_of(proc)
        outcome = page.ballot(work).outcome
        if page.over and not self.rules.keeps_promise:
            yield "gives up", True, world.with_proc(gpu, proc, proc._replace(mode="tell", rank=0))
        if not outcome:
            return
        number = self.book.step("decided", proc.rank, outcome)
        if not is_commit(outcome):
            new = proc._replace(mode="tell", rank=0)
            yield "hears abort", True, world.with_proc(gpu, proc, new)
            return
        new = proc._replace(rank=self.book.step("applied", number))
        if work[0] == "train":
            new = new._replace(past=(*proc.past, proc.generation))
        if not proc.fenced:
            check(
                new.past == world.ledger[: len(new.past)],
                f"gpu {gpu} applies {new.past}, committed is {world.ledger}",
            )
        yield f"applies {work}", True, world.with_proc(gpu, proc, new)

    # --- outcomes

    def decide(self, world: World, generation: int, work: tuple[str, int], wish: str) -> World:
        """Compare-and-set; whoever is first."""
        page = world.page(generation)
        assert page is not None
        ballot = page.ballot(work)
        if ballot.outcome and self.rules.compare_and_set:
            return world
        check(
            not ballot.outcome or ballot.outcome == wish,
            f"{work} of {generation} was {ballot.outcome} and becomes {wish}",
        )
        after = world.with_page(page.with_ballot(ballot._replace(outcome=wish)))
        dead = generation < world.pages[-1].number
        return after if dead or not is_commit(wish) else self._commit(after, page, work)

    def _commit(self, world: World, page: Pages, work: tuple[str, int]) -> World:
        """Into the ledger: by all that live, in order, once."""
        record, votes = self.book.pages[page.record], page.ballot(work).votes
        for gpu in record.members - votes:
            alive = world.current(gpu, record.lives[gpu]) is not None
            check(not alive, f"{work} is committed without gpu {gpu}")
        kind, step = work
        done = len(world.ledger)
        if kind == "validate":
            check(done == step, f"validation {step} is committed after step {done}")
            check(
                all(one != step for one, _ in world.checked),
                f"validation {step} is committed twice",
            )
            return world._replace(checked=(*world.checked, (step, page.number)))
        check(done == step - 1, f"step {step} is committed after step {done}")
        return world._replace(ledger=(*world.ledger, page.number))
