"""Jobs and a cluster that were read, as subjects.

In: files of jobs, a cluster, failures. Out: `Understood`. DESIGN "Outside contract". What is not
said is assumed, and is a fact that is marked. A job takes as many whole domains as it needs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nonuniform.cluster.fleet import Fleet
from nonuniform.cluster.sources.catalog import load_catalog
from nonuniform.cluster.trace import Trace
from nonuniform.errors import BadInput
from nonuniform.perf.catalog import load_constants, load_gpu
from nonuniform.perf.hardware import Machine, machine
from nonuniform.placement.job import TrainingJob
from nonuniform.planner.clusters import ClusterDescription, read_cluster
from nonuniform.planner.failures import now_figure, source_of_log
from nonuniform.planner.figure import Figure
from nonuniform.planner.jobs import JobDescription, ReadJob, read_job, with_gpus
from nonuniform.planner.logs import find_log
from nonuniform.planner.policies import MAX_SPEEDUP, Transition
from nonuniform.planner.steptime import speeds, step_figure, why_not
from nonuniform.planner.subject import ByDegree, Pace, Subject
from nonuniform.planner.understood import (
    PlainFact,
    Settings,
    Understood,
    fact,
    sha256,
    transition_facts,
)
from nonuniform.power.catalog import load_rack
from nonuniform.scenario.build import DAYS, ModelSource
from nonuniform.scenario.hardware import speedups

CATALOG = "llama3"
BATCH_PER_STAGE = 4
YEAR_H = 8760.0
RACKS = {"gb200_nvl72": "gb200_nvl72", "b200_sxm": "dgx_b200", "h100_sxm": "dgx_h100"}


@dataclass(frozen=True)
class Wanted:
    """What the command line names. `log` and `failures` exclude each other. `log_gpus`: of the
    cluster that the log is of, where it is another one."""

    jobs: Sequence[Path]
    cluster: str | None
    gpus: int | None
    log: Path | None
    failures: str | None
    skip_bad_rows: bool = False
    log_gpus: int | None = None


@dataclass(frozen=True)
class _Failures:
    source: ModelSource
    facts: Sequence[PlainFact]
    row: Mapping[str, Any]
    now: Figure | None = None
    example: bool = False
    log: Trace | None = None


def of_jobs(wanted: Wanted) -> Understood:
    if wanted.cluster is None:
        raise BadInput("--job: needs --cluster beside it, a name or a file")
    if wanted.log is not None and wanted.failures is not None:
        raise BadInput(f"--failures {wanted.failures}: cannot be together with --log; choose one")
    if wanted.log is None and wanted.log_gpus is not None:
        raise BadInput(f"--log-gpus {wanted.log_gpus}: needs --log, whose cluster it is about")
    cluster = read_cluster(wanted.cluster, wanted.gpus)
    failures = _failures(wanted, cluster)
    reads = [_on_cluster(read_job(path), cluster, len(wanted.jobs)) for path in wanted.jobs]
    subjects, facts = [], [_as_plain(f.as_dict()) for f in cluster.facts]
    for path, read in zip(wanted.jobs, reads, strict=True):
        subject, more = _subject(path, read, cluster, failures.source, alone=len(reads) == 1)
        subjects.append(subject)
        facts += [*(_as_plain(f.as_dict()) for f in read.facts), *more]
    total = sum(subject.fleet.gpus for subject in subjects)
    if total > cluster.gpus:
        raise BadInput(
            f"--gpus {cluster.gpus}: the jobs need {total} GPUs in whole domains of "
            f"{cluster.domain}"
        )
    return Understood(
        subjects=_told_apart(subjects),
        settings=Settings(),
        facts=[*facts, *failures.facts, *transition_facts(Transition(), False, False, False)],
        inputs=[
            *(_input("job", p, read.format) for p, read in zip(wanted.jobs, reads, strict=True)),
            _cluster_input(wanted.cluster, cluster), failures.row,
        ],
        unknown=[
            {"file": path.name, "what": what}
            for path, read in zip(wanted.jobs, reads, strict=True)
            for what in read.unknown
        ],
        now=failures.now,
        example=failures.example,
        log=failures.log,
        prices=dict(cluster.prices),
        gpu=cluster.gpu,
    )  # fmt: skip


def _as_plain(found: Mapping[str, Any]) -> PlainFact:
    return dict(found)


def _input(what: str, path: Path, form: str) -> dict[str, Any]:
    digest = sha256(path) if path.is_file() else ""
    return {"what": what, "name": path.name, "format": form, "sha256": digest}


def _cluster_input(name: str, cluster: ClusterDescription) -> dict[str, Any]:
    path = Path(name)
    digest = sha256(path) if cluster.format != "catalog" and path.is_file() else ""
    return {"what": "cluster", "name": cluster.name, "format": cluster.format, "sha256": digest}


def _told_apart(subjects: Sequence[Subject]) -> list[Subject]:
    """Two jobs of one name get a number each."""
    names = [subject.name for subject in subjects]
    return [
        each if names.count(each.name) == 1 else replace(each, name=f"{each.name} #{at}")
        for at, each in enumerate(subjects, start=1)
    ]


# -------------------------------------------------------------------------------------- failures


def _failures(wanted: Wanted, cluster: ClusterDescription) -> _Failures:
    fleet = cluster.fleet
    if wanted.log is not None:
        watched = _like(fleet, wanted.log_gpus or fleet.gpus)
        found = find_log(wanted.log, watched, wanted.skip_bad_rows)
        source, facts = source_of_log(found.trace, watched)
        of = fact(
            f"log {wanted.log.name}",
            "GPUs that it is of",
            f"{watched.gpus:,}",
            wanted.log_gpus is None,
            "--log-gpus" if wanted.log_gpus else "all of the cluster",
        )
        row = _input("failures", wanted.log, found.form.format or "csv")
        return _Failures(
            replace(source, fleet=fleet), [*found.facts, of, *facts], row,
            now_figure(found.trace, watched, found.example), found.example,
            found.trace if watched == fleet else None,
        )  # fmt: skip
    name = CATALOG if wanted.failures is None else wanted.failures
    catalog = load_catalog(name)
    facts = [
        fact("failures", "catalog", catalog.about, wanted.failures is None, name),
        *(fact("failures", "", line, True) for line in catalog.assumptions()),
        fact("failures", "beginning", "as in the long run, not with a whole cluster", True),
    ]
    row = {"what": "failures", "name": name, "format": "catalog", "sha256": ""}
    return _Failures(ModelSource(fleet, catalog.causes, YEAR_H, None, None, True), facts, row)


def _like(fleet: Fleet, gpus: int) -> Fleet:
    return Fleet(gpus, min(fleet.domain, gpus), min(fleet.node, gpus))


# ------------------------------------------------------------------------------------------ jobs


def _on_cluster(read: ReadJob, cluster: ClusterDescription, jobs: int) -> ReadJob:
    """A job that does not say on how many GPUs it runs takes what there is, or says so."""
    job = read.job
    if job.tensor > cluster.domain:
        raise BadInput(
            f"{read.account.path}: tensor = {job.tensor} is more than the {cluster.domain} GPUs of "
            f"a domain of {cluster.name}"
        )
    if job.data is not None:
        return read
    if jobs > 1:
        raise BadInput(
            f"{read.account.path}: does not say on how many GPUs it runs, with {jobs} jobs"
        )
    per_domain = cluster.used // job.tensor or cluster.domain // job.tensor
    most = cluster.fleet.domains * per_domain // (job.pipeline * job.context)
    replicas = _fitting(job, most)
    if replicas < 1:
        raise BadInput(
            f"{read.account.path}: one replica needs {job.gpus_per_replica} GPUs, {cluster.name} "
            f"has {cluster.gpus} in domains of {cluster.domain}"
        )
    gpus = replicas * job.gpus_per_replica
    return with_gpus(read, gpus, f"as many as fit on {cluster.name}", "assumed")


def _fitting(job: JobDescription, most: int) -> int:
    """As many replicas as the batch can be divided by."""
    if job.sequences is None:
        return most
    grains = job.sequences // job.micro_batch
    return next((n for n in range(most, 0, -1) if grains % n == 0), 0)


def _subject(
    path: Path, read: ReadJob, cluster: ClusterDescription, source: ModelSource, alone: bool
) -> tuple[Subject, list[PlainFact]]:
    """`alone`: what the job does not use is there for it, as spares."""
    job = read.job
    about = f"job {path.name}"
    assert job.data is not None, "settled by _on_cluster"
    facts: list[PlainFact] = []
    fleet = _own_fleet(job, job.data, cluster)
    if alone:
        fleet = Fleet(cluster.fleet.domains * cluster.domain, cluster.domain, cluster.node)
    stages = job.pipeline * job.context
    groups = fleet.domains * (fleet.domain // job.tensor)
    training = TrainingJob(
        degree=job.tensor,
        stages=stages,
        sequences_per_replica=_sequences(job, about, facts),
        replicas=0 if groups // stages == job.data else job.data,
        layers=job.model.layers if job.model and job.context == 1 and job.uneven else 0,
        microbatch_sequences=job.micro_batch,
    )
    if job.context > 1:
        facts.append(
            fact(about, "context parallelism", "counts as stages that must be whole", True)
        )
    pace, rack = _pace(job, cluster, about, facts), _rack(cluster)
    days, assumed = _days(job, pace, about, facts)
    subject = Subject(
        name=job.name, fleet=fleet, job=training, source=replace(source, fleet=fleet), days=days,
        days_assumed=assumed, preemptible=job.preemptible, pace=pace, format=read.format,
        rack=rack[0], speed_at=speeds(pace),
        checkpoint_every_s=_checkpoint_s(job, pace, about, facts),
        speedup_at=_speedups(rack, job, about, facts),
    )  # fmt: skip
    unused = fleet.gpus - subject.gpus
    if alone and unused:
        text = f"{unused:,} GPUs that the job does not use are there as spares"
        facts.append(fact(about, "GPUs of the cluster", text, True))
    elif fleet.gpus < cluster.gpus:
        text = f"{fleet.gpus:,} of {cluster.gpus:,}, {fleet.domains:,} domains of its own"
        facts.append(fact(about, "GPUs of the cluster", text))
    return subject, facts


def _rack(cluster: ClusterDescription) -> tuple[str, str]:
    """The catalog's rack of such a domain; "" and why there is none."""
    name = RACKS.get(cluster.gpu, "")
    if not name:
        return "", "no rack is known"
    try:
        gpus = load_rack(name).rack.domain_gpus
    except BadInput as error:  # the catalog does not know all of it
        return "", str(error).rsplit("/", 1)[-1]
    if gpus != cluster.domain:
        return "", f"no rack is known with domains of {cluster.domain}"
    return name, ""


def _speedups(
    rack: tuple[str, str], job: JobDescription, about: str, facts: list[PlainFact]
) -> ByDegree:
    """What the catalog's rack allows; a boost raises a capped set point, and some have no cap."""
    name, why = rack
    if not name:
        facts.append(fact(about, "boost", f"up to x{MAX_SPEEDUP:g} in speed", True, why))
        return ()
    found = speedups(name, job.tensor)
    most = max((speedup for _, speedup in found), default=1.0)
    text = f"up to x{most:.3g} in speed" if most > 1 else "not possible: no room above nominal"
    facts.append(fact(about, "boost", text, True, f"rack {name} as delivered, of the catalog"))
    return found


def _own_fleet(job: JobDescription, data: int, cluster: ClusterDescription) -> Fleet:
    per_domain = cluster.used // job.tensor or cluster.domain // job.tensor
    domains = -(-data * job.pipeline * job.context // per_domain)
    if domains > cluster.fleet.domains:
        raise BadInput(
            f"job {job.name}: {data} replicas of {job.pipeline * job.context} groups of "
            f"{job.tensor} GPUs need {domains} domains, {cluster.name} has {cluster.fleet.domains}"
        )
    return Fleet(domains * cluster.domain, cluster.domain, cluster.node)


def _sequences(job: JobDescription, about: str, facts: list[PlainFact]) -> int:
    if job.sequences is not None and job.data is not None:
        return max(job.micro_batch, job.sequences // job.data // job.micro_batch * job.micro_batch)
    number = BATCH_PER_STAGE * job.pipeline * job.micro_batch
    text = f"{number} sequences, {BATCH_PER_STAGE} micro-batches a stage"
    facts.append(fact(about, "batch of a replica", text, True))
    return number


def _pace(
    job: JobDescription, cluster: ClusterDescription, about: str, facts: list[PlainFact]
) -> Pace | None:
    work, parallel = job.work(), job.parallel(cross_domain=False)
    if work is None or parallel is None:
        facts.append(fact(about, "step time", "not known without model, batch and length", True))
        return None
    pace = Pace(_machine(cluster), work, parallel)
    reason = why_not(pace)
    if reason:
        facts.append(fact(about, "step time", f"not known: {reason}", True))
        return None
    return pace


def _machine(cluster: ClusterDescription) -> Machine:
    gpu = replace(load_gpu(cluster.gpu), domain_gpus=cluster.domain)
    return machine(gpu, load_constants(gpu.generation))


def _checkpoint_s(
    job: JobDescription, pace: Pace | None, about: str, facts: list[PlainFact]
) -> float:
    """As the job has it today; 0 where nothing says."""
    if not job.checkpoint_every_steps:
        return 0.0
    step_s = step_figure(pace)
    if step_s is None or not step_s.value:
        text = "its interval in steps is not used: how long a step takes is not known"
        facts.append(fact(about, "checkpoints of today", text, True))
        return 0.0
    every_s = job.checkpoint_every_steps * step_s.value
    text = f"every {every_s:,.0f} s"
    note = f"{job.checkpoint_every_steps:,} steps x {step_s.value:.3g} s"
    facts.append(fact(about, "checkpoints of today", text, note=note))
    return every_s


def _days(
    job: JobDescription, pace: Pace | None, about: str, facts: list[PlainFact]
) -> tuple[float, bool]:
    """Of undisturbed work."""
    if job.days is not None:
        return job.days, False
    steps = job.steps
    if steps is None and job.tokens and job.sequences and job.length:
        steps = round(job.tokens / (job.sequences * job.length))
    step_s = step_figure(pace)
    if steps and step_s is not None and step_s.value:
        days = steps * step_s.value / 86400
        facts.append(
            fact(about, "days", f"{days:,.1f}", note=f"{steps:,} steps x {step_s.value:.3g} s")
        )
        return days, False
    facts.append(fact(about, "days", f"{DAYS:g}: a year", True))
    return DAYS, True
