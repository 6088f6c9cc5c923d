"""What is to be planned: from a scenario, or from jobs, a cluster and failures.

In: files and names. Out: `Understood`: subjects, policies' settings, and facts, what was said and
what was assumed. DESIGN "Outside contract". Runs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from nonuniform.cluster.sources.bad_rows import LogReport
from nonuniform.cluster.trace import Trace
from nonuniform.placement.policy import PolicyOptions
from nonuniform.planner.failures import now_figure, source_of_log
from nonuniform.planner.figure import Figure
from nonuniform.planner.policies import Transition
from nonuniform.planner.subject import Subject
from nonuniform.scenario.build import (
    DAYS,
    ModelSource,
    fleet_of,
    job_of,
    log_source,
    model_source,
    options_of,
)
from nonuniform.scenario.explain import explain
from nonuniform.scenario.hardware import speeds, speedups
from nonuniform.scenario.read import check_scenario
from nonuniform.scenario.sections import Scenario
from nonuniform.toml_file import read_toml

PlainFact = dict[str, Any]


@dataclass(frozen=True)
class Settings:
    """Of the policies, for every job alike. `min_degree` 0: half of the degree."""

    transition: Transition = field(default_factory=Transition)
    checkpoint_stated: bool = False
    min_degree: int = 0
    max_speedup: float = 1.15


@dataclass(frozen=True)
class Understood:
    subjects: Sequence[Subject]
    settings: Settings
    facts: Sequence[PlainFact]
    inputs: Sequence[Mapping[str, Any]]
    unknown: Sequence[Mapping[str, str]] = ()
    now: Figure | None = None
    example: bool = False
    prices: Mapping[str, float | str] = field(default_factory=dict)
    gpu: str = ""
    log: Trace | None = None


def fact(about: str, name: str, text: str, assumed: bool = False, note: str = "") -> PlainFact:
    return {"about": about, "name": name, "text": text, "assumed": assumed, "note": note}


def of_scenario(path: Path, skip_bad_rows: bool = False) -> Understood:
    """A SCENARIO.toml as `nonuniform simulate` reads it."""
    values = read_toml(path)
    scenario = check_scenario(values, path)
    report: LogReport | None = None
    now, trace = None, None
    more: list[PlainFact] = []
    if scenario.failures.log is None:
        source: ModelSource = model_source(scenario)
    else:
        logged, report = log_source(scenario, skip_bad_rows)
        trace = logged(scenario.run.seed)
        source, more = source_of_log(trace, fleet_of(scenario))
        now = now_figure(trace, fleet_of(scenario))
    settings, said = _settings(scenario)
    job, hardware = job_of(scenario), scenario.hardware
    subject = Subject(
        name=path.stem, fleet=fleet_of(scenario), job=job, source=source,
        days=scenario.run.days or DAYS, days_assumed=scenario.run.days is None,
        rack=hardware.rack or "",
        speed_at=speeds(hardware.perf, job.degree, job.stages) if hardware.perf else (),
        speedup_at=speedups(hardware.rack, job.degree) if hardware.rack else (),
        min_degree_stated=settings.min_degree > 0,
    )  # fmt: skip
    found = [
        fact(each["about"], "", each["text"], bool(each["assumed"]))
        for each in explain(scenario, values, report)
        if each["about"] not in ("policies", "transition", "run")
    ]
    row = {"what": "job", "name": path.name, "format": "scenario", "sha256": sha256(path)}
    return Understood(
        [subject], settings, [*found, *more, *said], [row], now=now, log=trace
    )  # fmt: skip


def sha256(path: Path) -> str:
    import hashlib

    return hashlib.sha256(path.read_bytes()).hexdigest()


# -------------------------------------------------------------------------------------- settings


def _settings(scenario: Scenario) -> tuple[Settings, list[PlainFact]]:
    """Costs of transitions as the scenario's own policies have them, by kind."""
    own = [options_of(name, scenario) for name in scenario.policies]
    restarts = [o for o in own if o.kind == "uniform" and o.restart_s]
    live = [o for o in own if o.kind in ("ntp", "ntp-pw", "dp-drop") and _costs(o)]
    default = Transition()
    transition = default
    if restarts:
        first = restarts[0]
        transition = replace(
            transition, detect_s=first.detect_s, restart_s=first.restart_s,
            checkpoint_every_s=first.checkpoint_every_s or default.checkpoint_every_s,
        )  # fmt: skip
    if live:
        first = live[0]
        transition = replace(
            transition, live_detect_s=first.detect_s, regroup_s=first.regroup_s,
            transfer_s=first.transfer_s, redo_s=first.redo_s,
        )  # fmt: skip
    stated = bool(restarts and restarts[0].checkpoint_every_s)
    floors = [o.min_degree for o in own if o.reduces and o.min_degree > 1]
    boosts = [o.max_speedup for o in own if o.boosts]
    settings = Settings(
        transition, stated, max(floors, default=0),
        boosts[0] if boosts else Settings.max_speedup,
    )  # fmt: skip
    return settings, transition_facts(transition, bool(restarts), bool(live), stated)


def _costs(options: PolicyOptions) -> float:
    return options.detect_s + options.regroup_s + options.transfer_s + options.redo_s


def transition_facts(
    t: Transition, restart_said: bool, live_said: bool, checkpoint_said: bool
) -> list[PlainFact]:
    """What a change of placement costs."""
    again = f"{t.detect_s:g} s to notice, {t.restart_s:g} s until the job runs again"
    live = (
        f"{t.live_detect_s:g} s to notice, {t.regroup_s:g} s to regroup, {t.transfer_s:g} s to "
        f"move state, {t.redo_s:g} s of work done again"
    )
    often = f"every {t.checkpoint_every_s:g} s" if checkpoint_said else "as often as is best"
    every = f"{often} where the job restarts"
    hourly = f"every {t.live_checkpoint_every_s:g} s where it goes on"
    return [
        fact("transition", "restart", again, not restart_said),
        fact("transition", "live", live, not live_said),
        fact("transition", "checkpoints", f"{every}, {hourly}", not checkpoint_said,
             "" if checkpoint_said else "Young/Daly"),
        fact("transition", "writing a checkpoint", f"{t.checkpoint_write_s:g} s", True),
    ]  # fmt: skip
