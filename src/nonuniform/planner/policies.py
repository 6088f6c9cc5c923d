"""Which answers to a failure are compared, what each needs, and which of them `train` can run.

In: the job, what a transition costs, what is in the scenario. Out: `Plan` rows, the simplest first.
DESIGN "Policies". Decides nothing: the order is the one in which equal answers are preferred.

`train` runs replicas of one stage, keeps the global batch and deals it in whole sequences; it has
no control of power. What needs more than that is marked: it has been simulated and not run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from nonuniform.placement.job import TrainingJob
from nonuniform.placement.policy import Batch, Kind, PolicyOptions

TODAY = "restart"
MAX_SPEEDUP = 1.15  # of boosted GPUs, where no rack is known


@dataclass(frozen=True)
class Transition:
    """Seconds. `checkpoint_every_s`: of who restarts; `live_...`: of who goes on, and needs a
    checkpoint only when no copy is left."""

    detect_s: float = 60.0
    restart_s: float = 600.0
    regroup_s: float = 5.0
    transfer_s: float = 15.0
    redo_s: float = 10.0
    checkpoint_every_s: float = 1800.0
    checkpoint_write_s: float = 10.0
    live_detect_s: float = 5.0
    live_checkpoint_every_s: float = 3600.0


@dataclass(frozen=True)
class Compared:
    """`weeks`: prices of the work to get there; `needs`: what `train` does not have or what must be
    bought; `runnable`: by `train` as it is."""

    name: str
    title: str
    options: PolicyOptions
    needs: tuple[str, ...] = ()
    weeks: tuple[str, ...] = ()
    runnable: bool = True

    @property
    def kind(self) -> Kind:
        return self.options.kind

    def with_spares(self, domains: int) -> Compared:
        return replace(self, options=replace(self.options, spare_domains=domains))


@dataclass(frozen=True)
class Limits:
    """Of hurt replicas. `min_degree` 0: half of the degree. `speed_at` and `speedup_at` by degree,
    as in `PolicyOptions`; where they are empty, speed goes by the degree and boost up to
    `max_speedup`."""

    min_degree: int = 0
    max_speedup: float = MAX_SPEEDUP
    speed_at: tuple[tuple[int, float], ...] = ()
    speedup_at: tuple[tuple[int, float], ...] = ()


def compared(
    job: TrainingJob, transition: Transition, batch: Batch = "fixed", limits: Limits | None = None
) -> tuple[Compared, ...]:
    """The simplest first. More power is compared only where the rack has some to give, and replicas
    of fewer GPUs only where they have more than one in a group."""
    limits = limits or Limits()
    min_degree = limits.min_degree
    floor = min_degree or max(1, -(-job.degree // 2))
    live: dict[str, Any] = {
        "detect_s": transition.live_detect_s,
        "regroup_s": transition.regroup_s,
        "transfer_s": transition.transfer_s,
        "redo_s": transition.redo_s,
    }
    uneven = ("stages",) if job.stages > 1 else ()
    shrinks = ("smaller-batch",) if batch == "shrink" else ()
    today = PolicyOptions(
        "uniform", batch=batch, on_failure="restart", repack="next-failure",
        detect_s=transition.detect_s, restart_s=transition.restart_s,
        checkpoint_every_s=transition.checkpoint_every_s,
    )  # fmt: skip
    drop = PolicyOptions("dp-drop", batch=batch, **live)
    drop_tokens = replace(drop, grain="token")
    ntp = PolicyOptions("ntp", batch=batch, min_degree=floor, speed_at=limits.speed_at, **live)
    tokens = replace(ntp, grain="token")
    boosted = replace(
        tokens, kind="ntp-pw", max_speedup=limits.max_speedup, speedup_at=limits.speedup_at
    )
    rows = (
        Compared(TODAY, "restart from a checkpoint without the hurt replicas", today),
        Compared(
            "dp-drop", "the hurt replicas stay out, the others go on", drop,
            (*uneven, *shrinks), ("weeks_live",),
        ),
        Compared(
            "dp-drop-tokens", "the same, with the batch dealt finer than sequences", drop_tokens,
            (*uneven, "tokens"), ("weeks_live", "weeks_tokens"),
        ),
        Compared(
            "ntp", "a hurt replica goes on with fewer GPUs, in whole sequences", ntp,
            (*uneven, *shrinks), ("weeks_live", "weeks_ntp"),
        ),
        Compared(
            "ntp-tokens", "the same, with the batch dealt finer than sequences", tokens,
            (*uneven, "tokens"), ("weeks_live", "weeks_ntp", "weeks_tokens"),
        ),
        Compared(
            "ntp-pw", "the same, and the hurt domain's GPUs get more power", boosted,
            (*uneven, "tokens", "boost"),
            ("weeks_live", "weeks_ntp", "weeks_tokens", "weeks_boost"),
        ),
    )  # fmt: skip
    possible = not limits.speedup_at or any(speedup > 1 for _, speedup in limits.speedup_at)
    return tuple(
        replace(row, runnable=not row.needs)
        for row in rows
        if (possible or not row.options.boosts) and (job.degree > 1 or not row.options.reduces)
    )


def overheads(rows: Sequence[Compared], transition: Transition) -> dict[str, float]:
    """name -> share of the time that goes into writing checkpoints."""
    every = {True: transition.checkpoint_every_s, False: transition.live_checkpoint_every_s}
    return {
        row.name: min(1.0, transition.checkpoint_write_s / every[row.options.kind == "uniform"])
        for row in rows
    }


def order_of(rows: Sequence[Compared]) -> Mapping[str, int]:
    """name -> how simple it is, 0 the simplest."""
    return {row.name: place for place, row in enumerate(rows)}
