"""Processes that end, hang, start, come back or are to go: transitions of the control.

Each function takes a move under construction and what was heard, and returns the move. DESIGN
"Generations": a process is known by its GPU and its life; what is said of an earlier life changes
nothing. Knows nothing of votes.
"""

from __future__ import annotations

from nonuniform.cluster.health import ClusterState, HealthEvent
from nonuniform.cluster.topology import parse_gpu
from nonuniform.errors import RunFailed
from nonuniform.protocol import generations
from nonuniform.protocol.events import (
    Drained,
    Ended,
    Hung,
    Kill,
    Pause,
    Ready,
    Returned,
    SettledIn,
    Start,
    Started,
    Tick,
)
from nonuniform.protocol.state import Control, Ending, Failure, Move, Phase

SETTLING_TRIES = 3


def ended(move: Move, event: Ended, now_s: float) -> Move:
    if move.state.living.get(event.gpu) != event.life:
        return move  # it was given up before
    needed = event.gpu in move.state.needed()
    move.tell("failed", event.reason, event.gpu)
    _bury(move, event.gpu, now_s)
    if event.raised and event.gpu in move.state.members:
        _count_exception(move, event)
    return _do_without(move, event.gpu) if needed else generations.go_on_hearing(move)


def hung(move: Move, event: Hung, now_s: float) -> Move:
    """Given up: whatever it does from now on belongs to a generation that is over."""
    if move.state.living.get(event.gpu) != event.life:
        return move
    needed = event.gpu in move.state.needed()
    move.tell("failed", f"{event.reason}: given up", event.gpu, {"fenced": True})
    move.order(Kill(event.gpu, event.life))
    _bury(move, event.gpu, now_s)
    return _do_without(move, event.gpu) if needed else generations.go_on_hearing(move)


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
        return generations.settle(move, f"{gpu} failed")
    return generations.go_on_hearing(move)


def _count_exception(move: Move, event: Ended) -> None:
    """An exception that comes again would take one GPU after the other: end the run. One that comes
    before a rank holds its shard is not the step's, and may be tried more often."""
    state = move.state
    new = Failure(state.work, state.record.generation, event.reason, event.working)
    same = (*(failure for failure in state.failures if failure.work == state.work), new)
    move.set(failures=same)
    tries = {failure.generation for failure in same if failure.working == event.working}
    if len(tries) > (1 if event.working else SETTLING_TRIES):
        text = generations.tell_exception(state, state.work, f" again: {event.reason}")
        generations.end(move, Ending(True, text))


def returned(move: Move, event: Returned, now_s: float) -> Move:
    state, gpu = move.state, event.gpu
    if gpu in state.living and gpu not in state.leaving:
        return move.tell("order", "nothing to bring back: it is there", gpu)
    until_s = state.quarantine.until(gpu, now_s)
    if until_s is None and gpu not in state.living:
        return move.order(Start(gpu))
    if until_s is not None and gpu not in state.waiting:
        move.tell("quarantined", state.quarantine.reason(gpu, now_s), gpu)
    return move.set(waiting={**state.waiting, gpu: now_s if until_s is None else until_s})


def tick(move: Move, event: Tick, now_s: float) -> Move:
    waiting = move.state.waiting
    for gpu in sorted(gpu for gpu, until_s in waiting.items() if until_s <= now_s):
        if gpu not in move.state.living:
            move.order(Start(gpu))
            left = {name: until for name, until in move.state.waiting.items() if name != gpu}
            move.set(waiting=left)
    return move


def started(move: Move, event: Started, now_s: float) -> Move:
    return move.set(living={**move.state.living, event.gpu: event.life})


def ready(move: Move, event: Ready, now_s: float) -> Move:
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
        placement = state.options.place(generations.admitted(state), state.record.placement)
    except RunFailed:
        return True  # let the regroup say why
    return {member.gpu for member in placement.members()} != set(state.members)


def drained(move: Move, event: Drained, now_s: float) -> Move:
    state, gpu = move.state, event.gpu
    if gpu in state.leaving:
        return move
    cluster = state.cluster.apply(HealthEvent("drained", parse_gpu(gpu)))
    if event.if_possible and not _could_run(state, cluster):
        return move.tell("kept", f"{event.reason}; without it no replica would be left", gpu)
    waiting = {name: until for name, until in state.waiting.items() if name != gpu}
    move.set(cluster=cluster, waiting=waiting).tell("drained", event.reason, gpu)
    if gpu not in state.living:
        return move
    move.set(leaving=state.leaving | {gpu}, ready=state.ready - {gpu})
    return _pause(move) if gpu in state.members else generations.dismiss(move)


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


def settled_in(move: Move, event: SettledIn, now_s: float) -> Move:
    if event.generation != move.state.record.generation:
        return move
    return generations.dismiss(move.set(settled=move.state.settled | {event.gpu}))
