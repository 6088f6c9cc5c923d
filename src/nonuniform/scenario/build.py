"""A scenario as the values that the simulator takes.

In: a checked `Scenario`. Out: the fleet, the job, the options of each policy, and a source that
makes the trace of a seed. DESIGN "Outside contract", "Two arrows". Decides nothing: what a value
may be, its own class says; that line gets the place in the file that the value came from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any

from nonuniform.cluster.fleet import Fleet
from nonuniform.cluster.sources.bad_rows import LogReport
from nonuniform.cluster.sources.catalog import load_catalog
from nonuniform.cluster.sources.generate import check_size, generate
from nonuniform.cluster.sources.log_format import LogFormat
from nonuniform.cluster.sources.rates import (
    Bursts,
    Cause,
    Lemons,
    Per,
    check_causes,
    per_1000_node_days,
)
from nonuniform.cluster.sources.read import read_log
from nonuniform.cluster.sources.repair import (
    Repair,
    empirical,
    fixed,
    lognormal,
    weibull,
)
from nonuniform.cluster.trace import Trace
from nonuniform.errors import BadInput
from nonuniform.placement.job import TrainingJob
from nonuniform.placement.limits import replicas_of
from nonuniform.placement.policy import PolicyOptions
from nonuniform.scenario.hardware import on_hardware
from nonuniform.scenario.sections import (
    CauseSection,
    FailuresSection,
    KindSection,
    RepairSection,
    Scenario,
)

DAYS = 365.0
SEEDS = 100

_PER: Mapping[str, tuple[Per, Callable[[float], float]]] = {
    "rate_per_gpu_day": ("gpu", float),
    "rate_per_node_day": ("node", float),
    "rate_per_domain_day": ("domain", float),
    "rate_per_1000_node_days": ("node", per_1000_node_days),
}


@dataclass(frozen=True)
class ModelSource:
    """The trace of a seed, drawn; a plain value, so that another process can be sent it."""

    fleet: Fleet
    causes: tuple[Cause, ...]
    hours: float
    lemons: Lemons | None
    bursts: Bursts | None
    steady_start: bool

    def __call__(self, seed: int) -> Trace:
        return generate(
            self.fleet,
            self.causes,
            self.hours,
            seed,
            self.lemons,
            self.bursts,
            steady_start=self.steady_start,
        )


@dataclass(frozen=True)
class LogSource:
    """What happened, happened once: the same trace for every seed. Where the log's nodes are put on
    the fleet at random, every seed puts them elsewhere."""

    path: str
    form: LogFormat
    fleet: Fleet
    skip_bad_rows: bool
    trace: Trace | None = None

    def __call__(self, seed: int) -> Trace:
        return self.trace if self.trace is not None else self.read(seed)[0]

    def read(self, seed: int) -> tuple[Trace, LogReport]:
        nodes = replace(self.form.nodes, seed=self.form.nodes.seed + seed)
        form = replace(self.form, nodes=nodes)
        return read_log(self.path, form, self.fleet, self.skip_bad_rows)


def fleet_of(scenario: Scenario) -> Fleet:
    cluster = scenario.cluster
    with _place("cluster:", "[cluster]"):
        return Fleet(cluster.gpus, cluster.domain, cluster.node)


def job_of(scenario: Scenario) -> TrainingJob:
    return TrainingJob(**{"degree": scenario.cluster.domain, **_given(scenario.job)})


def options_of(name: str, scenario: Scenario) -> PolicyOptions:
    """What the policy does not say about costs, `[transition]` says."""
    policy = scenario.policies[name]
    values = _given(scenario.transition) | _given(policy)
    values.setdefault("kind", name)
    for key in ("batch_at", "speed_at", "speedup_at"):
        if key in values:
            values[key] = tuple(sorted((int(d), n) for d, n in values[key].items()))
    with _place("[policies]", f"[policies.{name}]"):
        options = PolicyOptions(**values)
    with _place("hardware:", "[hardware]"):
        return on_hardware(options, job_of(scenario), scenario.hardware, values)


def check_fit(scenario: Scenario) -> None:
    """Make everything that needs no log, so that what does not fit is said before anything runs."""
    fleet, job = fleet_of(scenario), job_of(scenario)
    for name in scenario.policies:
        options = options_of(name, scenario)
        with _place("[policies]", f"[policies.{name}]"):
            replicas_of(fleet.domains, fleet.domain, job, options)
    if scenario.failures.log is None:
        model_source(scenario)


def in_section(error: BadInput, word: str, section: str) -> str:
    """The line with the section's name as the file writes it."""
    return str(error).replace(word, section, 1)


@contextmanager
def _place(word: str, section: str) -> Iterator[None]:
    try:
        yield
    except BadInput as error:
        raise BadInput(in_section(error, word, section)) from None


def model_source(scenario: Scenario) -> ModelSource:
    """Of a scenario without a log."""
    failures = scenario.failures
    with _place("failures:", "[failures]"):
        source = ModelSource(
            fleet=fleet_of(scenario),
            causes=causes_of(failures),
            hours=24 * (scenario.run.days or DAYS),
            lemons=None if failures.lemons is None else Lemons(**_given(failures.lemons)),
            bursts=None if failures.bursts is None else Bursts(**_given(failures.bursts)),
            steady_start=failures.steady_start,
        )
        check_size(source.fleet, source.causes, source.hours, source.bursts)
        return source


def seeds_of(scenario: Scenario) -> int:
    """How many histories there are."""
    drawn = scenario.failures.log is None or scenario.failures.log.nodes.order == "random"
    return (scenario.run.seeds or SEEDS) if drawn else 1


def log_source(scenario: Scenario, skip_bad_rows: bool) -> tuple[LogSource, LogReport]:
    """Of a scenario with a log, which is read here for the first time."""
    assert scenario.failures.log is not None
    values = _given(scenario.failures.log)
    path = values.pop("path")
    with _place("log:", "[failures.log]"):
        form = LogFormat(**values)
    source = LogSource(path, form, fleet_of(scenario), skip_bad_rows)
    trace, report = source.read(scenario.run.seed)
    scattered = source.form.nodes.order == "random"
    return source if scattered else replace(source, trace=trace), report


# --------------------------------------------------------------------------------------- causes


def causes_of(failures: FailuresSection) -> tuple[Cause, ...]:
    """Published ones, those of the one rate, and those listed, in this order."""
    causes = list(load_catalog(failures.catalog).causes) if failures.catalog else []
    causes += _of_one_rate(failures)
    causes += [_cause(cause) for cause in failures.cause]
    check_causes(causes)
    factor = failures.rate_factor
    return tuple(replace(cause, rate_per_day=cause.rate_per_day * factor) for cause in causes)


def _of_one_rate(failures: FailuresSection) -> list[Cause]:
    rate = _rate(failures)
    if rate is None:
        return []
    per, per_day = rate
    blast = _blast(failures)
    kinds = {"hardware": failures.hardware, "software": failures.software}
    given = {name: kind for name, kind in kinds.items() if kind is not None}
    if not given:
        return [Cause("failure", per_day, _repair(failures), per, **blast)]
    return [
        Cause(name, per_day * kind.share, _repair(kind), per, **blast)
        for name, kind in given.items()
    ]


def _cause(cause: CauseSection) -> Cause:
    rate = _rate(cause)
    assert rate is not None, "the check has seen to that"
    per, per_day = rate
    return Cause(cause.name, per_day, _repair(cause), per, **_blast(cause))


def _rate(section: FailuresSection | CauseSection) -> tuple[Per, float] | None:
    for key, (per, in_days) in _PER.items():
        value = getattr(section, key)
        if value is not None:
            return per, in_days(value)
    return None


def _blast(section: FailuresSection | CauseSection) -> dict[str, Any]:
    if section.blast_gpus is not None:
        return {"blast_gpus": section.blast_gpus}
    return {} if section.blast is None else {"blast": section.blast}


def _repair(section: FailuresSection | CauseSection | KindSection) -> Repair:
    if section.repair is None:
        assert section.repair_h is not None, "the check has seen to that"
        return fixed(section.repair_h)
    return repair_of(section.repair)


def repair_of(repair: RepairSection) -> Repair:
    if repair.kind == "lognormal":
        return lognormal(median_h=repair.median_h, mean_h=repair.mean_h, sigma=repair.sigma)
    if repair.kind == "weibull":
        assert repair.shape is not None
        return weibull(shape=repair.shape, scale_h=repair.scale_h, mean_h=repair.mean_h)
    if repair.kind == "empirical":
        return empirical(repair.samples_h)
    assert repair.hours is not None
    return fixed(repair.hours)


def _given(section: Any) -> dict[str, Any]:
    """The keys that have a value."""
    pairs = ((entry.name, getattr(section, entry.name)) for entry in fields(section))
    return {name: value for name, value in pairs if value is not None}
