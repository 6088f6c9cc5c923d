"""What each GPU did when: at work, gone, waiting as a spare, on its way in.

In: the events of a run in their order. Out: spans by GPU, without gaps from its first mention to
the end of the run. `after` is one transition, for those who follow a run that is under way. Knows
nothing of files and pages.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

STATES = ("working", "joining", "spare", "failed", "drained", "absent")
# Kind of event -> what the GPU that it names is from then on.
_OF_KIND = {
    "started": "joining",
    "returned": "joining",
    "failed": "failed",
    "drained": "drained",
    "quarantined": "failed",
    "spare": "spare",
}
Told = tuple[float, str, str, Mapping[str, Any]]


@dataclass(frozen=True)
class Span:
    start_s: float
    end_s: float
    state: str

    @property
    def length_s(self) -> float:
        return self.end_s - self.start_s


@dataclass(frozen=True)
class GpuLine:
    """One GPU, "R/I" by its name; it may work elsewhere."""

    gpu: str
    spans: tuple[Span, ...]

    def seconds(self, state: str) -> float:
        return math.fsum(span.length_s for span in self.spans if span.state == state)


def gpu_lines(events: Iterable[Told], end_s: float) -> tuple[GpuLine, ...]:
    states: dict[str, str] = {}
    spans: dict[str, list[Span]] = {}
    since_s: dict[str, float] = {}
    now_s = 0.0
    for time_s, kind, gpu, extra in events:
        now_s = min(max(now_s, time_s), end_s)
        changed = after(states, kind, gpu, extra)
        for name, state in changed.items():
            if states.get(name) == state:
                continue
            _close(spans, name, states, since_s, now_s)
            states[name], since_s[name] = state, now_s
    for name in states:
        _close(spans, name, states, since_s, end_s)
    return tuple(
        GpuLine(name, tuple(spans.get(name, ()))) for name in sorted(states, key=gpu_order)
    )


def after(
    states: Mapping[str, str], kind: str, gpu: str, extra: Mapping[str, Any]
) -> dict[str, str]:
    """The states that an event changes."""
    if kind == "resumed":  # of the processes of the session before none is left
        return dict.fromkeys(states, "absent")
    if kind in ("generation", "saving"):
        return _placed(states, extra)
    return {gpu: _OF_KIND[kind]} if gpu and kind in _OF_KIND else {}


def _placed(states: Mapping[str, str], extra: Mapping[str, Any]) -> dict[str, str]:
    """Whom a generation puts to work; one that worked before and is not in it was let go."""
    placement = extra.get("placement")
    groups = placement.values() if isinstance(placement, Mapping) else ()
    working = {gpu for group in groups if isinstance(group, list) for gpu in map(str, group)}
    if not working:
        return {}
    spares = extra.get("spares")
    found = {str(gpu): "spare" for gpu in spares} if isinstance(spares, list) else {}
    found |= dict.fromkeys(working, "working")
    idle = {gpu: "spare" for gpu, state in states.items() if state == "working"}
    return {**idle, **found}


def gpu_order(gpu: str) -> tuple[int, int, str]:
    """Replica, then place; names of another form come last."""
    replica, _, place = gpu.partition("/")
    if replica.isdecimal() and place.isdecimal():
        return int(replica), int(place), gpu
    return 10**9, 0, gpu


def _close(
    spans: dict[str, list[Span]],
    name: str,
    states: Mapping[str, str],
    since_s: Mapping[str, float],
    now_s: float,
) -> None:
    if name in states and now_s > since_s[name]:
        spans.setdefault(name, []).append(Span(since_s[name], now_s, states[name]))
