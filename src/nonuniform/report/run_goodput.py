"""Where the time of a run went, by reason; the reasons add up to the run's time.

In: the moments of a run: its commits and its events. Out: seconds by reason. The time is cut at
every commit and at every beginning of a session, so nothing is counted twice and nothing is left
out: each interval is dealt to reasons in order, each gets at most what is left. Knows nothing of
files and pages.

    starting     until the first step of a session is under way
    useful       steps that count, also the one that is done again after a loss
    validation   held-out loss
    skipped      steps committed without an update
    detect       a GPU was gone and nobody knew yet
    regroup      a new membership was agreed and connected
    transfer     pieces moved
    redone       work that was dropped, since it is done again
    stalled      everybody waited: a hung process, or a pause that no event explains
    saving       the last checkpoint, and leaving
    open         after the last commit of a run that has not ended
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median

REASONS = (
    "useful", "validation", "skipped", "starting", "detect", "regroup", "transfer", "redone",
    "stalled", "saving", "open",
)  # fmt: skip
NO_PARTS = (0.0, 0.0, 0.0, 0.0)
# A step that takes that many times the median, and a second more, stood still.
PAUSE = 4.0
PAUSE_S = 1.0
_CHANGES = ("generation", "failed", "drained", "fallback", "stalled")
_LAST = ("saving", "finished", "ended")
_OF_A_STEP = ("validation", "skip", "recovery", "joined")


@dataclass(frozen=True)
class Moment:
    """A commit ("step") or an event. `parts`: detect, regroup, transfer, redo, of a recovery."""

    time_s: float
    kind: str
    step: int = 0
    parts: tuple[float, ...] = NO_PARTS
    steps_lost: int = 0


@dataclass(frozen=True)
class Goodput:
    """`typical_s`: the median of the steps that nothing happened to; None where there is none."""

    seconds: dict[str, float]
    typical_s: float | None

    @property
    def total_s(self) -> float:
        return math.fsum(self.seconds.values())

    @property
    def useful_share(self) -> float | None:
        total_s = self.total_s
        return self.seconds["useful"] / total_s if total_s > 0 else None


@dataclass(frozen=True)
class Stretch:
    """From `start_s` to its `end`; `events` lie between, `begins`: a session starts with it."""

    start_s: float
    end: Moment
    begins: bool
    events: tuple[Moment, ...] = ()
    parts: tuple[float, ...] = NO_PARTS
    changed: bool = False
    skipped: bool = False

    @property
    def length_s(self) -> float:
        return self.end.time_s - self.start_s

    def first_s(self, *kinds: str) -> float | None:
        """From its start to the first such event."""
        found = [event.time_s - self.start_s for event in self.events if event.kind in kinds]
        return max(0.0, min(found)) if found else None

    def has(self, *kinds: str) -> bool:
        return any(event.kind in kinds for event in self.events)


Wish = tuple[str, float]


def account(moments: Sequence[Moment], end_s: float) -> Goodput:
    """The seconds of all reasons; their sum is `end_s`."""
    stretches = stretches_of(moments, end_s)
    typical_s = _typical_s(stretches)
    given: dict[str, list[float]] = {reason: [] for reason in REASONS}
    for stretch in stretches:
        for reason, seconds in deal(stretch.length_s, *_wishes(stretch, typical_s)):
            given[reason].append(seconds)
    return Goodput({reason: math.fsum(all_of) for reason, all_of in given.items()}, typical_s)


def deal(length_s: float, wishes: Iterable[Wish], rest: str) -> list[Wish]:
    """Each wish in order, as far as the time goes; what is left over is `rest`."""
    out, left_s = [], length_s
    for reason, wish_s in wishes:
        seconds = min(max(0.0, wish_s), left_s)
        out.append((reason, seconds))
        left_s -= seconds
    return [*out, (rest, left_s)]


def stretches_of(moments: Sequence[Moment], end_s: float) -> list[Stretch]:
    """The run from 0 to `end_s`, cut at its commits and at the beginnings of sessions."""
    ordered = _in_order(_without_dropped(moments), end_s)
    cuts = [
        index
        for index, moment in enumerate(ordered)
        if moment.kind in ("step", "validation", "resumed", "end")
    ]
    skips = {moment.step for moment in ordered if moment.kind == "skip"}
    out = []
    for before, after in pairwise([-1, *cuts]):
        start = ordered[before] if before >= 0 else Moment(0.0, "resumed")
        end = ordered[after]
        out.append(
            Stretch(
                start_s=start.time_s,
                end=end,
                begins=start.kind == "resumed",
                events=tuple(ordered[before + 1 : after]),
                skipped=end.kind == "step" and end.step in skips,
            )
        )
    return _with_parts(out)


def _without_dropped(moments: Sequence[Moment]) -> list[Moment]:
    """What was told of a step that a return to a checkpoint took back: it is no commit any more,
    so its parts lie within the time that was lost."""
    kept: list[Moment] = []
    back: Moment | None = None
    for moment in sorted(moments, key=lambda moment: moment.time_s):
        if moment.kind in ("fallback", "resumed"):
            back = moment
            kept = [one for one in kept if one.kind not in _OF_A_STEP or one.step <= back.step]
        elif back is not None and moment.kind in ("recovery", "joined"):
            moment = _at_its_commit(moment, back)
        kept.append(moment)
    return kept


def _at_its_commit(recovery: Moment, back: Moment) -> Moment:
    """It is told by the step that was dropped first; its commit is an earlier one if the return
    came after the loss was noticed."""
    noticed_s = recovery.time_s - math.fsum(recovery.parts[1:])
    if back.time_s < noticed_s:
        return recovery
    return replace(recovery, step=min(recovery.step, back.step + 1))


def _in_order(moments: Sequence[Moment], end_s: float) -> list[Moment]:
    """By time, commits before the events that speak of them; nothing lies after the end."""
    ordered = sorted(
        (replace(moment, time_s=min(max(0.0, moment.time_s), end_s)) for moment in moments),
        key=lambda moment: (moment.time_s, moment.kind != "step"),
    )
    return [*ordered, Moment(end_s, "end")]


def _with_parts(stretches: list[Stretch]) -> list[Stretch]:
    """A recovery is told just after the commit that ends it, so in the stretch after its own."""
    out = list(stretches)
    for index, stretch in enumerate(stretches):
        changed = stretch.has(*_CHANGES)
        out[index] = replace(out[index], changed=changed or out[index].changed)
        for event in stretch.events:
            if event.kind in ("recovery", "joined") and event.parts != NO_PARTS and index:
                own = out[index - 1]
                out[index - 1] = replace(own, parts=event.parts, changed=True)
    return out


def _typical_s(stretches: Sequence[Stretch]) -> float | None:
    quiet = [
        stretch.length_s
        for stretch in stretches
        if stretch.end.kind == "step" and not stretch.begins and not stretch.changed
    ]
    return median(quiet) if quiet else None


def _wishes(stretch: Stretch, typical_s: float | None) -> tuple[list[Wish], str]:
    """Who gets how much of a stretch, and who the rest."""
    if stretch.end.kind in ("resumed", "end"):
        return _of_tail(stretch, typical_s)
    work = "validation" if stretch.end.kind == "validation" else "useful"
    if stretch.skipped:
        work = "skipped"
    known_s = math.inf if typical_s is None else typical_s
    detect_s, regroup_s, transfer_s, redo_s = stretch.parts
    before: list[Wish] = []
    if stretch.begins:
        before = [("starting", stretch.first_s("generation") or 0.0)]
    if stretch.parts != NO_PARTS:
        parts = [
            ("detect", detect_s),
            ("regroup", regroup_s),
            ("transfer", transfer_s),
            (work, redo_s),
        ]
        return [*before, *parts, *_dropped(stretch, known_s)], _rest(stretch)
    if stretch.begins:
        return [*before, (work, known_s)], "starting"
    if stretch.has("fallback"):
        return [(work, known_s)], "redone"
    if stretch.changed:
        return [(work, known_s)], "stalled" if stretch.has("stalled") else "regroup"
    paused = work == "useful" and stretch.length_s > max(PAUSE * known_s, known_s + PAUSE_S)
    return ([(work, known_s)], "stalled") if paused else ([], work)


def _dropped(stretch: Stretch, known_s: float) -> list[Wish]:
    """What was under way when a GPU went; all that was taken back, where a checkpoint was read."""
    if stretch.has("fallback"):
        return [("redone", math.inf)]
    return [("redone", known_s)] if stretch.has("failed") else []


def _rest(stretch: Stretch) -> str:
    if stretch.begins:
        return "starting"
    return "stalled" if stretch.has("failed", "stalled") else "regroup"


def _of_tail(stretch: Stretch, typical_s: float | None) -> tuple[list[Wish], str]:
    """After the last commit that counts in a session."""
    resumed = stretch.end.kind == "resumed"
    left_s = stretch.first_s(*_LAST)
    if left_s is None and not resumed:
        if stretch.begins:
            return [("starting", stretch.first_s("generation") or math.inf)], "open"
        return [], "open"
    if resumed and (stretch.end.steps_lost or left_s is None):
        return [("redone", stretch.length_s if left_s is None else left_s)], "saving"
    lead_s = left_s or 0.0
    if stretch.begins:
        return [("starting", lead_s)], "saving"
    if stretch.has("failed"):
        dropped_s = lead_s if typical_s is None else min(lead_s, typical_s)
        return [("redone", dropped_s), ("stalled", lead_s - dropped_s)], "saving"
    return [], "saving"
