"""How transactions are decided, and how generations and the run end: transitions of the control.

Each function takes a move under construction and what was heard, and returns the move. The life of
a generation is in the docstring of `control`. DESIGN "Generations". Knows nothing of processes that
come and go.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from nonuniform.cluster.health import ClusterState, HealthEvent
from nonuniform.cluster.topology import parse_gpu
from nonuniform.errors import RunFailed
from nonuniform.protocol.commit import Outcome, Vote, Work, decide
from nonuniform.protocol.events import (
    Decided,
    EndGeneration,
    Found,
    Interrupted,
    Kill,
    LookForCheckpoint,
    Over,
    Propose,
    Publish,
    ReadVotes,
    Reported,
    Rewind,
    Saved,
    Stalled,
    Voted,
    WriteDown,
)
from nonuniform.protocol.outcome import ABORT, COMMIT, COMMIT_AND_REGROUP, is_commit
from nonuniform.protocol.record import Position, Record, Report, UnitsLost
from nonuniform.protocol.state import Control, Ending, Move, Phase, Regroup

# --- transactions


def settle(move: Move, why: str) -> Move:
    """End the generation, but first decide what is under way in it."""
    state = move.state
    if state.record.task != "train" or state.work.kind == "done":
        return _end_generation(move, why)
    move.set(phase=Phase.SETTLING, why=why)
    return move.order(ReadVotes(state.record.generation, state.work))


def voted(move: Move, event: Voted, now_s: float) -> Move:
    state = move.state
    if state.phase is not Phase.SETTLING or not _is_current(state, event):
        return move
    verdict, reason = decide(
        event.votes,
        state.living,
        state.members,
        state.record.generation,
        state.work.step,
        state.record.digest,
    )
    wish = COMMIT if verdict == Outcome.COMMIT else ABORT
    if verdict == Outcome.WAIT:  # nobody is lost, and it ends all the same
        reason = f"{state.why}; {reason}"
    return move.order(Propose(state.record.generation, state.work, wish, reason))


def decided(move: Move, event: Decided, now_s: float) -> Move:
    state = move.state
    if state.phase not in (Phase.RUNNING, Phase.SETTLING) or not _is_current(state, event):
        return move
    if not is_commit(event.outcome):
        return _end_generation(move, state.why)
    _write_down(move, event)
    if move.state.work.kind == "done":
        end(move, Ending(False, f"all {move.state.position.step} steps committed"))
    if event.outcome == COMMIT_AND_REGROUP or move.state.work.kind == "done":
        return _end_generation(move, move.state.why or "a change was waiting for a commit")
    if move.state.phase is Phase.SETTLING:  # the next one may be under way already
        return settle(move, state.why)
    if move.state.ending is not None:
        return settle(move, move.state.ending.reason)
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
    dismiss(move)
    if state.options.stop_at_nonfinite and not _finite(event.votes):
        text = f'step {work.step}: loss or gradient not finite ([run] nonfinite = "stop")'
        end(move, Ending(True, text))


def _finite(votes: Mapping[str, Vote]) -> bool:
    return all(vote.finite for vote in votes.values())


def dismiss(move: Move) -> Move:
    """Let those go that are drained and have nothing to do or to send any more."""
    state = move.state
    if state.phase is not Phase.RUNNING or not state.all_settled:
        return move
    for gpu in sorted(state.leaving - set(state.members)):
        move.order(Kill(gpu, state.living[gpu]))
        living = {name: life for name, life in move.state.living.items() if name != gpu}
        move.set(living=living, leaving=move.state.leaving - {gpu})
    return move


# --- generations


def _end_generation(move: Move, why: str) -> Move:
    state = move.state
    move.order(EndGeneration(state.record.generation, why))
    move.set(phase=Phase.HEARING, reports={}, why="")
    return go_on_hearing(move)


def reported(move: Move, event: Reported, now_s: float) -> Move:
    state, report = move.state, event.report
    if (
        state.phase is not Phase.HEARING
        or event.generation != state.record.generation
        or state.living.get(report.gpu) != event.life
    ):
        return move
    move.set(reports={**state.reports, report.gpu: report})
    return go_on_hearing(move)


def go_on_hearing(move: Move) -> Move:
    """Once all have told what they hold, the next generation can be made."""
    state = move.state
    if state.phase is not Phase.HEARING or state.placed() - set(state.reports):
        return move
    if state.ending is not None:
        return _save(move)
    return _regroup(move, "")


def _regroup(move: Move, load: str) -> Move:
    state = move.state
    cluster, joined = admitted(state), tuple(sorted(state.ready))
    reports = tuple(said for _, said in sorted(state.reports.items()))
    try:
        record, reason = state.options.regroup(_proposal(state, cluster, reports, load))
    except UnitsLost as error:
        move.set(phase=Phase.RECALLING, why=str(error))
        return move.order(LookForCheckpoint())
    except RunFailed as error:
        end(move, Ending(True, f"{error}{_last_exception(state)}"))
        return _save(move)
    move.set(cluster=cluster, ready=frozenset())
    return publish(move, record, reason, joined)


def admitted(state: Control) -> ClusterState:
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


def tell_exception(state: Control, work: Work, words: str) -> str:
    what = "validation after step" if work.kind == "validate" else "step"
    samples = ", ".join(map(str, state.options.samples(work)))
    return f"{what} {work.step} failed by an exception{words}; its samples: {samples}"


def _last_exception(state: Control) -> str:
    known = [failure.words for failure in state.failures if failure.work == state.work]
    return f"; {tell_exception(state, state.work, f': {known[-1]}')}" if known else ""


def publish(move: Move, record: Record, reason: str, joined: tuple[str, ...]) -> Move:
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


def found(move: Move, event: Found, now_s: float) -> Move:
    state = move.state
    if state.phase is not Phase.RECALLING:
        return move
    if state.ending is not None:  # somebody has asked for the end meanwhile
        return _leave(move)
    if event.position is None:
        text = f"{state.why}; there is no checkpoint to go on from{_last_exception(state)}"
        end(move, Ending(True, text, save=False))
        return _leave(move)
    lost = state.position.step - event.position.step
    text = f"{state.why}: going on from checkpoint {event.name}, {lost} steps are done again"
    move.order(Rewind(event.position, text, lost))
    saved = min(state.saved, event.position.step)
    move.set(position=event.position, saved=saved, phase=Phase.HEARING, why="")
    return _regroup(move, event.name)


# --- the end


def end(move: Move, ending: Ending) -> None:
    """The first reason to end stays; the work under way is still decided."""
    if move.state.ending is None:
        move.set(ending=ending)


def interrupted(move: Move, event: Interrupted, now_s: float) -> Move:
    state = move.state
    ending = Ending(True, event.reason, event.save, by_hand=True)
    if not event.save or state.position.step == 0:  # nothing to wait for
        saving = state.phase is Phase.SAVING
        if saving:
            move.tell("checkpoint_failed", f"{event.reason} before it was complete")
        move.set(ending=ending if saving else state.ending or ending)
        return _leave(move)
    end(move, ending)
    if state.phase is Phase.RUNNING:
        return settle(move, event.reason)
    return move


def stalled(move: Move, event: Stalled, now_s: float) -> Move:
    """Nobody is to blame: the same GPUs try once more, in a new generation."""
    state = move.state
    if state.phase is not Phase.RUNNING:
        return move
    again = any(work == state.work for work, _ in state.stalls)
    move.set(stalls=((state.work, state.record.generation),))
    if again:
        end(move, Ending(True, f"{event.reason}, and again in a new generation"))
    move.tell("stalled", event.reason)
    return settle(move, event.reason)


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
    return publish(move, record, f"saving step {step}: {state.ending.words(step)}", ())


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


def saved(move: Move, event: Saved, now_s: float) -> Move:
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
    publish(move, record, words, ())
    return move.order(Over(ending.failed, words))
