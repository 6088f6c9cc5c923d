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

from collections.abc import Callable
from typing import Any

from nonuniform.protocol import generations, processes
from nonuniform.protocol.events import (
    Decided,
    Drained,
    Ended,
    Event,
    Found,
    Hung,
    Interrupted,
    Order,
    Ready,
    Reported,
    Returned,
    Saved,
    SettledIn,
    Stalled,
    Started,
    Tick,
    Voted,
)
from nonuniform.protocol.state import Control, Move, Phase


def begin(state: Control, reason: str) -> tuple[Control, tuple[Order, ...]]:
    """Publish the first generation; its processes were started before."""
    return generations.publish(Move(state), state.record, reason, ()).result()


def advance(state: Control, event: Event, now_s: float) -> tuple[Control, tuple[Order, ...]]:
    """The state after an event, and the orders that follow from it."""
    if state.phase is Phase.OVER:
        return state, ()
    handle = _HANDLERS[type(event)]
    return handle(Move(state), event, now_s).result()


_HANDLERS: dict[type, Callable[[Move, Any, float], Move]] = {
    Ended: processes.ended,
    Hung: processes.hung,
    Stalled: generations.stalled,
    Drained: processes.drained,
    Returned: processes.returned,
    Started: processes.started,
    Ready: processes.ready,
    SettledIn: processes.settled_in,
    Reported: generations.reported,
    Voted: generations.voted,
    Decided: generations.decided,
    Found: generations.found,
    Saved: generations.saved,
    Interrupted: generations.interrupted,
    Tick: processes.tick,
}
