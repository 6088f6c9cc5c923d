"""What boosting costs over a history of failures, and what it saves.

In: times and the lost GPUs of each domain from each time on, the rack, and the performance needed
for each number of losses. Out: the share of domains that were ever boosted, the energy spent above
the nominal set point, the throughput saved. Without a boost a hurt domain works at 1 / need.

Does not know: several boosted racks in a row that share its budget at the same time (`Rack` says
how many are reckoned with), or the seconds before a boost is in place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nonuniform.errors import BadInput
from nonuniform.power.curve import watts_for
from nonuniform.power.policy import boost
from nonuniform.power.rack import Rack
from nonuniform.power.thermal import Cooling, steady

Integers = NDArray[np.integer[Any]]
Array = NDArray[np.float64]


class Spent(NamedTuple):
    """Over the whole history. `saved_domain_s`: seconds of work of a healthy domain. `times_usual`:
    joules of boost for each of these, against the joules that a healthy rack needs for one.
    `energy_low_j`, `energy_high_j`: the band of the power curve."""

    share_ever_boosted: float
    share_of_time_boosted: float
    boosted_domain_s: float
    energy_j: float
    energy_low_j: float
    energy_high_j: float
    saved_domain_s: float
    saved_share: float
    times_usual: float
    refused_domain_s: float
    extrapolated: bool


class _Level(NamedTuple):
    """A domain with so many losses: extra watts (value, low, high) and the work that is saved."""

    boosted: bool
    refused: bool
    extra_w: tuple[float, float, float]
    saved: float


def energy(
    times_s: Array,
    lost: Integers,
    end_s: float,
    rack: Rack,
    cooling: Cooling,
    need: Sequence[float],
) -> Spent:
    """`lost[i, d]` GPUs of domain d are lost from `times_s[i]` until the next time, or `end_s`.
    `need[k]` is the performance needed with k lost; with more than that none are boosted."""
    spans_s = _spans(times_s, lost, end_s)
    levels = [_level(rack, cooling, need, count) for count in range(int(lost.max(initial=0)) + 1)]
    seconds = np.zeros(len(levels))
    for count in range(len(levels)):
        seconds[count] = float(spans_s @ (lost == count).sum(axis=1))
    boosted = np.array([level.boosted for level in levels])
    refused = np.array([level.refused for level in levels])
    joules = np.array([level.extra_w for level in levels]).T @ seconds
    saved = float(np.array([level.saved for level in levels]) @ seconds)
    total = float(spans_s.sum()) * lost.shape[1]
    ever = boosted[lost][spans_s > 0].any(axis=0)
    return Spent(
        share_ever_boosted=float(ever.mean()),
        share_of_time_boosted=float(seconds[boosted].sum() / total),
        boosted_domain_s=float(seconds[boosted].sum()),
        energy_j=float(joules[0]),
        energy_low_j=float(joules[1]),
        energy_high_j=float(joules[2]),
        saved_domain_s=saved,
        saved_share=saved / total,
        times_usual=float(joules[0] / saved / rack.nominal_w) if saved else 0.0,
        refused_domain_s=float(seconds[refused].sum()),
        extrapolated=bool(boosted.any()),
    )


def _level(rack: Rack, cooling: Cooling, need: Sequence[float], count: int) -> _Level:
    if count == 0 or count >= min(len(need), rack.domain_gpus):
        return _Level(False, count > 0, (0.0, 0.0, 0.0), 0.0)
    nominal_w = rack.gpu.nominal_w
    start = steady(cooling, nominal_w)
    found = boost(need[count], rack, count, start, float("inf"))
    if found.limit == "none needed":
        return _Level(False, False, (0.0, 0.0, 0.0), 0.0)
    if not found.granted:
        return _Level(False, True, (0.0, 0.0, 0.0), 0.0)
    living, band = rack.domain_gpus - count, watts_for(rack.gpu, need[count])
    extra = [living * (watts - nominal_w) for watts in (band.value, band.low, band.high)]
    return _Level(True, False, (extra[0], extra[1], extra[2]), 1 - 1 / need[count])


def _spans(times_s: Array, lost: Integers, end_s: float) -> Array:
    if lost.ndim != 2 or lost.shape[0] != len(times_s) or not lost.size:
        raise BadInput(
            f"a history of {len(times_s)} times needs as many rows of lost GPUs by domain, not "
            f"{lost.shape}"
        )
    if lost.min() < 0:
        raise BadInput(f"a history has {lost.min()} lost GPUs in a domain")
    spans_s = np.diff(np.append(times_s, end_s))
    if not np.isfinite(spans_s).all() or spans_s.min() < 0 or spans_s.sum() <= 0:
        raise BadInput(f"the times of a history must rise and end before end_s = {end_s}")
    return spans_s
