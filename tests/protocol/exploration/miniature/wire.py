"""Events and orders of the control as plain tuples, which worlds can hold.

    ended/hung/ready/started gpu life ...    votes/propose/write generation work ...

In and out: the one or the other. The votes themselves follow from who voted. Knows nothing of what
they do.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from miniature.grid import Grid
from miniature.world import Size

from nonuniform.protocol import events as ev
from nonuniform.protocol.commit import Vote, Work
from nonuniform.protocol.record import Position, Record, Report

Key = tuple[Any, ...]

ENDS = {
    "no replica": "nobody",
    "no checkpoint": "lost",
    "exception": "exception",
    "not finite": "nonfinite",
    "interrupted": "interrupted",
    "stalled": "stalled",
    "committed": "done",
}


def kind_of_end(reason: str) -> str:
    """The part of a reason that does not depend on names."""
    found = [kind for words, kind in ENDS.items() if words in reason]
    return found[0] if found else reason


def vote_of(gpu: str, generation: int, work: tuple[str, int], size: Size) -> Vote:
    kind, step = work
    finite = step != size.nonfinite_step
    loss = 4.0 / step if finite else math.nan
    return Vote(gpu, generation, kind, step, f"g{generation}", loss, 4, 1.0, finite)  # type: ignore[arg-type]


def event_of(key: Key, grid: Grid, size: Size) -> ev.Event:
    return _EVENTS[key[0]](grid, size, *key[1:])


def _reported(grid: Grid, size: Size, gpu: int, life: int, generation: int, *said: int) -> Any:
    units, steps = said
    report = Report(grid.names[gpu], steps if units else -1, units, 0)
    return ev.Reported(report, life, generation)


def _votes(grid: Grid, size: Size, generation: int, work: Any, voters: Any) -> dict[str, Vote]:
    names = [grid.names[gpu] for gpu in sorted(voters)]
    return {name: vote_of(name, generation, work, size) for name in names}


def _voted(grid: Grid, size: Size, generation: int, work: Any, voters: Any) -> Any:
    votes = _votes(grid, size, generation, work, voters)
    return ev.Voted(generation, Work(*work), votes)


def _decided(grid: Grid, size: Size, generation: int, work: Any, *rest: Any) -> Any:
    outcome, voters = rest
    votes = _votes(grid, size, generation, work, voters)
    return ev.Decided(generation, Work(*work), outcome, votes)


_EVENTS: dict[str, Callable[..., Any]] = {
    "ended": lambda grid, size, gpu, life, raised: ev.Ended(
        grid.names[gpu], life, "boom" if raised else "killed", raised
    ),
    "hung": lambda grid, size, gpu, life: ev.Hung(grid.names[gpu], life, "silent"),
    "stalled": lambda grid, size: ev.Stalled("stalled"),
    "drained": lambda grid, size, gpu: ev.Drained(grid.names[gpu], "drained"),
    "returned": lambda grid, size, gpu: ev.Returned(grid.names[gpu]),
    "started": lambda grid, size, gpu, life: ev.Started(grid.names[gpu], life),
    "ready": lambda grid, size, gpu, life: ev.Ready(grid.names[gpu], life),
    "settled": lambda grid, size, gpu, generation: ev.SettledIn(grid.names[gpu], generation),
    "reported": _reported,
    "voted": _voted,
    "decided": _decided,
    "found": lambda grid, size, *at: ev.Found(Position(*at) if at else None, "a" if at else ""),
    "saved": lambda grid, size, generation: ev.Saved(generation),
    "interrupted": lambda grid, size, save: ev.Interrupted("interrupted", save),
    "tick": lambda grid, size: ev.Tick(),
}


def key_of(order: ev.Order, grid: Grid, page: Callable[[Record], int]) -> Key:
    """() for what is only told."""
    match order:
        case ev.Start(gpu):
            return ("start", grid.number[gpu])
        case ev.Kill(gpu, life):
            return ("kill", grid.number[gpu], life)
        case ev.ReadVotes(generation, work):
            return ("votes", generation, (work.kind, work.step))
        case ev.Propose(generation, work, outcome):
            return ("propose", generation, (work.kind, work.step), outcome)
        case ev.WriteDown(record, work, votes):
            voters = frozenset(grid.number[gpu] for gpu in votes)
            return ("write", record.generation, (work.kind, work.step), voters)
        case ev.Pause(generation):
            return ("pause", generation)
        case ev.EndGeneration(generation):
            return ("end", generation)
        case ev.Publish(record):
            return ("publish", page(record))
        case ev.LookForCheckpoint():
            return ("look",)
        case ev.Rewind(position):
            return ("rewind", position.step, position.validated)
        case ev.Over(failed, reason):
            return ("over", failed, kind_of_end(reason))
        case _:
            return ()
