"""The simulator, asked for many answers to the same histories.

In: a subject, policies with their spares, seeds. Out: a `Tally` per policy and seed, in a year's
GPU-hours. DESIGN "Two arrows". Simulates nothing itself: `sim/monte_carlo` does. All policies see
the same histories, so that differences between them are taken seed by seed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from nonuniform.planner.money import HOURS_PER_YEAR
from nonuniform.planner.policies import Compared
from nonuniform.planner.subject import Subject
from nonuniform.sim.monte_carlo import run
from nonuniform.sim.outcome import Hours, Outcome

Candidate = tuple[str, int]
"""A policy's name and its spare domains."""

Told = Callable[[int], None]


@dataclass(frozen=True)
class Tally:
    """One seed. `throughput`: useful work, as a share of that with all GPUs healthy and none kept
    free. GPU-hours are of a year; `interrupted`: share of the time in which nothing new is done."""

    throughput: float
    throughput_worst: float
    failed_share: float
    boosted_share: float
    failures: float
    gpu_h: Mapping[str, float]
    spares_hours: Hours

    @property
    def lost_gpu_h(self) -> float:
        """Of work that was not done. `gained`: what busy GPUs did beyond their own share, with more
        power, or since a replica of n - 1 GPUs is not slower by all of 1/n."""
        gone = sum(self.gpu_h[key] for key in ("failed", "idled", "transition", "redone"))
        return gone - self.gpu_h["gained"]

    def missing_gpu_h(self, gpus: int) -> float:
        """Of work that `gpus` GPUs do in a year and that was not done, spares included."""
        return (1 - self.throughput) * gpus * HOURS_PER_YEAR

    @property
    def spare_gpu_h(self) -> float:
        return self.gpu_h["spare"] + self.gpu_h["unused"]

    @property
    def interrupted(self) -> float:
        worked = sum(self.gpu_h[key] for key in ("useful", "transition", "redone"))
        stood = self.gpu_h["transition"] + self.gpu_h["redone"]
        return stood / worked if worked else 1.0


Tallies = Mapping[Candidate, Sequence[Tally]]


def tally(outcome: Outcome, subject: Subject, overhead: float) -> Tally:
    """`overhead`: share of the useful time that the policy takes for itself in any case, such as
    writing checkpoints or a longer gradient sync; counted as standing still."""
    scale = HOURS_PER_YEAR / outcome.hours
    names = ("useful", "failed", "idled", "spare", "transition", "redone", "unused")
    gpu_h = {name: getattr(outcome.gpu_hours, name) * scale for name in names}
    taken = gpu_h["useful"] * overhead
    gpu_h["useful"] -= taken
    gpu_h["transition"] += taken
    owned = outcome.throughput_owned * subject.fleet.gpus / subject.gpus * (1 - overhead)
    gpu_h["gained"] = owned * subject.gpus * HOURS_PER_YEAR - gpu_h["useful"]
    return Tally(
        throughput=owned,
        throughput_worst=outcome.throughput_worst,
        failed_share=outcome.failed_share_mean,
        boosted_share=outcome.boosted_share_mean,
        failures=subject.failures_per_day() * 365.0,
        gpu_h=gpu_h,
        spares_hours=outcome.spares_hours,
    )


def ask(
    subject: Subject,
    rows: Sequence[Compared],
    seeds: Sequence[int],
    jobs: int = 1,
    told: Told | None = None,
    overheads: Mapping[str, float] | None = None,
) -> dict[Candidate, list[Tally]]:
    """Rows are told apart by name and spares."""
    named = {(row.name, row.options.spare_domains): row for row in rows}
    policies = {f"{name}\n{spares}": (subject.job_beside(spares), row.options)
                for (name, spares), row in named.items()}  # fmt: skip
    outcomes = run(subject.fleet, subject.source, policies, seeds, jobs, told)
    taken = overheads or {}
    return {
        (name, spares): [
            tally(outcome, subject, taken.get(name, 0.0))
            for outcome in outcomes[f"{name}\n{spares}"]
        ]
        for name, spares in named
    }
