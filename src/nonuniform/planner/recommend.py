"""The recommendation: what to run, what to keep spare and where, how low, how often, and how sure.

In: a study and what else was tried. Out: the object `recommendation` of summary.json. DESIGN "Plan
and report". The choice itself is made by `choose`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from nonuniform.planner.boostpower import extra_share, most_speedup
from nonuniform.planner.checkpoints import mtbf_s, young_daly_s
from nonuniform.planner.choose import beats, difference
from nonuniform.planner.figure import Figure, figure_of
from nonuniform.planner.policies import Transition
from nonuniform.planner.study import Study
from nonuniform.planner.subject import Subject
from nonuniform.planner.tell import alternatives, margin_figure, recommended
from nonuniform.planner.trials import ask
from nonuniform.planner.valuation import Valued

FLOORS = (0.875, 0.75, 0.5, 0.25)  # of the degree


def recommendation(
    study: Study, least: Mapping[str, Any], checkpoint: Figure, transition: Transition,
    changes: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:  # fmt: skip
    """`least`: of `least_degree`."""
    chosen = study.valued[recommended(study)]
    gpus = study.subject.gpus
    lost_today = [t.missing_gpu_h(gpus) for t in study.today.tallies]
    gain = difference(lost_today, [t.missing_gpu_h(gpus) for t in chosen.tallies])
    saved = figure_of(gain, "GPU-h/year", "lost today less lost with this, the same histories")
    return {
        "job": study.subject.name,
        "policy": chosen.row.name,
        "runnable": chosen.row.runnable,
        "spare_domains": spare_figure(study, chosen).as_dict(),
        "spares_where": spares_where(study, chosen),
        **least,
        "boost": boost_figure(study, chosen),
        "checkpoint_every": {
            "young_daly": _formula(study, transition).as_dict(),
            "simulated": checkpoint.as_dict(),
            "recommended": _every(chosen, checkpoint, transition).as_dict(),
        },
        "saved": saved.as_dict(),
        "net": chosen.net(study.today).as_dict(),
        "margin": margin_figure(study.choice).as_dict(),
        "material": Figure(
            study.material, "money/year", "assumed", "differences below this are not told apart"
        ).as_dict(),
        "stable": study.choice.stable if study.exposure.candidate else True,
        "alternatives": alternatives(study),
        "changes": list(changes),
    }


def spare_figure(study: Study, chosen: Valued) -> Figure:
    """The interval spans the numbers of the same policy that cannot be told from the chosen one."""
    own = [each for each in study.valued.values() if each.row.name == chosen.row.name]
    alike = [
        each.spares
        for each in own
        if not beats(chosen.worths, each.worths, study.material)
        and not beats(each.worths, chosen.worths, study.material)
    ]
    return Figure(
        float(chosen.spares), "domains", "simulated",
        "of the numbers tried the best one, or a smaller one that is as good",
        float(min(alike)), float(max(alike)),
    )  # fmt: skip


def spares_where(study: Study, chosen: Valued) -> str:
    subject = study.subject
    left = subject.fleet.gpus - subject.gpus
    inside, rest = divmod(left, subject.fleet.domains)
    parts = []
    if chosen.spares:
        parts.append(
            f"{chosen.spares} whole domains of the job's own, in the same network block as the "
            "replicas they stand in for"
        )
    if inside and not rest:
        parts.append(f"{inside} GPUs in each domain, which the degree leaves free")
    elif left:
        parts.append(f"{left} GPUs that no replica needs")
    return "; ".join(parts) or "none"


def boost_figure(study: Study, chosen: Valued) -> dict[str, Any] | None:
    """Power above nominal that the policy asks for at most, as a share."""
    if not chosen.row.options.boosts:
        return None
    return extra_share(study.subject, most_speedup(chosen.row)).as_dict()


def _formula(study: Study, transition: Transition) -> Figure:
    every = young_daly_s(transition.checkpoint_write_s, mtbf_s(study.subject))
    text = f"Young/Daly, {transition.checkpoint_write_s:g} s to write one, for who restarts"
    return Figure(every if math.isfinite(every) else None, "s", "computed", text)


def _every(chosen: Valued, simulated: Figure, transition: Transition) -> Figure:
    """Who goes on without a restart needs a checkpoint only when no copy is left."""
    if chosen.row.options.kind == "uniform":
        return simulated
    text = "read only when no replica has a copy left"
    return Figure(transition.live_checkpoint_every_s, "s", "assumed", text)


def least_degree(
    study: Study, subject: Subject, seeds: Sequence[int], overheads: Mapping[str, float]
) -> dict[str, Any]:
    """The highest floor that loses no more than the lowest: a low one costs memory. `subject`:
    that of the study, with histories that may be shorter."""
    chosen = study.valued[recommended(study)]
    degree = study.subject.job.degree
    if not chosen.row.options.reduces or degree == 1:
        return {"min_degree": degree, "min_degree_tried": []}
    stated = chosen.row.options.min_degree
    lowest = stated if study.subject.min_degree_stated else 1
    floors = sorted({max(lowest, math.ceil(degree * share)) for share in FLOORS}, reverse=True)
    rows = [
        replace(chosen.row, options=replace(chosen.row.options, min_degree=floor))
        for floor in floors
    ]
    gains = {
        floor: [
            t.throughput
            for t in ask(subject, [row], seeds, overheads=overheads)[row.name, chosen.spares]
        ]
        for floor, row in zip(floors, rows, strict=True)
    }
    best = max(floors, key=lambda floor: (sum(gains[floor]), floor))
    enough = next(f for f in floors if not beats(gains[best], gains[f], 0.0005))
    tried = [
        {"degree": floor, "throughput": sum(own) / len(own)} for floor, own in gains.items()
    ]  # fmt: skip
    return {"min_degree": enough, "min_degree_tried": tried}
