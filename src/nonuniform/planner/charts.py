"""The data of the charts, all from the simulator's own functions.

In: a subject, policies, histories. Out: plain lists, as summary.json holds them. DESIGN "Policies".
Draws nothing and words nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from nonuniform.cluster.fleet import Fleet
from nonuniform.cluster.trace import Trace
from nonuniform.errors import BadInput
from nonuniform.placement.shape import shape
from nonuniform.planner.money import per_year
from nonuniform.planner.policies import Compared
from nonuniform.planner.prices import Prices
from nonuniform.planner.subject import Subject
from nonuniform.planner.trials import Candidate, Tally, ask
from nonuniform.planner.valuation import Valued
from nonuniform.sim.engine import trajectory
from nonuniform.sim.outcome import pool
from nonuniform.sim.timeline import changes

FAILED_SHARES = (0.0, 0.0005, 0.001, 0.002, 0.003, 0.004, 0.006, 0.008, 0.012, 0.016)
DRAWS = 20
HEAT_DEGREES = (8, 16, 32, 64, 72)
RATE_FACTORS = (0.1, 0.3, 1.0, 3.0, 10.0)
MOST_POINTS = 1500
HEAT_HOURS = 24 * 60.0


def throughput_chart(subject: Subject, rows: Sequence[Compared], seed: int) -> dict[str, Any]:
    """Placements with so many GPUs failed, anywhere; the mean over draws, without transitions. The
    shares are those that came out: a cluster cannot lose a part of a GPU."""
    random = np.random.default_rng(seed)
    blocks = _blocks_down(subject)
    drawn: dict[float, list[Counts]] = {}
    for share in FAILED_SHARES:
        draws = [_lost(random, subject.fleet, share, blocks) for _ in range(DRAWS if share else 1)]
        down = _mean([int(lost.sum()) for lost in draws]) / subject.fleet.in_domains
        drawn.setdefault(round(down, 8), [_counts(lost) for lost in draws])
    found = {
        row.name: [
            _mean([_speed(subject, row, counts) for counts in drawn[share]])
            for share in sorted(drawn)
        ]
        for row in rows
    }
    return {"failed_share": sorted(drawn), "policies": found}


Counts = tuple[tuple[int, int], ...]
Lost = npt.NDArray[np.int64]


def _blocks_down(subject: Subject) -> list[tuple[int, float]]:
    """(GPUs, share): of the blocks that are down at a time, how many are so large. Long repairs
    count more than their causes strike."""
    down: dict[int, float] = {}
    for cause in subject.source.causes:
        size = max(1, round(cause.mean_block(subject.fleet)))
        often = cause.failures_per_day(subject.fleet) * cause.repair.mean_h
        down[size] = down.get(size, 0.0) + often
    total = sum(down.values())
    return [(size, often / total) for size, often in sorted(down.items())] if total else [(1, 1.0)]


def _lost(
    random: np.random.Generator, fleet: Fleet, share: float, blocks: list[tuple[int, float]]
) -> Lost:
    """Lost GPUs of each domain, in blocks of such sizes, each where blocks of its size can lie."""
    mean = sum(size * often for size, often in blocks)
    number = round(share * fleet.in_domains / mean)
    sizes = random.choice([s for s, _ in blocks], size=number, p=[p for _, p in blocks])
    gone = np.zeros(fleet.in_domains, bool)
    for size in sizes.tolist():
        first = int(random.integers(max(1, fleet.in_domains // size))) * size
        gone[first : first + size] = True
    lost: Lost = gone.reshape(fleet.domains, fleet.domain).sum(axis=1, dtype=np.int64)
    return lost


def _counts(lost: Lost) -> Counts:
    """(lost GPUs, number of domains)."""
    values, numbers = np.unique(lost, return_counts=True)
    return tuple(zip(values.tolist(), numbers.tolist(), strict=True))


def _speed(subject: Subject, row: Compared, counts: Counts) -> float:
    return shape(counts, subject.fleet.domain, subject.job, row.options).throughput


def heatmap(
    subject: Subject, today: Compared, seeds: Sequence[int], overhead: float
) -> dict[str, Any]:
    """Loss of today's answer in domains of other sizes and at other failure rates, with as many
    stages and checkpoints as often; None where no replica fits."""
    rates = [subject.failures_per_day() / subject.fleet.gpus * f for f in RATE_FACTORS]
    loss: list[list[float | None]] = []
    for degree in HEAT_DEGREES:
        other = _with_degree(subject, degree)
        loss.append([_loss(other, today, factor, seeds, overhead) for factor in RATE_FACTORS])
    return {"degrees": list(HEAT_DEGREES), "rates": rates, "loss": loss, "policy": today.name}


def _with_degree(subject: Subject, degree: int) -> Subject | None:
    gpus = subject.fleet.gpus
    if gpus < degree * subject.job.stages:
        return None
    fleet = Fleet(gpus, degree, subject.fleet.node)
    job = replace(subject.job, degree=degree, replicas=0)
    source = replace(subject.source, fleet=fleet, hours=HEAT_HOURS, steady_start=True)
    return replace(subject, fleet=fleet, job=job, source=source)


def _loss(
    subject: Subject | None, today: Compared, factor: float, seeds: Sequence[int], overhead: float
) -> float | None:
    if subject is None:
        return None
    row = replace(today, options=replace(today.options, min_degree=1, spare_domains=0))
    try:
        rated = subject.with_rates(factor)
        found = ask(rated, [row], seeds, overheads={row.name: overhead})[row.name, 0]
    except BadInput:  # such a rate cannot be drawn
        return None
    return 1.0 - _mean([t.throughput for t in found])


def year_chart(
    subject: Subject, rows: Sequence[Compared], trace: Trace, overheads: Mapping[str, float]
) -> dict[str, Any]:
    """The first history: domains that are hurt, and how fast the job runs; 0 while it stands.
    `rows`: with the spares that each is best with."""
    step_h = max(1.0, trace.hours / MOST_POINTS)
    grid = np.arange(0.0, trace.hours, step_h)
    return {
        "time_h": [round(float(t), 3) for t in grid],
        "domains_hit": _hit(subject, trace, grid),
        "throughput": {
            row.name: _course(subject, row, trace, grid, 1 - overheads[row.name]) for row in rows
        },
    }


def _hit(subject: Subject, trace: Trace, grid: Any) -> list[int]:
    found = changes(trace, subject.fleet)
    worse = (found.lost > 0).astype(np.int64) - (found.before > 0).astype(np.int64)
    number = np.append(0, np.cumsum(worse))
    return [int(n) for n in number[np.searchsorted(found.time_h, grid, side="right")]]


def _course(subject: Subject, row: Compared, trace: Trace, grid: Any, kept: float) -> list[float]:
    """Mean over each stretch of the grid, so that short stops are in it. `kept`: what the policy
    leaves of the time."""
    job = subject.job_beside(row.options.spare_domains)
    course = trajectory(trace, subject.fleet, job, row.options)
    healthy = subject.beside(row.options.spare_domains) / subject.replicas
    speed = [
        s * healthy * kept if mode == "run" else 0.0
        for s, mode in zip(course.throughput, course.mode, strict=True)
    ]  # fmt: skip
    starts = np.array(course.time_h)
    edges = np.append(grid, trace.hours)
    done = np.append(0.0, np.cumsum(np.diff(np.append(starts, trace.hours)) * speed))
    at = np.interp(edges, np.append(starts, trace.hours), done)
    return [round(float(v), 5) for v in np.diff(at) / np.diff(edges)]


def spares_chart(tallies: Mapping[str, Sequence[Tally]]) -> dict[str, Any]:
    """Share of the time in which so many spare domains would not keep the job whole."""
    pooled = {name: pool([t.spares_hours for t in own]) for name, own in tallies.items()}
    most = max((hours[-1][0] for hours in pooled.values()), default=0)
    step = max(1, -(-most // 60))
    domains = list(range(0, most + step, step))
    interrupted = {}
    for name, hours in pooled.items():
        total = sum(h for _, h in hours)
        interrupted[name] = [
            round(sum(h for need, h in hours if need > have) / total, 6) for have in domains
        ]
    return {"domains": domains, "interrupted": interrupted}


def frontier(valued: Mapping[Candidate, Valued], prices: Prices) -> list[dict[str, Any]]:
    """`best`: no other is both cheaper and faster."""
    points = [
        (each, -_mean(each.worths), _mean([t.throughput for t in each.tallies]))
        for each in valued.values()
    ]
    return [
        {
            "policy": each.row.name,
            "spare_domains": each.spares,
            "cost": cost,
            "one_off_per_year": per_year(prices, each.one_off),
            "throughput": fast,
            "best": not any(
                c <= cost and f >= fast and (c, f) != (cost, fast) for _, c, f in points
            ),
        }
        for each, cost, fast in sorted(points, key=lambda point: point[1])
    ]


def domain_map(subject: Subject, trace: Trace) -> dict[str, Any]:
    """Lost GPUs of each domain when most were lost, in the first history."""
    found = changes(trace, subject.fleet)
    total = np.cumsum(found.lost - found.before)
    lost = [0] * subject.fleet.domains
    if not len(total):
        return {"domain": subject.fleet.domain, "time_h": 0.0, "lost": lost}
    worst = int(np.argmax(total))
    for domain, now in zip(found.domain[: worst + 1], found.lost[: worst + 1], strict=True):
        lost[int(domain)] = int(now)
    time_h = float(found.time_h[worst])
    return {"domain": subject.fleet.domain, "time_h": time_h, "lost": lost}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
