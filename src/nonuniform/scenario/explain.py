"""What a scenario was understood to mean, in words: what it says, and what was assumed for it.

In: a scenario, the keys as they were given, what was built of it. Out: facts `about`, `text`,
`assumed`, in the order of the file. DESIGN "Outside contract". Knows nothing of how they are shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nonuniform.cluster.fleet import Fleet
from nonuniform.cluster.sources.bad_rows import LogReport
from nonuniform.cluster.sources.catalog import load_catalog
from nonuniform.cluster.sources.rates import Cause
from nonuniform.placement.job import TrainingJob
from nonuniform.placement.limits import replicas_of
from nonuniform.placement.policy import COSTS, PolicyOptions
from nonuniform.scenario.build import DAYS, causes_of, fleet_of, job_of, options_of, seeds_of
from nonuniform.scenario.hardware import boost_bands
from nonuniform.scenario.sections import Scenario

Fact = dict[str, Any]

MOST_DEGREES = 3
MOST_CAUSES = 4  # more are summed up


def explain(
    scenario: Scenario, given: Mapping[str, Any], log: LogReport | None = None
) -> list[Fact]:
    """`given`: the keys of the file and the command line; `log`: what was found in a log."""
    fleet, job = fleet_of(scenario), job_of(scenario)
    policies = {name: options_of(name, scenario) for name in scenario.policies}
    return [
        *_cluster(fleet, given),
        *_job(fleet, job, policies, given),
        *(_failures(scenario, fleet, given) if log is None else _log(log)),
        *_transition(policies),
        *_policies(policies, given),
        *_bands(scenario, policies, job, given),
        *_run(scenario),
    ]


def _fact(about: str, text: str, assumed: bool = False) -> Fact:
    return {"about": about, "text": text, "assumed": assumed}


def _cluster(fleet: Fleet, given: Mapping[str, Any]) -> Iterator[Fact]:
    yield _fact("cluster", f"{fleet.gpus:,} GPUs: {fleet.describe()}")
    if "node" not in given["cluster"]:
        yield _fact("cluster", f"nodes of {fleet.node} GPUs", assumed=True)


def _job(
    fleet: Fleet,
    job: TrainingJob,
    policies: Mapping[str, PolicyOptions],
    given: Mapping[str, Any],
) -> Iterator[Fact]:
    replicas = {
        name: replicas_of(fleet.domains, fleet.domain, job, options)
        for name, options in policies.items()
    }
    stages = "1 stage" if job.stages == 1 else f"{job.stages} stages"
    for number in sorted(set(replicas.values()), reverse=True):
        names = [name for name, own in replicas.items() if own == number]
        who = "" if len(names) == len(replicas) else f" ({', '.join(names)})"
        batch = number * job.sequences_per_replica
        yield _fact(
            "job",
            f"{number:,} replicas of {stages} at degree {job.degree}: "
            f"{number * job.stages * job.degree:,} GPUs, {batch:,} sequences a step{who}",
        )
    inside = fleet.domain % job.degree
    if inside:
        groups = fleet.domain // job.degree
        yield _fact(
            "job",
            f"{groups * job.degree} of the {fleet.domain} GPUs of a domain train, "
            f"{inside} are spares inside it",
        )
    if "degree" not in given["job"]:
        yield _fact("job", "the degree is that of a whole domain", assumed=True)
    if job.stages > 1 and not job.layers:
        yield _fact("job", "all stages take equally long", assumed=True)


def _failures(scenario: Scenario, fleet: Fleet, given: Mapping[str, Any]) -> Iterator[Fact]:
    failures, causes = scenario.failures, causes_of(scenario.failures)
    if failures.catalog:
        yield _fact("failures", load_catalog(failures.catalog).about)
    if len(causes) <= MOST_CAUSES:
        yield from (_fact("failures", _cause(cause, fleet)) for cause in causes)
    per_day = sum(cause.failures_per_day(fleet) for cause in causes)
    down = sum(
        cause.failures_per_day(fleet) * cause.mean_block(fleet) * cause.repair.mean_h / 24
        for cause in causes
    )
    yield _fact(
        "failures",
        f"together {per_day:.3g} a day, in the long run {down:.3g} GPUs down, "
        f"{100 * down / fleet.gpus:.3g} %",
    )
    if failures.lemons is not None:
        lemons = failures.lemons
        yield _fact(
            "failures",
            f"{100 * lemons.share:g} % of the nodes fail {lemons.factor:g} times as often",
        )
    if failures.bursts is not None:
        bursts = failures.bursts
        yield _fact(
            "failures",
            f"{100 * bursts.share:g} % of them come {bursts.failures:g} at a time, "
            f"within {bursts.within_h:g} h",
        )
    yield from _assumed_of_failures(scenario, given["failures"])


def _assumed_of_failures(scenario: Scenario, given: Mapping[str, Any]) -> Iterator[Fact]:
    failures = scenario.failures
    if failures.catalog:
        for line in load_catalog(failures.catalog).assumptions():
            yield _fact("failures", line, assumed=True)
    elif not failures.cause and failures.blast is None and failures.blast_gpus is None:
        yield _fact("failures", "a failure takes 1 GPU", assumed=True)
    independent = failures.lemons is None and failures.bursts is None
    if independent:
        yield _fact("failures", "independent of each other, all GPUs alike", assumed=True)
    if "steady_start" not in given:
        yield _fact("failures", "all GPUs work at the beginning", assumed=True)


def _cause(cause: Cause, fleet: Fleet) -> str:
    block = cause.block(fleet)
    gpus = "1 GPU" if block == 1 else f"{block} GPUs"
    return (
        f"{cause.name}: {cause.failures_per_day(fleet):.3g} a day, {gpus} each, "
        f"repaired in {cause.repair.mean_h:.4g} h in the mean"
    )


def _log(log: LogReport) -> Iterator[Fact]:
    yield _fact("log", f"{log.path}: {log.rows:,} rows, {log.failures:,} failures")
    yield from (_fact("log", text, assumed=True) for text in log.assumed)
    for dropped in log.dropped:
        yield _fact("log", f"left out: {dropped.line(log.path).removeprefix(f'{log.path}: ')}")


def _transition(policies: Mapping[str, PolicyOptions]) -> Iterator[Fact]:
    free = [name for name, policy in policies.items() if not any(_costs(policy).values())]
    if free:
        who = "" if len(free) == len(policies) else f" ({', '.join(free)})"
        yield _fact("transition", f"a change of placement costs nothing{who}", assumed=True)
    for name, policy in policies.items():
        costs = _costs(policy)
        if any(costs.values()):
            shown = ", ".join(f"{key} = {value:g}" for key, value in costs.items() if value)
            yield _fact("transition", f"{name}: {shown}")


def _costs(policy: PolicyOptions) -> dict[str, float]:
    return {key: getattr(policy, key) for key in COSTS}


def _policies(policies: Mapping[str, PolicyOptions], given: Mapping[str, Any]) -> Iterator[Fact]:
    asked = given.get("policies") or {}
    if not asked:
        yield _fact("policies", "all four, with their defaults", assumed=True)
    for name, policy in policies.items():
        yield _fact("policies", f"{name}: {'; '.join(_words(policy))}")
        if policy.boosts and policy.speedup_at:
            yield _fact("policies", f"{name}: power makes GPUs {_by_degree(policy.speedup_at)}")
        elif policy.boosts and "max_speedup" not in asked.get(name, {}):
            text = f"{name}: power makes GPUs of a hurt replica up to {policy.max_speedup:g} x"
            yield _fact("policies", f"{text} as fast", assumed=True)
        if policy.speed_at:
            yield _fact("policies", f"{name}: a replica is {_by_degree(policy.speed_at)}")
    if any(policy.reduces and not policy.speed_at for policy in policies.values()):
        text = "a hurt replica is as fast as the share of GPUs that it has left"
        yield _fact("policies", text, assumed=True)


def _bands(
    scenario: Scenario,
    policies: Mapping[str, PolicyOptions],
    job: TrainingJob,
    given: Mapping[str, Any],
) -> Iterator[Fact]:
    """How sure the speeds of a boost are that a rack gives."""
    asked = given.get("policies") or {}
    for name, policy in policies.items():
        rows = boost_bands(policy, job, scenario.hardware, asked.get(name, {}))
        above = [row for row in sorted(rows, reverse=True) if row[1].extrapolated]
        if above:
            shown = ", ".join(
                f"{band.value:.3f} [{max(1.0, band.low):.3f}, {band.high:.3f}] at {degree}"
                for degree, band in above[:MOST_DEGREES]
            )
            more = " ..." if len(above) > MOST_DEGREES else ""
            text = f"{name}: extrapolated: no GPU was measured above its nominal set point: "
            yield _fact("policies", f"{text}{shown}{more}", assumed=True)


def _by_degree(rows: Sequence[tuple[int, float]]) -> str:
    """The highest degrees, which are the usual ones."""
    shown = sorted(rows, reverse=True)[:MOST_DEGREES]
    told = ", ".join(f"{factor:.3f} at {degree}" for degree, factor in shown)
    return f"{told} x as fast{' ...' if len(rows) > len(shown) else ''}"


def _words(policy: PolicyOptions) -> Iterator[str]:
    if policy.waits:
        yield "the job stops until all it needs is mended"
        return
    if policy.reduces:
        reduced = ", ".join(map(str, sorted(policy.degrees, reverse=True)))
        one = "one reduced degree for the job, of " if policy.one_degree else "degrees "
        floor = f" from {policy.min_degree}" if policy.min_degree > 1 or not reduced else ""
        yield f"{one}{reduced or 'any'}{floor}"
    else:
        restart = ", after a restart" if policy.kind == "uniform" else ""
        yield f"a hurt replica stays out{restart}"
    grain = {"sequence": "whole sequences", "microbatch": "whole micro-batches", "token": "tokens"}
    if policy.batch == "fixed":
        yield f"the batch is kept and dealt in {grain[policy.grain]}"
    elif policy.reduces:
        yield f"the batch shrinks in {grain[policy.grain]}"
    when = policy.repack.replace("-", " ").replace("next", "at the next")
    yield "never packed anew" if policy.in_place else f"{policy.packing} {when}"
    if policy.spare_domains:
        yield f"{policy.spare_domains} spare domains"


def _run(scenario: Scenario) -> Iterator[Fact]:
    run, log = scenario.run, scenario.failures.log
    first, number = run.seed, seeds_of(scenario)
    seeds = f"seed {first}" if number == 1 else f"seeds {first} to {first + number - 1}"
    if log is None:
        yield _fact("run", f"{run.days or DAYS:g} days, {seeds}")
    elif number > 1:
        yield _fact("run", f"the nodes of the log lie elsewhere for each seed, {seeds}")
