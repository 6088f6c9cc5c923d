"""How long a GPU that fails again and again is kept out.

In: failures with their moments, on any clock that does not go back. Out: until when a GPU may not
come back, and why. DESIGN "Generations": each return of a GPU that fails again costs all others a
regroup, so its returns are made rarer. Knows nothing of what failed, nor who obeys.

Failures count that lie within the window before the *last* one: so a verdict stands until it is
served, and does not soften while the GPU waits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class FlapOptions:
    """A GPU that fails more than `flaps` times within `window_s` waits `first_s`, and twice as
    long for each failure more, at most `max_s`. `first_s` = 0: nobody waits."""

    flaps: int
    window_s: float
    first_s: float
    max_s: float

    @property
    def most_counted(self) -> int:
        """More failures than these make no difference, since the wait has reached `max_s`."""
        doublings = 0
        if 0 < self.first_s < self.max_s:
            doublings = math.ceil(math.log2(self.max_s) - math.log2(self.first_s))
        return self.flaps + 1 + doublings


@dataclass(frozen=True)
class Quarantine:
    """`failures`: (gpu, time_s), those that may still count, by time."""

    options: FlapOptions
    failures: tuple[tuple[str, float], ...] = ()

    def failed(self, gpu: str, now_s: float) -> Quarantine:
        """With this failure, and without those that count no more."""
        options = self.options
        known: dict[str, list[float]] = {}
        for name, time_s in (*self.failures, (gpu, now_s)):
            known.setdefault(name, []).append(time_s)
        kept = [
            (time_s, name)
            for name, times in known.items()
            if times[-1] + max(options.window_s, _wait_s(options, times)) > now_s
            for time_s in _counted(options, times)
        ]
        return replace(self, failures=tuple((name, time_s) for time_s, name in sorted(kept)))

    def until(self, gpu: str, now_s: float) -> float | None:
        """The moment from which the GPU may come back; None: it may now."""
        times = self._times(gpu)
        if not times:
            return None
        end_s = times[-1] + _wait_s(self.options, times)
        return end_s if end_s > now_s else None

    def reason(self, gpu: str, now_s: float) -> str:
        """One line; empty where there is no quarantine."""
        end_s = self.until(gpu, now_s)
        if end_s is None:
            return ""
        count = len(_counted(self.options, self._times(gpu)))
        more = " or more" if count == self.options.most_counted else ""
        return (
            f"GPU {gpu} failed {count}{more} times within {self.options.window_s:g} s (flaps = "
            f"{self.options.flaps}): it may come back in {end_s - now_s:.0f} s"
        )

    def _times(self, gpu: str) -> list[float]:
        return [time_s for name, time_s in self.failures if name == gpu]


def _counted(options: FlapOptions, times: Sequence[float]) -> list[float]:
    within = [time_s for time_s in times if time_s > times[-1] - options.window_s]
    return within[-options.most_counted :]


def _wait_s(options: FlapOptions, times: Sequence[float]) -> float:
    count = len(_counted(options, times))
    if count <= options.flaps or options.first_s == 0:
        return 0.0
    if count == options.most_counted:
        return options.max_s
    return min(options.max_s, math.ldexp(options.first_s, count - options.flaps - 1))
