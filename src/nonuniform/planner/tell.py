"""A study as the objects of summary.json.

In: studies. Out: plain dicts: `jobs`, `portfolio`, `recommendation`, `marginal`, `verdict`. DESIGN
"Outside contract". Works nothing out but differences of what is in the study.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

from nonuniform.planner.choose import Choice, beats, difference
from nonuniform.planner.figure import Figure, figure_of, nothing, of_seeds
from nonuniform.planner.money import payback_days
from nonuniform.planner.policies import TODAY
from nonuniform.planner.study import Study
from nonuniform.planner.trials import Candidate
from nonuniform.planner.valuation import Valued
from nonuniform.sim.outcome import pool, quantile

SIMULATED = "simulated: mean over histories"
GPU_HOURS = ("useful", "failed", "idled", "spare", "transition", "redone", "unused", "gained")


def job_object(study: Study, created: datetime.date, step_s: Figure | None) -> dict[str, Any]:
    subject, seen = study.subject, study.exposure
    return {
        "name": subject.name,
        "gpus": subject.gpus,
        "gpus_owned": subject.fleet.gpus,
        "degree": subject.job.degree,
        "stages": subject.job.stages,
        "replicas": subject.replicas,
        "domain": subject.fleet.domain,
        "gpus_per_replica": subject.gpus_per_replica,
        "days": _days(study).as_dict(),
        "step_time": step_s.as_dict() if step_s else None,
        "tp_usage": seen.tp_usage.as_dict(),
        "blast_gpus": seen.blast_gpus.as_dict(),
        "failures_expected": seen.failures.as_dict(),
        "failed_share": {
            "now": seen.now.as_dict() if seen.now else None,
            "mean": seen.mean.as_dict(),
            "p95": seen.p95.as_dict(),
        },
        "candidate": seen.candidate,
        "reason": seen.reason,
        "today": TODAY,
        "policies": {
            row.name: policy_object(study, study.best[row.name], created) for row in study.rows
        },
    }


def _days(study: Study) -> Figure:
    subject = study.subject
    text = "nothing says how long; a year" if subject.days_assumed else "of undisturbed work"
    return Figure(subject.days, "days", "assumed" if subject.days_assumed else "computed", text)


def policy_object(study: Study, own: Valued, created: datetime.date) -> dict[str, Any]:
    throughput = own.throughput()
    net = own.net(study.today)
    lasts = throughput.mapped(
        lambda t: study.subject.days / t if t > 0 else float("inf"), "days",
        "days of undisturbed work / throughput",
    )  # fmt: skip
    running = _running(study, own)
    back = payback_days(own.one_off, running) if own is not study.today else None
    worst = min(t.throughput_worst for t in own.tallies)
    return {
        "kind": own.row.kind,
        "title": own.row.title,
        "runnable": own.row.runnable,
        "needs": [*own.row.needs, *(["spares"] if own.spares else [])],
        "spare_domains": own.spares,
        "throughput": throughput.as_dict(),
        "throughput_worst": Figure(
            worst, "1", "simulated", "least of any placement in any history"
        ).as_dict(),
        "loss": throughput.mapped(lambda t: 1 - t, "1", SIMULATED).as_dict(),
        "lost": own.lost().as_dict(),
        "interrupted": of_seeds([t.interrupted for t in own.tallies], "1", SIMULATED).as_dict(),
        "days": lasts.as_dict(),
        "completion": _completion(created, lasts.value),
        "spares_domains": _spares(study.bare(own.row.name)),
        "gpu_hours": {
            name: of_seeds([t.gpu_h[name] for t in own.tallies], "GPU-h/year", SIMULATED).as_dict()
            for name in GPU_HOURS
        },
        "cost": {
            name: own.cost(name).as_dict()
            for name in ("lost", "spares", "energy", "operators", "total")
        },
        "one_off": Figure(
            own.one_off, "money", "computed", "engineering and retrofit at money.prices"
        ).as_dict(),
        "payback_days": None
        if back is None
        else Figure(back, "days", "computed", "one-off cost / what a year saves").as_dict(),
        "net": net.as_dict(),
    }  # fmt: skip


def _running(study: Study, own: Valued) -> float:
    """What a year saves against today, before what was spent once."""
    pairs = zip(study.today.costs, own.costs, strict=True)
    saved = [before.total - after.total for before, after in pairs]
    return sum(saved) / len(saved)


def _completion(created: datetime.date, days: float | None) -> str | None:
    if days is None or days > 365 * 1000:
        return None
    return (created + datetime.timedelta(days=days)).isoformat()


def _spares(own: Valued) -> dict[str, Any]:
    hours = pool([t.spares_hours for t in own.tallies])
    return {
        f"p{p}": Figure(
            float(quantile(hours, p / 100)), "domains", "simulated",
            f"on top, keep the job whole for {p} % of the time",
        ).as_dict()
        for p in (50, 95, 100)
    }  # fmt: skip


def portfolio(studies: Sequence[Study]) -> list[dict[str, Any]]:
    """The job that loses most first."""
    rows = [
        {
            "job": study.subject.name,
            "lost": study.today.lost().as_dict(),
            "candidate": verdict(study)["worth"] != "no",
            "reason": verdict(study)["reason"],
        }
        for study in studies
    ]
    return sorted(rows, key=lambda row: -float(row["lost"]["value"]))


def verdict(study: Study) -> dict[str, Any]:
    """`worth` is about unequal replicas (ntp): that something simpler is better than today is in
    `policy`. `change`: another answer than today's is recommended. `choice`: whether it is ahead of
    the next best one by more than chance, or is the simpler of two that are as good."""
    chosen, best = study.choice.chosen[0], study.choice.best[0]
    sure = study.choice.stable or not study.exposure.candidate
    head = {
        "policy": chosen, "today": TODAY, "change": study.choice.chosen != (TODAY, 0),
        "choice": "clear" if sure else "within-noise",
    }  # fmt: skip
    if study.exposure.reason == "tensor-parallel-1":
        return {**head, "worth": "no", "reason": study.exposure.reason}
    if not study.exposure.candidate:
        return {**head, "policy": TODAY, "change": False, "worth": "no",
                "reason": study.exposure.reason}  # fmt: skip
    if chosen.startswith("ntp"):
        return {**head, "worth": "yes", "reason": "saves"}
    if not best.startswith("ntp"):
        return {**head, "worth": "no", "reason": _why_no_better(study)}
    return {**head, "worth": "unclear", "reason": "within-noise"}


def _why_no_better(study: Study) -> str:
    """NTP is not ahead even in the mean: since nothing is left to gain, also where no spares are
    kept, or since it costs more."""
    drop, ntp = study.bare("dp-drop-tokens"), study.bare("ntp-tokens")
    gain = difference(
        [t.throughput for t in ntp.tallies], [t.throughput for t in drop.tallies]
    )  # fmt: skip
    return "no-domain-loss" if gain.mean <= 1e-4 else "costs-more"


def recommended(study: Study) -> Candidate:
    """Without tensor parallelism NTP has no part in it, and the simpler answers still have."""
    free = study.exposure.candidate or study.exposure.reason == "tensor-parallel-1"
    return study.choice.chosen if free else (TODAY, 0)


def alternatives(study: Study, most: int = 4) -> list[dict[str, Any]]:
    """The next best answers of other policies, each with the reason why it is not the first."""
    name = recommended(study)[0]
    chosen = study.valued[recommended(study)]
    others = [own for own in study.best.values() if own.row.name != name]
    others.sort(key=lambda own: -sum(own.worths))
    return [
        {
            "policy": own.row.name,
            "spare_domains": own.spares,
            "net": own.net(study.today).as_dict(),
            "throughput": own.throughput().as_dict(),
            "runnable": own.row.runnable,
            "why_not": _why_not(study, chosen, own),
        }
        for own in others[:most]
    ]


def _why_not(study: Study, chosen: Valued, own: Valued) -> str:
    if not study.exposure.candidate and chosen is study.today:
        return study.exposure.reason
    if beats(chosen.worths, own.worths, study.material):
        faster = own.throughput().value or 0.0
        return "costs-more" if faster > (chosen.throughput().value or 0.0) else "loses-more"
    return "within-noise"


def margin_figure(choice: Choice) -> Figure:
    rival = f"over {choice.rival[0]}" if choice.rival else "nothing else was compared"
    text = f"net of the recommended answer {rival}, the same histories"
    return figure_of(choice.margin, "money/year", text)


def marginal(study: Study, hidden: Figure | None) -> dict[str, Any]:
    """Each on top of the one before, without spares."""
    steps = {
        "live": ("dp-drop", TODAY),
        "tokens": ("dp-drop-tokens", "dp-drop"),
        "ntp": ("ntp-tokens", "dp-drop-tokens"),
        "boost": ("ntp-pw", "ntp-tokens"),
    }
    found = {}
    compared = {row.name for row in study.rows}
    for name, (after, before) in steps.items():
        if not {after, before} <= compared:
            found[name] = nothing("1", "not compared: it is not possible here").as_dict()
            continue
        gain = difference(
            [t.throughput for t in study.bare(after).tallies],
            [t.throughput for t in study.bare(before).tallies],
        )
        text = f"throughput of {after} less that of {before}"
        found[name] = figure_of(gain, "1", text).as_dict()
    why = "the step-time model needs the model, the GPU and the batch"
    found["hidden_sync"] = (hidden or nothing("1", why)).as_dict()
    return found
