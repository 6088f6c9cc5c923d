"""Ranks that need much longer for their work than the others: slow, and not dead.

In: per committed step the busy seconds of every GPU, normalised by its part of the work (so that
equal GPUs give equal numbers), and what work that was. Out: who has become slow, with the ratio and
a reason. Knows nothing of clocks, of how time was measured, nor what is done about it.

A GPU is slow if the median of its last `steps` steps is more than `factor` times the median of the
others' medians. Medians both ways: one hiccup of one step moves nothing, and as long as most GPUs
are healthy the slow ones do not move what they are compared with.

- It takes a full window to say anything.
- A GPU's window starts anew when its work (degree, share) changes. The normalisation is only right
  to first order, since part of a step does not shrink with the work; a window that mixes two kinds
  of work has a median of neither. It costs `steps` steps of silence after a regroup.
- A GPU is told once, until its ratio has come half the way back to 1, or it is gone.
- One GPU alone has nobody to be compared with. Of two, each is the only witness against the other:
  there it takes a ratio above 2 as well, beyond which one does the whole work sooner than both
  together. With more there is a majority, and `factor` alone counts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from statistics import median

Work = tuple[int, int]
"""(degree, share): whatever a GPU's part of the work depends on."""

RATIO_OF_TWO = 2.0


@dataclass(frozen=True)
class SlowOptions:
    """`factor` times as long as the others, over `steps` steps."""

    factor: float
    steps: int


@dataclass(frozen=True)
class Slow:
    """A GPU that has become slow."""

    gpu: str
    ratio: float
    reason: str


@dataclass(frozen=True)
class _Window:
    work: Work | None
    busy_s: tuple[float, ...] = ()


@dataclass(frozen=True)
class SlowWatch:
    """A value: `after_step` gives the next one. `slow` are all GPUs that are slow at present."""

    options: SlowOptions
    slow: frozenset[str] = frozenset()
    _windows: Mapping[str, _Window] = field(default_factory=dict)
    _verdicts: tuple[Slow, ...] = ()

    def after_step(
        self, busy_s: Mapping[str, float], work: Mapping[str, Work] | None = None
    ) -> SlowWatch:
        """With one step more. GPUs that are not in `busy_s` have left."""
        windows = {
            gpu: self._grown(gpu, time_s, (work or {}).get(gpu)) for gpu, time_s in busy_s.items()
        }
        ratios = _ratios(windows, self.options.steps)
        least = _least_ratio(self.options, len(ratios))
        slow = frozenset(gpu for gpu, ratio in ratios.items() if ratio > least)
        back = 1.0 + (least - 1.0) / 2.0
        still = frozenset(
            gpu for gpu in self.slow & windows.keys() if ratios.get(gpu, least) > back
        )
        new = tuple(self._verdict(gpu, ratios) for gpu in sorted(slow - self.slow))
        return replace(self, slow=slow | still, _windows=windows, _verdicts=new)

    def verdicts(self) -> tuple[Slow, ...]:
        """Those who became slow with the last step."""
        return self._verdicts

    def _grown(self, gpu: str, busy_s: float, work: Work | None) -> _Window:
        assert 0 <= busy_s < math.inf, f"GPU {gpu}: busy for {busy_s} s"
        known = self._windows.get(gpu)
        if known is None or known.work != work:
            return _Window(work, (busy_s,))
        return _Window(work, (*known.busy_s, busy_s)[-self.options.steps :])

    def _verdict(self, gpu: str, ratios: Mapping[str, float]) -> Slow:
        ratio = ratios[gpu]
        options = self.options
        return Slow(
            gpu,
            ratio,
            f"GPU {gpu} needs {ratio:.2f} times as long for its part of the work as the other "
            f"{len(ratios) - 1} (median of {options.steps} steps, slow_factor = "
            f"{options.factor:g})",
        )


def _ratios(windows: Mapping[str, _Window], steps: int) -> dict[str, float]:
    """gpu -> its median against the median of the others', for those with a full window."""
    medians = {g: median(w.busy_s) for g, w in windows.items() if len(w.busy_s) == steps}
    order = sorted(medians, key=lambda gpu: medians[gpu])
    values = [medians[gpu] for gpu in order]
    ratios = {}
    for index, gpu in enumerate(order):
        others_s = _median_without(values, index)
        if others_s > 0:
            ratios[gpu] = values[index] / others_s
    return ratios


def _median_without(values: list[float], index: int) -> float:
    """Of ascending values without one of them; 0 if none is left. Nothing is copied, since this is
    asked for every GPU in every step."""
    count = len(values) - 1
    if count < 1:
        return 0.0

    def other(place: int) -> float:
        return values[place if place < index else place + 1]

    return (other((count - 1) // 2) + other(count // 2)) / 2.0


def _least_ratio(options: SlowOptions, gpus: int) -> float:
    return options.factor if gpus > 2 else max(options.factor, RATIO_OF_TWO)
