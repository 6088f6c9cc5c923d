"""Failures drawn from rates: one invented history of a fleet for each seed.

In: a fleet, causes, a seed. Out: a `Trace`. DESIGN "Two arrows", the first link of the second
one. Knows nothing of jobs or policies. A GPU that is down may be struck again; the trace has both
rows.

Each cause has its own stream of random numbers, in the order: when, where, how long. So a cause
more, or another repair time, leaves all else of a seed as it was, and two scenarios with the same
seeds differ by what was changed and by little chance.

With `steady_start` the history does not begin with a whole fleet: the number of failures under
way is drawn as it is long after the beginning (Poisson with rate x mean repair, whatever the
distribution of repairs), each with what is left of its repair. With bursts their mean is right,
but they are not bunched as they would be.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nonuniform.cluster.fleet import Fleet
from nonuniform.cluster.sources.rates import Bursts, Cause, Lemons, check_causes, node_sizes
from nonuniform.cluster.trace import Trace, empty, make_trace
from nonuniform.errors import BadInput

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

MOST_FAILURES = 1e8
"""Expected rows beyond which a trace would not fit in memory: a rate in the wrong unit."""

_LEMON_STREAM = 0


@dataclass(frozen=True)
class _Window:
    hours: float
    bursts: Bursts | None
    steady_start: bool


def generate(
    fleet: Fleet,
    causes: Sequence[Cause],
    hours: float,
    seed: int,
    lemons: Lemons | None = None,
    bursts: Bursts | None = None,
    steady_start: bool = False,
) -> Trace:
    """The failures of `hours` hours. The same arguments give the same trace."""
    if seed < 0:
        raise BadInput(f"failures: seed = {seed}, expected 0 or more")
    check_size(fleet, causes, hours, bursts)
    if not causes:
        return empty(hours)
    window = _Window(hours, bursts, steady_start)
    factors = _node_factors(fleet, lemons, seed)
    columns = [
        _of_cause(np.random.default_rng((seed, number)), fleet, cause, window, factors)
        for number, cause in enumerate(causes, start=_LEMON_STREAM + 1)
    ]
    start_h, end_h, struck = (np.concatenate(parts) for parts in zip(*columns, strict=True))
    why = np.repeat(np.arange(len(causes)), [len(starts) for starts, _, _ in columns])
    blocks = np.array([cause.block(fleet) for cause in causes], np.int64)[why]
    first = struck - struck % blocks
    gpus = np.minimum(blocks, fleet.gpus - first)
    return make_trace(
        hours, start_h, end_h, first, gpus, why, tuple(cause.name for cause in causes)
    )


def _of_cause(
    generator: np.random.Generator,
    fleet: Fleet,
    cause: Cause,
    window: _Window,
    factors: Floats | None,
) -> tuple[Floats, Floats, Ints]:
    """When each failure begins and ends, and the GPU it strikes; in no order."""
    per_hour = cause.failures_per_day(fleet) / 24
    start_h = _starts_h(generator, per_hour, window)
    struck = _struck(generator, fleet, cause, factors, len(start_h))
    lasts_h = cause.repair.draw_h(generator, len(start_h))
    if window.steady_start:
        under_way = generator.poisson(per_hour * cause.repair.mean_h)
        start_h = np.append(start_h, np.zeros(under_way))
        struck = np.append(struck, _struck(generator, fleet, cause, factors, under_way))
        lasts_h = np.append(lasts_h, cause.repair.draw_remaining_h(generator, under_way))
    # A repair too short for the resolution of its start still has an end behind it.
    end_h = np.maximum(start_h + lasts_h, np.nextafter(start_h, math.inf))
    return start_h, end_h, struck


def _starts_h(generator: np.random.Generator, per_hour: float, window: _Window) -> Floats:
    hours, bursts = window.hours, window.bursts
    alone = 1.0 if bursts is None else 1.0 - bursts.share
    start_h = generator.random(generator.poisson(alone * per_hour * hours)) * hours
    if bursts is not None:
        start_h = np.append(start_h, _burst_starts_h(generator, per_hour, hours, bursts))
    # A product with a number below 1 may round up to the end of the window.
    return np.minimum(start_h, np.nextafter(hours, 0.0))


def _burst_starts_h(
    generator: np.random.Generator, per_hour: float, hours: float, bursts: Bursts
) -> Floats:
    """Bursts that began before the window count with what falls into it: the rate is the same from
    the first hour on."""
    span_h = hours + bursts.within_h
    number = generator.poisson(bursts.share * per_hour / bursts.failures * span_h)
    begin_h = generator.random(number) * span_h - bursts.within_h
    sizes = 1 + generator.poisson(bursts.failures - 1, number)
    start_h = np.repeat(begin_h, sizes) + generator.random(int(sizes.sum())) * bursts.within_h
    return start_h[(start_h >= 0) & (start_h < hours)]


def _struck(
    generator: np.random.Generator,
    fleet: Fleet,
    cause: Cause,
    factors: Floats | None,
    number: int,
) -> Ints:
    """The GPU that each failure strikes, see `rates.chances`."""
    if cause.per == "domain":
        return generator.integers(fleet.in_domains, size=number)
    if cause.per == "gpu" and factors is None:
        return generator.integers(fleet.gpus, size=number)
    sizes = node_sizes(fleet)
    if factors is None:
        nodes = generator.integers(fleet.nodes, size=number)
    else:
        weights = factors * sizes if cause.per == "gpu" else factors
        bounds = np.cumsum(weights)
        drawn = generator.random(number) * bounds[-1]
        # As above: a product may round up to the last bound.
        nodes = np.minimum(np.searchsorted(bounds, drawn, side="right"), fleet.nodes - 1)
    return nodes * fleet.node + generator.integers(sizes[nodes])


def _node_factors(fleet: Fleet, lemons: Lemons | None, seed: int) -> Floats | None:
    """How often each node fails, relative to the others."""
    if lemons is None:
        return None
    number = max(1, round(lemons.share * fleet.nodes))
    chosen = np.random.default_rng((seed, _LEMON_STREAM)).choice(
        fleet.nodes, size=number, replace=False
    )
    factors = np.ones(fleet.nodes)
    factors[chosen] = lemons.factor
    return factors


def check_size(
    fleet: Fleet, causes: Sequence[Cause], hours: float, bursts: Bursts | None = None
) -> None:
    """`BadInput` for what `generate` could not draw; cheap, so ask before a long run."""
    if not 0 < hours < math.inf:
        raise BadInput(f"failures: hours = {hours:g}, expected a finite number above 0")
    check_causes(causes)
    before_h = 0.0 if bursts is None else bursts.within_h
    for cause in causes:
        per_hour = cause.failures_per_day(fleet) / 24
        expected = per_hour * (hours + before_h + cause.repair.mean_h)
        if expected > MOST_FAILURES:
            raise BadInput(
                f"failures: {cause.name}: {cause.rate_per_day:g} a day per {cause.per} means "
                f"{expected:.2g} failures of {fleet.gpus} GPUs in {hours:g} h, a repair and a "
                f"burst, more than {MOST_FAILURES:g}"
            )
