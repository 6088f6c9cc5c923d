"""The whole answer, from what was understood to summary.json's object.

In: `Understood`, prices, seeds. Out: one dict of the contract. DESIGN "Outside contract". The order
of work: each job by itself; then the one that loses most in depth. Writes no file.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from nonuniform.placement.policy import Batch
from nonuniform.planner.changes import Again, Case, all_changes
from nonuniform.planner.charts import (
    domain_map,
    frontier,
    heatmap,
    spares_chart,
    throughput_chart,
    year_chart,
)
from nonuniform.planner.checkpoints import mtbf_s, simulated, young_daly_s
from nonuniform.planner.hurt import hurt_shares, sync_share, usual_degree
from nonuniform.planner.path import path_of
from nonuniform.planner.policies import TODAY, Compared, Limits, Transition, compared, overheads
from nonuniform.planner.prices import Prices
from nonuniform.planner.rackchart import rack_chart
from nonuniform.planner.recommend import least_degree, recommendation
from nonuniform.planner.replay import replay
from nonuniform.planner.steptime import Sync, hidden_figure, step_figure, sync
from nonuniform.planner.study import TRACES, How, Study, study
from nonuniform.planner.subject import Subject
from nonuniform.planner.tell import job_object, marginal, portfolio, verdict
from nonuniform.planner.understood import Settings, Understood

Told = Callable[[str], None]

VARIED_HOURS = 24 * 91.0
"""Of a history in which something is varied: a quarter, since there are many."""


@dataclass(frozen=True)
class Effort:
    """`seeds` of the first job in depth; the others and the variations take `few`."""

    seeds: Sequence[int]
    jobs: int
    batch: Batch
    told: Told

    @property
    def few(self) -> Sequence[int]:
        return self.seeds[: max(4, len(self.seeds) // 4)]


@dataclass(frozen=True)
class Setup:
    """Of one job: its policies and what they cost in any case."""

    subject: Subject
    transition: Transition
    rows: tuple[Compared, ...]
    overheads: Mapping[str, float]
    sync: Sync | None
    hurt_degree: int


def setup(subject: Subject, settings: Settings, batch: Batch, seeds: Sequence[int]) -> Setup:
    """Who restarts does so at the best interval, unless another one is stated."""
    transition = settings.transition
    if subject.checkpoint_every_s:
        transition = replace(transition, checkpoint_every_s=subject.checkpoint_every_s)
    elif not settings.checkpoint_stated:
        every = young_daly_s(transition.checkpoint_write_s, mtbf_s(subject))
        transition = replace(transition, checkpoint_every_s=max(1.0, min(every, 86400.0)))
    limits = Limits(
        min(settings.min_degree, subject.job.degree), settings.max_speedup,
        subject.speed_at, subject.speedup_at,
    )  # fmt: skip
    rows = compared(subject.job, transition, batch, limits)
    taken, shares = overheads(rows, transition), {}
    floors = [row.options.min_degree for row in rows if row.options.reduces]
    if subject.pace is not None and floors and subject.job.degree > 1:
        traces = [subject.source(seed) for seed in seeds[:TRACES]]
        shares = hurt_shares(subject, traces, floors[0])
        longer = sync_share(subject, shares)
        for row in rows:
            if row.options.reduces:
                taken[row.name] = min(1.0, taken[row.name] + longer)
    hurt = usual_degree(subject, shares)
    return Setup(subject, transition, rows, taken, sync(subject.pace, hurt), hurt)


def whole_answer(
    understood: Understood, prices: Prices, effort: Effort, created: datetime.date
) -> dict[str, Any]:
    setups = [
        setup(s, understood.settings, effort.batch, effort.seeds) for s in understood.subjects
    ]
    seeds = effort.seeds if len(setups) == 1 else effort.few
    studies = [_study(own, understood, prices, effort, seeds) for own in setups]
    place = _first(studies)
    if len(setups) > 1:
        studies[place] = _study(setups[place], understood, prices, effort, effort.seeds)
    first, own = studies[place], setups[place]
    return {
        "verdict": verdict(first),
        "jobs": [
            job_object(each, created, step_figure(each.subject.pace)) for each in studies
        ],
        "portfolio": portfolio(studies),
        "recommendation": _recommendation(
            first, own, understood.settings, prices, effort
        ),
        "marginal": marginal(first, hidden_figure(own.sync, own.hurt_degree)),
        "path": _path(first, prices),
        "money": prices.as_dict(),
        "replay": replay(own.subject, own.rows, understood.log),
        "charts": _charts(first, own, prices, effort),
    }  # fmt: skip


def _study(
    own: Setup, understood: Understood, prices: Prices, effort: Effort, seeds: Sequence[int]
) -> Study:
    how = How(prices, seeds, own.overheads, effort.jobs, understood.now, effort.told)
    return study(own.subject, own.rows, how)


def _first(studies: Sequence[Study]) -> int:
    """Of the candidates the one that loses most; of all, where none is one."""

    def lost(place: int) -> tuple[bool, float]:
        found = studies[place]
        return found.exposure.candidate, found.today.lost().value or 0.0

    return max(range(len(studies)), key=lost)


def _recommendation(
    first: Study, own: Setup, settings: Settings, prices: Prices, effort: Effort
) -> dict[str, Any]:
    effort.told("checkpoint intervals")
    brief = own.subject.shorter(VARIED_HOURS)
    checkpoint = simulated(brief, own.rows[0], own.transition, effort.few[:4])
    effort.told("least degrees")
    least = least_degree(first, brief, effort.seeds[:8], own.overheads)
    effort.told("what would change the answer")
    again = _again(settings, effort)
    chosen = verdict(first)["policy"]
    case = Case(brief, effort.batch, prices, effort.few, again, chosen, effort.jobs)
    changes = all_changes(case) if first.exposure.candidate else []
    return recommendation(first, least, checkpoint, own.transition, changes)


def _again(settings: Settings, effort: Effort) -> Again:
    """The policies of another subject, with its own checkpoint interval and overheads."""

    def policies(subject: Subject, batch: Batch) -> tuple[Sequence[Compared], Mapping[str, float]]:
        own = setup(subject, settings, batch, effort.few)
        return own.rows, own.overheads

    return policies


def _path(first: Study, prices: Prices) -> list[dict[str, Any]]:
    if not first.exposure.candidate:
        return []
    plain = [own for own in first.best.values() if "boost" not in own.row.needs]
    software = max(
        (own for own in plain if own.row.name != TODAY), key=lambda own: sum(own.worths)
    )  # fmt: skip
    return path_of(first, software, first.best.get("ntp-pw"), prices)


def _charts(first: Study, own: Setup, prices: Prices, effort: Effort) -> dict[str, Any]:
    effort.told("charts")
    bare = {row.name: first.bare(row.name).tallies for row in own.rows}
    trace = first.traces[0]
    return {
        "throughput": throughput_chart(own.subject, own.rows, effort.seeds[0]),
        "heatmap": heatmap(own.subject, own.rows[0], effort.seeds[:2], own.overheads[TODAY]),
        "year": year_chart(
            own.subject, [first.best[row.name].row for row in own.rows], trace, own.overheads
        ),
        "spares": spares_chart(bare),
        "frontier": frontier(first.valued, prices),
        "map": domain_map(own.subject, trace),
        "rack": rack_chart(own.subject),
    }
