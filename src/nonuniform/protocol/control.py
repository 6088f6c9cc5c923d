"""The control of a run as a pure state machine: (state, event, now) -> (state, orders).

    RUNNING --a member is lost--> SETTLING --abort--> HEARING --all told--> RUNNING
       |                             |                  |  ^                  (or SAVING, RECALLING)
       +--commit: regroup------------+------------------+  |
    SAVING (a generation that only writes a checkpoint) ---+--> OVER

SETTLING: the outcome of the work under way is asked for and proposed; votes that were complete are
a commit, whoever has died since. HEARING: every living process of the generation gives up and says
what it holds; more may die meanwhile. RECALLING: no living process holds some unit, so a checkpoint
is looked for. Whoever executes the orders reports back by events, in any order and late; what is
late, twice, or of an old generation or life changes nothing.

DESIGN "The step is a transaction" and "Generations". Every order that a person may wonder about
carries its reason. Knows nothing of tensors, processes, stores or clocks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from nonuniform.cluster.health import ClusterState, HealthEvent
from nonuniform.cluster.topology import parse_gpu
from nonuniform.errors import RunFailed
from nonuniform.protocol.commit import Outcome, Vote, Work, decide
from nonuniform.protocol.events import (
    Decided,
    Drained,
    Ended,
    EndGeneration,
    Event,
    Found,
    Hung,
    Interrupted,
    Kill,
    LookForCheckpoint,
    Order,
    Over,
    Pause,
    Propose,
    Publish,
    ReadVotes,
    Ready,
    Reported,
    Returned,
    Rewind,
    Saved,
    SettledIn,
    Stalled,
    Start,
    Started,
    Tick,
    Voted,
    WriteDown,
)
from nonuniform.protocol.outcome import ABORT, COMMIT, COMMIT_AND_REGROUP, is_commit
from nonuniform.protocol.record import Position, Record, Report, UnitsLost
from nonuniform.protocol.state import Control, Ending, Move, Phase, Regroup


def begin(state: Control, reason: str) -> tuple[Control, tuple[Order, ...]]:
    """Publish the first generation; its processes were started before."""
    return _publish(Move(state), state.record, reason, ()).result()


def advance(state: Control, event: Event, now_s: float) -> tuple[Control, tuple[Order, ...]]:
    """The state after an event, and the orders that follow from it."""
    if state.phase is Phase.OVER:
        return state, ()
    handle = _HANDLERS[type(event)]
    return handle(Move(state), event, now_s).result()


# --- processes come and go


def _ended(move: Move, event: Ended, now_s: float) -> Move:
    if move.state.living.get(event.gpu) != event.life:
        return move  # it was given up before
    needed = event.gpu in move.state.needed()
    move.tell("failed", event.reason, event.gpu)
    _bury(move, event.gpu, now_s)
    if event.raised and event.gpu in move.state.members:
        _count_exception(move, event.reason)
    return _do_without(move, event.gpu) if needed else _go_on_hearing(move)


def _hung(move: Move, event: Hung, now_s: float) -> Move:
    """Given up: whatever it does from now on belongs to a generation that is over."""
    if move.state.living.get(event.gpu) != event.life:
        return move
    needed = event.gpu in move.state.needed()
    move.tell("failed", f"{event.reason}: given up", event.gpu, {"fenced": True})
    move.order(Kill(event.gpu, event.life))
    _bury(move, event.gpu, now_s)
    return _do_without(move, event.gpu) if needed else _go_on_hearing(move)


def _bury(move: Move, gpu: str, now_s: float) -> None:
    state = move.state
    if gpu not in state.leaving:
        move.set(
            cluster=state.cluster.apply(HealthEvent("failed", parse_gpu(gpu))),
            quarantine=state.quarantine.failed(gpu, now_s),
        )
    move.set(
        living={name: life for name, life in state.living.items() if name != gpu},
        ready=state.ready - {gpu},
        leaving=state.leaving - {gpu},
        reports={name: said for name, said in state.reports.items() if name != gpu},
    )


def _do_without(move: Move, gpu: str) -> Move:
    """A process that the generation needs is lost."""
    state = move.state
    move.set(lost=(*state.lost, gpu))
    if state.phase in (Phase.RUNNING, Phase.SAVING):
        return _settle(move, f"{gpu} failed")
    return _go_on_hearing(move)


def _count_exception(move: Move, words: str) -> None:
    """An exception that comes again would take one GPU after the other: end the run."""
    state = move.state
    failure = (state.work, state.record.generation, words)
    before = {generation for work, generation, _ in state.failures if work == state.work}
    same = [f for f in state.failures if f[0] == state.work]
    move.set(failures=(*same, failure))
    if before - {state.record.generation}:
        _end(move, Ending(True, _tell_exception(state, state.work, f" again: {words}")))


def _tell_exception(state: Control, work: Work, words: str) -> str:
    what = "validation after step" if work.kind == "validate" else "step"
    samples = ", ".join(map(str, state.options.samples(work)))
    return f"{what} {work.step} failed by an exception{words}; its samples: {samples}"


def _returned(move: Move, event: Returned, now_s: float) -> Move:
    state, gpu = move.state, event.gpu
    if gpu in state.living and gpu not in state.leaving:
        return move.tell("order", "nothing to bring back: it is there", gpu)
    until_s = state.quarantine.until(gpu, now_s)
    if until_s is None and gpu not in state.living:
        return move.order(Start(gpu))
    if until_s is not None and gpu not in state.waiting:
        move.tell("quarantined", state.quarantine.reason(gpu, now_s), gpu)
    return move.set(waiting={**state.waiting, gpu: now_s if until_s is None else until_s})


def _tick(move: Move, event: Tick, now_s: float) -> Move:
    waiting = move.state.waiting
    for gpu in sorted(gpu for gpu, until_s in waiting.items() if until_s <= now_s):
        if gpu not in move.state.living:
            move.order(Start(gpu))
            left = {name: until for name, until in move.state.waiting.items() if name != gpu}
            move.set(waiting=left)
    return move


def _started(move: Move, event: Started, now_s: float) -> Move:
    return move.set(living={**move.state.living, event.gpu: event.life})


def _ready(move: Move, event: Ready, now_s: float) -> Move:
    """Somebody may join: let the generation end at its next commit, if that changes anything."""
    state, gpu = move.state, event.gpu
    known = gpu in state.ready or state.record.lives.get(gpu) == event.life
    if state.living.get(gpu) != event.life or known:
        return move
    move.set(ready=state.ready | {gpu})
    if state.phase is not Phase.RUNNING or state.paused:
        return move
    if _would_work(move.state):
        return _pause(move)
    return move.tell("spare", "no place needs it: it waits", gpu)


def _would_work(state: Control) -> bool:
    """Whether a regroup now would give work to those that are ready."""
    try:
        placement = state.options.place(_admitted(state), state.record.placement)
    except RunFailed:
        return True  # let the regroup say why
    return {member.gpu for member in placement.members()} != set(state.members)


def _drained(move: Move, event: Drained, now_s: float) -> Move:
    state, gpu = move.state, event.gpu
    if gpu in state.leaving:
        return move
    cluster = state.cluster.apply(HealthEvent("drained", parse_gpu(gpu)))
    if event.if_possible and not _could_run(state, cluster):
        return move.tell("kept", f"{event.reason}; without it no replica would be left", gpu)
    move.set(cluster=cluster).tell("drained", event.reason, gpu)
    if gpu not in state.living:
        return move
    move.set(leaving=state.leaving | {gpu}, ready=state.ready - {gpu})
    return _pause(move) if gpu in state.members else _dismiss(move)


def _could_run(state: Control, cluster: ClusterState) -> bool:
    try:
        state.options.place(cluster, state.record.placement)
    except RunFailed:
        return False
    return True


def _pause(move: Move) -> Move:
    state = move.state
    if state.phase is not Phase.RUNNING or state.paused:
        return move  # a regroup is under way; it sees what has changed
    return move.set(paused=True).order(Pause(state.record.generation))


def _dismiss(move: Move) -> Move:
    """Let those go that are drained and have nothing to do or to send any more."""
    state = move.state
    if state.phase is not Phase.RUNNING or not state.all_settled:
        return move
    for gpu in sorted(state.leaving - set(state.members)):
        move.order(Kill(gpu, state.living[gpu]))
        living = {name: life for name, life in move.state.living.items() if name != gpu}
        move.set(living=living, leaving=move.state.leaving - {gpu})
    return move


def _settled_in(move: Move, event: SettledIn, now_s: float) -> Move:
    if event.generation != move.state.record.generation:
        return move
    return _dismiss(move.set(settled=move.state.settled | {event.gpu}))


# --- transactions


def _settle(move: Move, why: str) -> Move:
    """End the generation, but first decide what is under way in it."""
    state = move.state
    if state.record.task != "train" or state.work.kind == "done":
        return _end_generation(move, why)
    move.set(phase=Phase.SETTLING, why=why)
    return move.order(ReadVotes(state.record.generation, state.work))


def _voted(move: Move, event: Voted, now_s: float) -> Move:
    state = move.state
    if state.phase is not Phase.SETTLING or not _is_current(state, event):
        return move
    verdict, _ = decide(
        event.votes,
        state.living,
        state.members,
        state.record.generation,
        state.work.step,
        state.record.digest,
    )
    wish = COMMIT if verdict == Outcome.COMMIT else ABORT
    return move.order(Propose(state.record.generation, state.work, wish))


def _decided(move: Move, event: Decided, now_s: float) -> Move:
    state = move.state
    if state.phase not in (Phase.RUNNING, Phase.SETTLING) or not _is_current(state, event):
        return move
    if not is_commit(event.outcome):
        return _end_generation(move, state.why)
    _write_down(move, event)
    if move.state.work.kind == "done":
        _end(move, Ending(False, f"all {move.state.position.step} steps committed"))
    if event.outcome == COMMIT_AND_REGROUP or move.state.work.kind == "done":
        return _end_generation(move, move.state.why or "a change was waiting for a commit")
    if move.state.phase is Phase.SETTLING:  # the next one may be under way already
        return _settle(move, state.why)
    if move.state.ending is not None:
        return _settle(move, move.state.ending.reason)
    return move


def _is_current(state: Control, event: Voted | Decided) -> bool:
    return (event.generation, event.work) == (state.record.generation, state.work)


def _write_down(move: Move, event: Decided) -> None:
    state, work = move.state, event.work
    move.order(WriteDown(state.record, work, event.votes))
    if work.kind == "validate":
        move.set(position=Position(state.position.step, work.step))
    else:
        move.set(position=Position(work.step, state.position.validated))
    # What was lost of this very generation is still to be made good: it is being settled.
    lost = (gpu for gpu in state.lost if gpu in state.record.lives and gpu not in state.living)
    move.set(settled=frozenset(state.members), lost=tuple(lost))
    _dismiss(move)
    if state.options.stop_at_nonfinite and not _finite(event.votes):
        text = f'step {work.step}: loss or gradient not finite ([run] nonfinite = "stop")'
        _end(move, Ending(True, text))


def _finite(votes: Mapping[str, Vote]) -> bool:
    return all(vote.finite for vote in votes.values())


# --- generations


def _end_generation(move: Move, why: str) -> Move:
    state = move.state
    move.order(EndGeneration(state.record.generation, why))
    move.set(phase=Phase.HEARING, reports={}, why="")
    return _go_on_hearing(move)


def _reported(move: Move, event: Reported, now_s: float) -> Move:
    state, report = move.state, event.report
    if (
        state.phase is not Phase.HEARING
        or event.generation != state.record.generation
        or state.living.get(report.gpu) != event.life
    ):
        return move
    move.set(reports={**state.reports, report.gpu: report})
    return _go_on_hearing(move)


def _go_on_hearing(move: Move) -> Move:
    """Once all have told what they hold, the next generation can be made."""
    state = move.state
    if state.phase is not Phase.HEARING or state.placed() - set(state.reports):
        return move
    if state.ending is not None:
        return _save(move)
    return _regroup(move, "")


def _regroup(move: Move, load: str) -> Move:
    state = move.state
    cluster, joined = _admitted(state), tuple(sorted(state.ready))
    reports = tuple(said for _, said in sorted(state.reports.items()))
    try:
        record, reason = state.options.regroup(_proposal(state, cluster, reports, load))
    except UnitsLost as error:
        move.set(phase=Phase.RECALLING, why=str(error))
        return move.order(LookForCheckpoint())
    except RunFailed as error:
        _end(move, Ending(True, f"{error}{_last_exception(state)}"))
        return _save(move)
    move.set(cluster=cluster, ready=frozenset())
    return _publish(move, record, reason, joined)


def _admitted(state: Control) -> ClusterState:
    """The cluster with those that are ready."""
    cluster = state.cluster
    for gpu in sorted(state.ready):
        cluster = cluster.apply(HealthEvent("returned", parse_gpu(gpu)))
    return cluster


def _proposal(
    state: Control, cluster: ClusterState, reports: tuple[Report, ...], load: str = ""
) -> Regroup:
    return Regroup(
        cluster=cluster,
        reports=reports,
        position=state.position,
        generation=state.record.generation + 1,
        before=state.record.placement,
        lenders=tuple(sorted(state.leaving)),
        load=load,
    )


def _last_exception(state: Control) -> str:
    known = [words for work, _, words in state.failures if work == state.work]
    return f"; {_tell_exception(state, state.work, f': {known[-1]}')}" if known else ""


def _publish(move: Move, record: Record, reason: str, joined: tuple[str, ...]) -> Move:
    """The record, which now also knows every process that it speaks of."""
    state = move.state
    # Not by name alone: a GPU of the last generation may have a new process that is still to join.
    known = state.placed() | set(record.placement.spares) | set(record.holdings)
    known |= {member.gpu for member in record.placement.members()}
    lives = {gpu: life for gpu, life in sorted(state.living.items()) if gpu in known}
    record = replace(record, lives=lives)
    phases = {"train": Phase.RUNNING, "save": Phase.SAVING, "leave": Phase.OVER}
    move.set(phase=phases[record.task], record=record, settled=frozenset(), paused=False, why="")
    return move.order(Publish(record, reason, joined, state.lost))


def _found(move: Move, event: Found, now_s: float) -> Move:
    state = move.state
    if state.phase is not Phase.RECALLING:
        return move
    if event.position is None:
        text = f"{state.why}; there is no checkpoint to go on from{_last_exception(state)}"
        _end(move, Ending(True, text, save=False))
        return _leave(move)
    lost = state.position.step - event.position.step
    text = f"{state.why}: going on from checkpoint {event.name}, {lost} steps are done again"
    move.order(Rewind(event.position, text, lost))
    move.set(position=event.position, phase=Phase.HEARING, why="")
    return _regroup(move, event.name)


# --- the end


def _end(move: Move, ending: Ending) -> None:
    """The first reason to end stays; the work under way is still decided."""
    if move.state.ending is None:
        move.set(ending=ending)


def _interrupted(move: Move, event: Interrupted, now_s: float) -> Move:
    state = move.state
    ending = Ending(True, event.reason, event.save, by_hand=True)
    if not event.save or state.position.step == 0:  # nothing to wait for
        move.set(ending=state.ending or ending)
        return _leave(move)
    _end(move, ending)
    if state.phase is Phase.RUNNING:
        return _settle(move, event.reason)
    return move


def _stalled(move: Move, event: Stalled, now_s: float) -> Move:
    """Nobody is to blame: the same GPUs try once more, in a new generation."""
    state = move.state
    if state.phase is not Phase.RUNNING:
        return move
    again = any(work == state.work for work, _ in state.stalls)
    move.set(stalls=((state.work, state.record.generation),))
    if again:
        _end(move, Ending(True, f"{event.reason}, and again in a new generation"))
    move.tell("stalled", event.reason)
    return _settle(move, event.reason)


def _save(move: Move) -> Move:
    """A generation that only writes what is committed; without need for one, the end."""
    state = move.state
    assert state.ending is not None
    step = state.position.step
    if not (state.options.final and state.ending.save and state.saved < step):
        return _leave(move)
    holdings = {
        gpu: (said.degree, said.label)
        for gpu, said in sorted(state.reports.items())
        if said.degree and said.step == step
    }
    record = replace(
        _successor(state), task="save", holdings=holdings, home=dict.fromkeys(holdings, 0)
    )
    if not state.options.savers(record):
        move.tell("checkpoint_failed", f"no living GPU holds some units after step {step}")
        return _leave(move)
    return _publish(move, record, f"saving step {step}: {state.ending.words(step)}", ())


def _successor(state: Control) -> Record:
    return Record(
        generation=state.record.generation + 1,
        placement=state.record.placement,
        step=state.position.step,
        validated=state.position.validated,
        digest=state.record.digest,
        holdings={},
        home={},
    )


def _saved(move: Move, event: Saved, now_s: float) -> Move:
    state = move.state
    if state.phase is not Phase.SAVING or event.generation != state.record.generation:
        return move
    if event.problem:
        move.tell("checkpoint_failed", event.problem)
    else:
        move.set(saved=state.position.step)
    return _leave(move)


def _leave(move: Move) -> Move:
    ending = move.state.ending
    assert ending is not None
    state = move.state
    if state.phase is not Phase.HEARING:
        move.order(EndGeneration(state.record.generation, ending.reason))
    record = replace(_successor(state), task="leave")
    words = ending.words(state.position.step)
    _publish(move, record, words, ())
    return move.order(Over(ending.failed, words))


_HANDLERS: dict[type, Callable[[Move, Any, float], Move]] = {
    Ended: _ended,
    Hung: _hung,
    Stalled: _stalled,
    Drained: _drained,
    Returned: _returned,
    Started: _started,
    Ready: _ready,
    SettledIn: _settled_in,
    Reported: _reported,
    Voted: _voted,
    Decided: _decided,
    Found: _found,
    Saved: _saved,
    Interrupted: _interrupted,
    Tick: _tick,
}
