"""Small clusters that lose many GPUs, and the policies to try on each.

In: a seed. Out: a fleet, a trace, a job and named options, the same for every run. Half of the
seeds keep all times on a grid of quarter hours, so that failures, returns, checkpoints and ends of
stalls meet at one instant. A scene has all kinds of policies, and of their variants half, drawn.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from nonuniform.cluster.fleet import Fleet
from nonuniform.cluster.trace import Trace, make_trace
from nonuniform.placement.job import TrainingJob
from nonuniform.placement.policy import PolicyOptions

SEEDS = range(20)
HOURS = 40.0
KINDS = ("uniform", "dp-drop", "ntp", "ntp-pw")
REPACKS = ("at-once", "next-failure", "next-checkpoint", "never")


@dataclass(frozen=True)
class Scene:
    fleet: Fleet
    trace: Trace
    job: TrainingJob
    policies: dict[str, PolicyOptions]


def scene(seed: int) -> Scene:
    rng = Random(seed)
    on_grid = seed % 2 == 0
    domain, domains = rng.randint(4, 9), rng.randint(4, 8)
    fleet = Fleet(domain * domains + rng.randrange(domain), domain, node=4)
    # Spares inside the domain, or several groups in it, now and then.
    degree = rng.choice([domain, domain, domain, domain - 1, domain // 2])
    stages = rng.choice([1, 2, 2, 3])
    if stages > domains * (domain // degree):
        stages = 1
    fit = domains * (domain // degree) // stages
    micro = rng.choice([1, 2, 3])
    job = TrainingJob(
        degree=degree,
        stages=stages,
        sequences_per_replica=micro * rng.randint(2, 4),
        replicas=rng.choice([0, 0, max(1, fit - 1)]),
        layers=rng.choice([0, 0, stages * 3 + stages - 1, stages * 4 + 1]),
        microbatch_sequences=micro,
    )
    trace = _failures(rng, fleet, on_grid)
    everything = list(_policies(rng, fleet, job, on_grid))
    some = [named for named in everything if named[0] in KINDS or rng.random() < 0.5]
    return Scene(fleet, trace, job, dict(some))


def _failures(rng: Random, fleet: Fleet, on_grid: bool) -> Trace:
    def moment(high: float) -> float:
        return rng.randrange(int(high * 4)) / 4 if on_grid else rng.uniform(0, high)

    rows = []
    for _ in range(rng.randint(8, 18)):
        start = rng.choice([0.0, *[moment(HOURS)] * 9])
        end = rng.choice([float("inf"), *[start + 0.25 + moment(10)] * 24])
        first = rng.randrange(fleet.gpus)
        blast = min(rng.choice([1, 1, 1, 2, 4, fleet.domain, fleet.domain + 2]), fleet.gpus - first)
        rows.append((start, end, first, blast))
    starts, ends, firsts, blasts = zip(*rows, strict=True)
    return make_trace(HOURS, starts, ends, firsts, blasts, [0] * len(rows), ["some"])


def _policies(
    rng: Random, fleet: Fleet, job: TrainingJob, on_grid: bool
) -> Iterator[tuple[str, PolicyOptions]]:
    for kind in KINDS:
        yield kind, PolicyOptions(kind)  # type: ignore[arg-type]
    yield "uniform restart", PolicyOptions("uniform", on_failure="restart")
    for kind in ("ntp", "ntp-pw"):
        for name, more in _variants(rng, job):
            yield f"{kind} {name}", PolicyOptions(kind, **more)  # type: ignore[arg-type]
    yield "dp-drop fixed", PolicyOptions("dp-drop", batch="fixed")
    yield "dp-drop in place", PolicyOptions("dp-drop", packing="none")
    spare = _room_for_spares(fleet, job)
    for kind in KINDS:
        yield f"{kind} spares", PolicyOptions(kind, spare_domains=spare)  # type: ignore[arg-type]
        yield from _with_costs(rng, kind, on_grid)


def _room_for_spares(fleet: Fleet, job: TrainingJob) -> int:
    groups, needed = fleet.domain // job.degree, job.stages * max(1, job.replicas)
    return max(s for s in (2, 1, 0) if (fleet.domains - s) * groups >= needed)


def _variants(rng: Random, job: TrainingJob) -> Iterator[tuple[str, dict[str, Any]]]:
    degree = job.degree
    some = tuple(sorted({degree, max(1, degree - 1), max(1, degree - 3)}, reverse=True))
    floor = {"min_degree": rng.randint(1, degree)}
    yield "some degrees", {"degrees": some}
    yield "floor", floor
    yield "one degree", {"one_degree": True}
    yield "one degree of some", {"one_degree": True, "degrees": some, **floor}
    yield "one degree fixed", {"one_degree": True, "batch": "fixed"}
    for grain in ("sequence", "microbatch", "token"):
        yield f"shrink {grain}", {"grain": grain}
        yield f"fixed {grain}", {"grain": grain, "batch": "fixed"}
        yield f"spread {grain}", {"grain": grain, "packing": "spread"}
        yield f"in place {grain}", {"grain": grain, "packing": "none", "batch": "fixed"}
    yield "spread fixed", {"packing": "spread", "batch": "fixed", **floor}
    yield "table", {"batch_at": tuple((d, max(0, job.sequences_per_replica - 1)) for d in some[1:])}
    yield "in place", {"packing": "none", "degrees": some}
    yield "fast", {"max_speedup": 1.2, **floor}
    yield "slow", {"max_speedup": 1.05, "batch": "fixed"}
    yield "spares by domain", {"spare_unit": "domain"}


def _with_costs(rng: Random, kind: str, on_grid: bool) -> Iterator[tuple[str, PolicyOptions]]:
    def seconds(most: int) -> float:
        return rng.randrange(most // 900 + 1) * 900 if on_grid else round(rng.uniform(0, most), 2)

    for repack in REPACKS:
        every = 7200.0 if on_grid else 6000.0
        base = PolicyOptions(
            kind,  # type: ignore[arg-type]
            repack=repack,  # type: ignore[arg-type]
            on_failure=rng.choice(["wait", "restart"]) if kind == "uniform" else "wait",
            detect_s=seconds(1800),
            regroup_s=seconds(900),
            transfer_s=seconds(1800),
            restart_s=seconds(3600),
            redo_s=seconds(7200),
            checkpoint_every_s=every,
        )
        yield f"{kind} {repack} checkpoints", base
        free = replace(base, detect_s=0, regroup_s=0, transfer_s=0, restart_s=0)
        yield f"{kind} {repack} checkpoints only", free
        if repack != "next-checkpoint":
            costs = replace(base, checkpoint_every_s=0)
            yield f"{kind} {repack} costs", costs
            yield f"{kind} {repack} redo", replace(costs, redo_s=5400.0, restart_s=0)
