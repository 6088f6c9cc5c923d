"""A boost is a lease: (state, event, now) -> (state, orders, reason).

    reading --all found--> recording --on disk--> setting --read back--> held
       |                       |                     |                     |
       v                       v                     v                     v
    nothing                 nothing               restoring <--------------+
                                                     | read back: at or below what it was
                                                     v
                                                 (settling) --still so after settle_s--> nothing

In: what holders ask, what actuators and the disk answer, samples, ticks. Out: what to read, write,
raise, lower and tell. All GPUs of a holder are boosted or none: a replica is as fast as its slowest
GPU. A raise is ordered only after the record on disk names the GPU and what to restore. A boost is
given up when its holder is silent for longer than its lease, gone, or done; when a GPU refuses,
clamps, is set by somebody else, is too hot, or was not heard of for `stale_s`. What has to be
restored is ordered anew at every tick until it is read back. Where nobody knows what became of an
order to raise (it was refused, or a dead supervisor gave it), it may still have its way: then the
GPU *settles*, stays in the record, and is lowered again if it rises. A reading that is 0 or below
what the GPU takes says nothing.

Orders have to be carried out in their order, for one GPU one after the other.

Does not know: clocks, processes, files, whether a boost is worth it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace

from nonuniform.power.lease_values import (
    NO_NEWS,
    Action,
    Ask,
    Event,
    Found,
    Gone,
    Holder,
    Lease,
    LeaseOptions,
    Lower,
    Note,
    NotWritten,
    Order,
    Owed,
    Phase,
    Raise,
    Read,
    RecordLost,
    Refused,
    Release,
    Renew,
    Sample,
    State,
    Stop,
    Tell,
    Tick,
    Wish,
    Write,
    Written,
)

Turn = tuple[State, tuple[Action, ...]]

_AWAITED: dict[Phase, Order] = {
    "reading": "read",
    "setting": "raise",
    "held": "read",
    "restoring": "lower",
    "settling": "read",
}


def begin(options: LeaseOptions, owed: Iterable[Owed] = ()) -> State:
    """What a supervisor starts from: all that the record names has to be restored."""
    on_disk = tuple(owed)
    leases = tuple(
        replace(
            Lease(line.gpu, "", line.set_point_w, line.restore_w, "restoring", line.restore_w),
            flow_l_per_min=line.flow_l_per_min,
        )
        for line in on_disk
    )
    return State(options, leases=leases, on_disk=on_disk)


def step(state: State, event: Event, now_s: float) -> tuple[State, tuple[Action, ...], str]:
    state, actions = _turn(state, event, now_s)
    reasons = [action.reason for action in actions if isinstance(action, Tell | Note)]
    return state, actions, "; ".join(reasons)


def _turn(state: State, event: Event, now_s: float) -> Turn:
    match event:
        case Ask():
            return _ask(state, event, now_s)
        case Renew(name):
            return _renew(state, name, now_s), ()
        case Release(name):
            return _give_up(state, name, "given back by who held it")
        case Gone(name):
            return _give_up(state, name, "who held it has died")
        case Found():
            return _found(state, event, now_s)
        case Refused():
            return _refused(state, event)
        case Written(owed):
            return _written(state, owed)
        case NotWritten(why):
            return _not_written(state, why)
        case RecordLost():
            return _record_lost(state)
        case Sample():
            return _sample(state, event, now_s)
        case Tick():
            return _tick(state, now_s)
        case Stop():
            stopping = replace(state, stopping=True)
            return _give_up_all(stopping, lambda holder: "the supervisor was told to stop")


# -------------------------------------------------------------------------------------- asking


def _ask(state: State, ask: Ask, now_s: float) -> Turn:
    if why := _no(state, ask, now_s):
        return state, (Tell(ask.holder, False, why, ask.number),)
    ends_s = now_s + ask.lasts_s
    expires_s = min(now_s + ask.lease_s, ends_s)
    holder = Holder(ask.holder, ask.lease_s, expires_s, ends_s, ask.limit_c, ask.number)
    leases = tuple(
        Lease(x.gpu, ask.holder, x.set_point_w, x.nominal_w, "reading", known_as=x.known_as)
        for x in ask.wishes
    )
    state = replace(state, holders=(*state.holders, holder), leases=(*state.leases, *leases))
    return state, tuple(Read(lease.gpu, before=True) for lease in leases)


def _no(state: State, ask: Ask, now_s: float) -> str:
    """Why this cannot be tried; empty if it can."""
    if state.stopping:
        return "the supervisor is stopping"
    if any(holder.name == ask.holder for holder in state.holders):
        return "it holds a boost already: give that back first"
    gpus = [wish.gpu for wish in ask.wishes]
    if not gpus or len(set(gpus)) < len(gpus):
        return f"{len(gpus)} GPUs were named, {len(set(gpus))} different ones"
    for lease in state.leases:
        if lease.gpu in gpus:
            doing = "boosted for another" if lease.holder else "being restored"
            return f"GPU {lease.gpu} is {doing}"
    if state.options.external_telemetry:
        for wish in ask.wishes:
            if why := _stale(state, wish, now_s):
                return why
    return ""


def _renew(state: State, name: str, now_s: float) -> State:
    holders = tuple(
        replace(holder, expires_s=min(now_s + holder.lease_s, holder.ends_s))
        if holder.name == name and now_s < holder.expires_s  # a lease that is over stays over
        else holder
        for holder in state.holders
    )
    return replace(state, holders=holders)


# ------------------------------------------------------------------------------------- answers


def _found(state: State, found: Found, now_s: float) -> Turn:
    lease = _lease(state, found.gpu)
    if lease is None or _AWAITED.get(lease.phase) != found.after:
        return state, ()
    if lease.phase in ("restoring", "settling"):
        return _found_restoring(state, lease, found, now_s)
    if not state.options.external_telemetry:
        state = replace(state, seen_s={**state.seen_s, found.gpu: now_s})
    if lease.phase == "reading":
        return _found_before(state, lease, found)
    if not abs(found.watts - lease.set_point_w) <= state.options.tolerance_w:
        by = "was set to" if lease.phase == "setting" else "was held at"
        why = f"GPU {lease.gpu} {by} {lease.set_point_w:g} W and reads {found.watts:g} W"
        return _give_up(state, lease.holder, why)
    if lease.phase == "held":
        return state, ()
    state = _put(state, replace(lease, phase="held", sure=True))
    mine = [other for other in state.leases if other.holder == lease.holder]
    if any(other.phase != "held" for other in mine):
        return state, ()
    number = next(x.number for x in state.holders if x.name == lease.holder)
    return state, (Tell(lease.holder, True, f"{len(mine)} GPUs were set and read back", number),)


def _found_before(state: State, lease: Lease, found: Found) -> Turn:
    """Is this GPU as it should be before a boost? With the last one, the record is written."""
    gpu, watts, wanted_w = lease.gpu, found.watts, lease.set_point_w
    if why := _nonsense(state, found):
        return _give_up(state, lease.holder, f"GPU {gpu}: {why}")
    if not 0 < watts <= lease.nominal_w + state.options.tolerance_w:
        why = f"GPU {gpu} is at {watts:g} W, not at its nominal {lease.nominal_w:g} W or below"
        return _give_up(state, lease.holder, why)
    if wanted_w > found.highest_w:
        why = f"GPU {gpu} takes {found.highest_w:g} W at the most, {wanted_w:g} W are needed"
        return _give_up(state, lease.holder, why)
    if wanted_w <= watts:
        why = f"GPU {gpu} is at {watts:g} W, {wanted_w:g} W would be no boost"
        return _give_up(state, lease.holder, why)
    state = _put(state, replace(lease, restore_w=watts, flow_l_per_min=found.flow_l_per_min))
    mine = [other for other in state.leases if other.holder == lease.holder]
    if any(math.isnan(other.restore_w) for other in mine):
        return state, ()
    for other in mine:
        state = _put(state, replace(other, phase="recording"))
    return state, (Write(state.record),)


def _nonsense(state: State, found: Found) -> str:
    """Why no GPU can be at this; empty if it can."""
    if not found.watts > 0:
        return f"it reads {found.watts:g} W"
    if found.watts < found.lowest_w - state.options.tolerance_w:
        return f"it reads {found.watts:g} W and takes {found.lowest_w:g} W at the least"
    return ""


def _found_restoring(state: State, lease: Lease, found: Found, now_s: float) -> Turn:
    """Back, or back and settling, or not. A GPU that reads less than what was set may be capped by
    somebody, or be read wrongly: it settles as well."""
    watts, tolerance_w = found.watts, state.options.tolerance_w
    why = _nonsense(state, found)
    if not why and watts > lease.restore_w + tolerance_w:
        why = f"it was set to {lease.restore_w:g} W and reads {watts:g} W"
    if why:
        rose = lease.phase == "settling"
        lease = replace(lease, phase="restoring", sure=lease.sure and not rose, settled=False)
        again = (lease.lower,) if rose else ()
        state, notes = _trouble(_put(state, lease), lease, why)
        return state, (*again, *notes)
    certain = lease.settled or (lease.sure and watts >= lease.restore_w - tolerance_w)
    if lease.phase == "restoring" and not certain:
        settling = replace(lease, phase="settling", good_s=now_s, trouble="")
        return _put(state, settling), ()
    if lease.phase == "settling" and now_s < lease.good_s + state.options.settle_s:
        return state, ()
    if lease.phase == "settling" and lease.flow_l_per_min is not None:
        lease = replace(lease, phase="restoring", settled=True)
        return _put(state, lease), (lease.lower,)
    state = replace(state, leases=tuple(x for x in state.leases if x.gpu != lease.gpu))
    return state, (Note("boost_restored", lease.gpu, f"GPU {lease.gpu} is back at {watts:g} W"),)


def _refused(state: State, refused: Refused) -> Turn:
    lease = _lease(state, refused.gpu)
    if lease is None or _AWAITED.get(lease.phase) != refused.after:
        return state, ()
    if lease.phase in ("restoring", "settling"):
        return _trouble(state, lease, refused.why)
    if lease.phase == "held":
        return state, ()  # a check that failed is no news: the boost goes when it is stale
    return _give_up(state, lease.holder, refused.why)


def _trouble(state: State, lease: Lease, why: str) -> Turn:
    """Said when it changes; the next tick tries again."""
    if lease.trouble == why:
        return state, ()
    reason = f"GPU {lease.gpu} is not back at {lease.restore_w:g} W: {why}"
    return _put(state, replace(lease, trouble=why)), (
        Note("boost_not_restored", lease.gpu, reason),
    )


def _written(state: State, owed: tuple[Owed, ...]) -> Turn:
    """Only what this very record names may be raised."""
    state = replace(state, on_disk=owed, lost=False)
    raising = [x for x in state.leases if x.phase == "recording" and x.owed in owed]
    for lease in raising:
        state = _put(state, replace(lease, phase="setting"))
    return state, tuple(Raise(lease.gpu, lease.set_point_w) for lease in raising)


def _not_written(state: State, why: str) -> Turn:
    """Nobody is boosted without a record. What the disk says now is not known, so that it is
    written again: the old or the new one, and both name those who are boosted already, unless it
    had been lost."""
    first = state.on_disk is not None
    lost = state.lost
    waiting = {lease.holder for lease in state.leases if lost or lease.phase == "recording"}
    state, actions = _give_up_all(
        replace(state, on_disk=None),
        lambda holder: f"no record of it: {why}" if holder.name in waiting else "",
    )
    note = Note("boost_record", "", f"the record was not written: {why}")
    return state, (*actions, *([note] if first else []))


def _record_lost(state: State) -> Turn:
    """The next tick writes it again."""
    if state.on_disk is None:
        return replace(state, lost=True), ()
    why = "the record on disk is not what was written there; it is written again"
    return replace(state, on_disk=None, lost=True), (Note("boost_record", "", why),)


# ------------------------------------------------------------------------------- what ends one


def _sample(state: State, sample: Sample, now_s: float) -> Turn:
    if state.options.external_telemetry:
        state = replace(state, seen_s={**state.seen_s, sample.gpu: now_s})
    mine = {x.holder for x in state.leases if sample.gpu in (x.gpu, x.known_as)}

    def too_hot(holder: Holder) -> str:
        if holder.name not in mine or sample.temperature_c < holder.limit_c:
            return ""
        return (
            f"GPU {sample.gpu} is at {sample.temperature_c:g} degC, the limit is {holder.limit_c:g}"
        )

    return _give_up_all(state, too_hot)


def _tick(state: State, now_s: float) -> Turn:
    state, actions = _give_up_all(state, lambda holder: _over(state, holder, now_s))
    ordered = {action.gpu for action in actions if isinstance(action, Lower)}
    more: list[Action] = []
    for lease in state.leases:
        if lease.phase == "restoring" and lease.gpu not in ordered:
            more.append(lease.lower)
        elif lease.phase in ("held", "settling"):
            more.append(Read(lease.gpu))
    if state.on_disk != state.record:
        more.append(Write(state.record))
    return state, (*actions, *more)


def _over(state: State, holder: Holder, now_s: float) -> str:
    """Why this boost ends now; empty if it goes on."""
    if now_s >= holder.ends_s:
        return "the time that it may last is over"
    if now_s >= holder.expires_s:
        return f"no sign of life from who holds it for {holder.lease_s:g} s"
    for lease in state.leases:
        mine = lease.holder == holder.name and lease.phase in ("setting", "held")
        if mine and (why := _stale(state, lease, now_s)):
            return why
    return ""


def _stale(state: State, of: Wish | Lease, now_s: float) -> str:
    gpu = of.gpu
    seen_s = [state.seen_s.get(name, -math.inf) for name in (gpu, of.known_as)]
    age_s = now_s - max(seen_s)
    if age_s <= state.options.stale_s:
        return ""
    since = f" for {age_s:.1f} s" if math.isfinite(age_s) else ""
    return f"{NO_NEWS} {gpu}{since}, stale after {state.options.stale_s:g} s"


def _give_up_all(state: State, why: Callable[[Holder], str]) -> Turn:
    """Those holders for whom there is a reason."""
    actions: list[Action] = []
    for holder in state.holders:
        if reason := why(holder):
            state, more = _give_up(state, holder.name, reason)
            actions += more
    return state, tuple(actions)


def _give_up(state: State, name: str, why: str) -> Turn:
    """What may be raised is lowered first; then the holder is told."""
    number = next((holder.number for holder in state.holders if holder.name == name), None)
    if number is None:
        return state, ()
    leases: list[Lease] = []
    lowering: list[Lower] = []
    for lease in state.leases:
        if lease.holder != name:
            leases.append(lease)
        elif lease.phase in ("setting", "held"):
            leases.append(replace(lease, holder="", phase="restoring"))
            lowering.append(leases[-1].lower)
    holders = tuple(holder for holder in state.holders if holder.name != name)
    state = replace(state, holders=holders, leases=tuple(leases))
    return state, (*lowering, Tell(name, False, why, number))


def _lease(state: State, gpu: str) -> Lease | None:
    return next((lease for lease in state.leases if lease.gpu == gpu), None)


def _put(state: State, lease: Lease) -> State:
    return replace(state, leases=tuple(lease if x.gpu == lease.gpu else x for x in state.leases))
