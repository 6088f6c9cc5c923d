"""Who hangs: a decision from the signs of life of all processes.

In: for each GPU when it was last heard of and what it said it was doing, and now. Out: the GPUs to
give up, with the reason. DESIGN "Generations". Three ways to hang look different:

- a stopped process says nothing any more;
- a stuck one says that its main thread has been busy with one thing for too long;
- one that waits for others says so, and is never to blame itself.

Knows nothing of processes, stores or clocks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Beat:
    """What a process says: the `count`-th time; its main thread has been at `mark` for `age_s`, and
    `waiting` for others or not."""

    count: int
    mark: str
    waiting: bool
    age_s: float


@dataclass(frozen=True)
class Sign:
    """The last beat that differed from the one before, and when it was heard; no beat: when the
    process was started."""

    heard_s: float
    beat: Beat | None = None


START = "start"  # the mark of a process that is not ready yet


@dataclass(frozen=True)
class Limits:
    """How long a process may be silent or busy with one thing; at its start it may take longer.
    `silent_s`: a shorter bound for silence alone, where somebody waits for the end of the run."""

    hang_s: float
    start_s: float
    silent_s: float | None = None


def hanging(signs: Mapping[str, Sign], limits: Limits, now_s: float) -> dict[str, str]:
    """gpu -> why it is given up."""
    found = {}
    for gpu, sign in sorted(signs.items()):
        if reason := _complaint(sign, limits, now_s):
            found[gpu] = reason
    return found


def standstill(signs: Mapping[str, Sign], limits: Limits, now_s: float) -> bool:
    """Whether all wait for each other, and have for too long: nobody is to blame."""
    return bool(signs) and all(
        sign.beat is not None
        and sign.beat.waiting
        and now_s - sign.heard_s < limits.hang_s / 2  # else it may be stopped
        and sign.beat.age_s + now_s - sign.heard_s > limits.hang_s
        for sign in signs.values()
    )


def _complaint(sign: Sign, limits: Limits, now_s: float) -> str | None:
    silent_s = now_s - sign.heard_s
    beat = sign.beat
    if beat is None:
        if silent_s > limits.start_s:
            return _late(limits)
        return None
    if silent_s > (limits.hang_s if limits.silent_s is None else limits.silent_s):
        return (
            f"no sign of life for {silent_s:.1f} s (hang_timeout_s = {limits.hang_s:g}), "
            f"last at {beat.mark}"
        )
    busy_s = beat.age_s + silent_s
    if beat.mark == START:
        return None if busy_s <= limits.start_s else _late(limits)
    if not beat.waiting and busy_s > limits.hang_s:
        return f"busy with {beat.mark} for {busy_s:.1f} s (hang_timeout_s = {limits.hang_s:g})"
    return None


def _late(limits: Limits) -> str:
    return f"did not start within start_timeout_s = {limits.start_s:g}"
