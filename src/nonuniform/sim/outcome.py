"""What a history came to, and what many of them come to together.

In: of one seed and policy, totals that are integrals over time. Out: the same as ratios; over all
seeds means, spread and confidence. DESIGN "Outside contract", `summary.json`. Knows no history.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from nonuniform.errors import BadInput

Hours = tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class GpuHours:
    """Every GPU-hour that is owned is in exactly one of these.

    `failed`: lost GPUs. `idled`: healthy, idle since others are hurt. `spare`: idle with nothing
    hurt as well. `transition`: would work, but the job stands still. `redone`: work done before.
    `unused`: GPUs left over from the last whole domain.
    """

    useful: float
    failed: float
    idled: float
    spare: float
    transition: float
    redone: float
    unused: float

    @property
    def total(self) -> float:
        return math.fsum(asdict(self).values())


@dataclass(frozen=True)
class Outcome:
    """One seed, one policy, `hours` hours.

    `throughput_*`: share of the healthy job; `throughput_owned`: healthy GPUs' worth of it per GPU
    owned, so that spares count as what they cost. `spares_hours`: (spare domains that an unbroken
    batch needs, hours for which it needs them), ascending.
    """

    hours: float
    throughput_mean: float
    throughput_worst: float
    throughput_owned: float
    failed_share_mean: float
    boosted_share_mean: float
    transitions: int
    gpu_hours: GpuHours
    spares_hours: Hours

    @property
    def loss_mean(self) -> float:
        return 1.0 - self.throughput_mean

    @property
    def amplification(self) -> float:
        """Loss per failed share; not a number where nothing failed."""
        return self.loss_mean / self.failed_share_mean if self.failed_share_mean else math.nan

    def spares(self, share: float) -> int:
        """So many spare domains are enough for this share of the time."""
        return quantile(self.spares_hours, share)

    def record(self) -> dict[str, float | int]:
        """A flat row of a table."""
        numbers = {f.name: getattr(self, f.name) for f in fields(self)[:-2]}
        numbers |= {"loss_mean": self.loss_mean, "amplification": self.amplification}
        numbers |= {f"gpu_hours_{name}": value for name, value in asdict(self.gpu_hours).items()}
        return numbers | {f"spares_domains_p{p}": self.spares(p / 100) for p in (50, 95, 100)}


@dataclass(frozen=True)
class Spread:
    """Over seeds: mean, standard deviation, and where the mean lies with 95% confidence (Student's
    t). With one seed there is nothing to tell the last two from."""

    mean: float
    sd: float | None
    ci95: tuple[float, float] | None


@dataclass(frozen=True)
class PolicyResult:
    """All seeds of one policy. GPU-hours are means over seeds; spares are pooled over time and
    seeds; `amplification` is total loss per total failed share."""

    seeds: int
    throughput: Spread
    throughput_worst: float
    throughput_owned: float
    loss: Spread
    failed_share: Spread
    amplification: float | None
    boosted_share_mean: float
    transitions_mean: float
    gpu_hours: GpuHours
    spares_domains: Mapping[str, int]

    def summary(self) -> dict[str, Any]:
        """The keys of `summary.json`."""
        return {
            "seeds": self.seeds,
            "throughput_mean": self.throughput.mean,
            "throughput_worst": self.throughput_worst,
            "throughput_owned": self.throughput_owned,
            "loss_mean": self.loss.mean,
            "loss_sd": self.loss.sd,
            "loss_ci95": list(self.loss.ci95) if self.loss.ci95 else None,
            "failed_share_mean": self.failed_share.mean,
            "amplification": self.amplification,
            "boosted_share_mean": self.boosted_share_mean,
            "transitions_mean": self.transitions_mean,
            "gpu_hours": asdict(self.gpu_hours),
            "spares_domains": dict(self.spares_domains),
        }


def summarize(outcomes: Sequence[Outcome]) -> PolicyResult:
    """Of one policy over its seeds."""
    if not outcomes:
        raise BadInput("no seed to summarize, expected at least one")
    loss = spread([o.loss_mean for o in outcomes])
    failed = spread([o.failed_share_mean for o in outcomes])
    pooled = pool([o.spares_hours for o in outcomes])
    hours = {
        f.name: _mean([getattr(o.gpu_hours, f.name) for o in outcomes]) for f in fields(GpuHours)
    }
    return PolicyResult(
        seeds=len(outcomes),
        throughput=spread([o.throughput_mean for o in outcomes]),
        throughput_worst=min(o.throughput_worst for o in outcomes),
        throughput_owned=_mean([o.throughput_owned for o in outcomes]),
        loss=loss,
        failed_share=failed,
        amplification=loss.mean / failed.mean if failed.mean else None,
        boosted_share_mean=_mean([o.boosted_share_mean for o in outcomes]),
        transitions_mean=_mean([o.transitions for o in outcomes]),
        gpu_hours=GpuHours(**hours),
        spares_domains={f"p{p}": quantile(pooled, p / 100) for p in (50, 95, 100)},
    )


def spread(values: Sequence[float]) -> Spread:
    """Of one number over seeds."""
    # Here, since the processes that simulate need none of it and would start half as fast.
    from scipy.special import stdtrit

    mean = _mean(values)
    if len(values) < 2:
        return Spread(mean, None, None)
    sd = float(np.std(values, ddof=1))
    half = float(stdtrit(len(values) - 1, 0.975)) * sd / math.sqrt(len(values))
    return Spread(mean, sd, (mean - half, mean + half))


def pool(parts: Sequence[Hours]) -> Hours:
    """The hours of equal values together."""
    sums: dict[int, float] = {}
    for value, hours in (row for part in parts for row in part):
        sums[value] = sums.get(value, 0.0) + hours
    return tuple(sorted(sums.items()))


def quantile(hours: Hours, share: float) -> int:
    """The least value that is enough for this share of the hours."""
    needed = share * math.fsum(h for _, h in hours) * (1 - 1e-12)
    passed = 0.0
    for value, lasts in hours:
        passed += lasts
        if passed >= needed:
            return value
    return hours[-1][0]


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
