"""`nonuniform simulate`: check every point, then simulate one after the other, then write.

In: a SCENARIO file, keys that replace its own, keys to vary, an output folder, who watches. Out:
the files of the folder. DESIGN "Outside contract". Decides nothing about failures or policies.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nonuniform import __version__
from nonuniform.cluster.fleet import Fleet
from nonuniform.cluster.sources.bad_rows import LogReport
from nonuniform.errors import BadInput
from nonuniform.scenario.build import (
    fleet_of,
    job_of,
    log_source,
    model_source,
    options_of,
    seeds_of,
)
from nonuniform.scenario.explain import Fact, explain
from nonuniform.scenario.keys import with_keys
from nonuniform.scenario.read import check_scenario
from nonuniform.sim.engine import Policy, trajectory
from nonuniform.sim.monte_carlo import Source, run
from nonuniform.sim.outcome import Outcome, summarize
from nonuniform.sim.results import RUNS, TRAJECTORY, ResultsFolder
from nonuniform.sim.sweep import settings
from nonuniform.toml_file import read_toml
from nonuniform.view.simulation import SimulationView
from nonuniform.whole_file import as_told


@dataclass(frozen=True)
class Wishes:
    """What the command line says beside the scenario."""

    overrides: Mapping[str, Any] = field(default_factory=dict)
    axes: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    jobs: int = 1
    skip_bad_rows: bool = False
    overwrite: bool = False


@dataclass(frozen=True)
class Point:
    """One scenario, ready to run. `chosen`: the keys that were varied, and their values here."""

    chosen: Mapping[str, Any]
    values: Mapping[str, Any]
    facts: Sequence[Fact]
    fleet: Fleet
    policies: Mapping[str, Policy]
    source: Source
    seeds: Sequence[int]


def simulate_file(path: Path, out: Path, wishes: Wishes, view: SimulationView) -> None:
    """Raises BadInput before anything runs or is replaced, RunFailed when it could not go on."""
    if wishes.jobs == 0 or wishes.jobs < -1:
        raise BadInput(f"--jobs {wishes.jobs}: must be 1 or more, or -1 for one on each core")
    base = with_keys(read_toml(path), wishes.overrides)
    points = [_prepare(base, chosen, path, wishes) for chosen in settings(wishes.axes)]
    folder = ResultsFolder.create(out, wishes.overwrite)
    started_s = time.monotonic()
    try:
        view.understood(points[0].facts)
        summaries = _run_points(points, wishes.jobs, folder, view)
    except BaseException as error:
        failure = as_told(error, folder.path)
        folder.close({**_head("failed"), "reason": str(failure) or "interrupted"})
        if failure is error:
            raise
        raise failure from error
    summary = _head("done") | {"time_s": time.monotonic() - started_s}
    if wishes.axes:
        folder.close(summary | {"sweep": dict(wishes.axes), "points": summaries})
        view.swept(summaries)
    else:
        summary |= {key: value for key, value in summaries[0].items() if key != "set"}
        folder.close(summary)
        view.came_out(summary)


def _prepare(
    base: Mapping[str, Any], chosen: Mapping[str, Any], path: Path, wishes: Wishes
) -> Point:
    values = with_keys(base, chosen)
    scenario = check_scenario(values, path, {*wishes.overrides, *chosen})
    report: LogReport | None = None
    source: Source
    if scenario.failures.log is None:
        source = model_source(scenario)
    else:
        source, report = log_source(scenario, wishes.skip_bad_rows)
    job = job_of(scenario)
    first = scenario.run.seed
    return Point(
        chosen,
        values,
        explain(scenario, values, report),
        fleet_of(scenario),
        {name: (job, options_of(name, scenario)) for name in scenario.policies},
        source,
        range(first, first + seeds_of(scenario)),
    )


def _run_points(
    points: Sequence[Point], jobs: int, folder: ResultsFolder, view: SimulationView
) -> list[dict[str, Any]]:
    summaries, runs, steps = [], [], []
    total, before = sum(len(point.seeds) for point in points), 0
    for number, point in enumerate(points):
        place = {"point": number, **point.chosen} if point.chosen else {}

        def tell(done: int, before: int = before) -> None:
            view.progress(before + done, total)

        view.progress(before, total)
        outcomes = run(point.fleet, point.source, point.policies, point.seeds, jobs, tell)
        before += len(point.seeds)
        summaries.append(_summary(point, outcomes))
        runs += _rows(point, place, outcomes)
        steps += _steps(point, place)
    folder.write_table(RUNS, runs)
    folder.write_table(TRAJECTORY, steps)
    return summaries


def _head(status: str) -> dict[str, Any]:
    return {"command": "simulate", "version": __version__, "status": status}


def _summary(point: Point, outcomes: Mapping[str, Sequence[Outcome]]) -> dict[str, Any]:
    results = {name: summarize(of_policy) for name, of_policy in outcomes.items()}
    policies = {
        name: {
            "kind": point.policies[name][1].kind,
            **result.summary(),
            "spares_gpus": {
                share: domains * point.fleet.domain
                for share, domains in result.spares_domains.items()
            },
        }
        for name, result in results.items()
    }
    fleet = point.fleet
    return {
        "set": dict(point.chosen),
        "scenario": point.values,
        "understood": list(point.facts),
        "cluster": {
            "gpus": fleet.gpus,
            "domain": fleet.domain,
            "domains": fleet.domains,
            "left_over_gpus": fleet.leftover,
        },
        "hours": next(iter(outcomes.values()))[0].hours,
        "seeds": len(point.seeds),
        # The failures are the same for every policy.
        "failed_share_mean": next(iter(results.values())).failed_share.mean,
        "policies": policies,
    }


def _rows(
    point: Point, place: Mapping[str, Any], outcomes: Mapping[str, Sequence[Outcome]]
) -> list[dict[str, Any]]:
    return [
        {**place, "policy": name, "seed": seed, **outcome.record()}
        for name, of_policy in outcomes.items()
        for seed, outcome in zip(point.seeds, of_policy, strict=True)
    ]


def _steps(point: Point, place: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Of the first seed."""
    seed = point.seeds[0]
    trace = point.source(seed)
    rows = []
    for name, (job, options) in point.policies.items():
        course = trajectory(trace, point.fleet, job, options)
        columns = (course.time_h, course.throughput, course.mode)
        for time_h, throughput, mode in zip(*columns, strict=True):
            step = {"time_h": time_h, "throughput": throughput, "mode": mode}
            rows.append({**place, "policy": name, "seed": seed, **step})
    return rows
