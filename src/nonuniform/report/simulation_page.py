"""The page of a simulation: its tables, and which answer to failures keeps most.

In: the summary of `nonuniform simulate`, as plain data. Out: one HTML page in both languages. Knows
nothing of how the figures were made.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from nonuniform.report.blocks import Table
from nonuniform.report.figures import Figure, Place
from nonuniform.report.numbers import Quantity
from nonuniform.report.phrases import Phrase
from nonuniform.report.run_page import Content
from nonuniform.report.said import Language, Said, Verbatim
from nonuniform.report.texts import load_texts

HOURS = ("failed", "idled", "transition", "redone", "spare")
SHARES = ("p50", "p95", "p100")


def simulation_html(summary: Mapping[str, Any], folder: Path, lang: Language = "en") -> str:
    return simulation_content(summary, folder).page(lang)


def simulation_content(summary: Mapping[str, Any], folder: Path) -> Content:
    """Of one scenario, or of all points of a sweep."""
    t = load_texts()
    place = Place(summary, file=str(folder / "summary.json"))
    name = folder.resolve().name or str(folder)
    title = t("simulation.title", name=name)
    command = f"nonuniform report {shlex.quote(str(folder))}"
    if summary.get("status") != "done":
        reason = Verbatim(str(summary.get("reason", "")))
        notice = t("simulation.unfinished", reason=reason)
        return Content(title, reason, notices=[notice], command=command, reproduce=reason)
    points = list(place["points"]) if summary.get("points") else [place]
    first = points[0]
    tables = [table for number, point in enumerate(points) for table in _tables(point, number)]
    return Content(
        title=title,
        subtitle=t(
            "simulation.subtitle",
            seeds=first["seeds"].figure().bare(),
            hours=first["hours"].figure("h").bare(),
        ),
        says=_says(first) if len(points) == 1 else (),
        lead=tables,
        tables=[_understood(first)] if first.get("understood") else (),
        command=command,
        reproduce=t("run.subtitle", version=place["version"].name(), file="summary.json"),
    )


def _says(point: Place) -> list[Said]:
    t = load_texts()
    by_loss = sorted(point["policies"].items(), key=lambda item: item[1]["loss_mean"].data)
    out = [t("simulation.failed", failed=_full(_cell(point["failed_share_mean"], "1")))]
    ends = {"best": by_loss[0], "worst": by_loss[-1]} if len(by_loss) > 1 else {}
    for key, (name, policy) in ends.items():
        out.append(t(f"simulation.{key}", policy=Verbatim(name), loss=_full(_loss(policy))))
    return out


def _tables(point: Place, number: int) -> list[Table]:
    """Of one scenario; the point of a sweep is named above its first table."""
    t = load_texts()
    policies = point["policies"].items()
    setting = ", ".join(f"{key} = {value}" for key, value in (point.data.get("set") or {}).items())
    caption = t("simulation.throughput")
    if setting:
        caption = t("simulation.point", number=number + 1, setting=setting)
    shares = ("throughput_mean", "throughput_worst", "throughput_owned")
    names = ("mean", "worst_throughput", "owned", "loss", "amplification")
    first = [
        (name, (*(_cell(one[key], "1") for key in shares), _loss(one), _cell(one["amplification"])))
        for name, one in policies
    ]
    hours = [
        (name, tuple(_cell(one["gpu_hours"][reason], "GPU-h") for reason in HOURS))
        for name, one in policies
    ]
    spares = [
        (name, tuple(_cell(one["spares_domains"][share], "domains") for share in SHARES))
        for name, one in policies
    ]
    return [
        _table(caption, names, first),
        _table(t("simulation.hours"), ("failed_hours", *HOURS[1:]), hours),
        _table(t("simulation.spares"), SHARES, spares),
    ]


def _table(
    caption: Said, names: tuple[str, ...], rows: Sequence[tuple[str, Sequence[Said]]]
) -> Table:
    t = load_texts()
    head = (t("simulation.policy"), *(t(f"simulation.{name}") for name in names))
    body = tuple((Verbatim(name), *cells) for name, cells in rows)
    return Table(caption, head, body, (False, *(True,) * len(names)))


def _understood(point: Place) -> Table:
    t = load_texts()
    rows = tuple(
        (
            Phrase(fact["about"].words()),
            Phrase(fact["text"].words()),
            t("simulation.yes") if fact.data.get("assumed") else Verbatim(""),
        )
        for fact in point["understood"]
    )
    head = tuple(t(f"simulation.{name}") for name in ("about", "text", "assumed"))
    return Table(t("simulation.understood"), head, rows)


def _cell(place: Place, unit: str = "") -> Figure:
    """Every number of the result is labelled as one of a simulation."""
    return replace(place.figure(unit), kind="simulated", style="cell")


def _full(figure: Figure) -> Figure:
    return replace(figure, style="full")


def _loss(policy: Place) -> Figure:
    """With the interval that its seeds allow."""
    mean = _cell(policy["loss_mean"], "1")
    ends = policy.get("loss_ci95")
    if ends is None or mean.value is None:
        return mean
    quantity = Quantity(mean.value, "1", float(ends.data[0]), float(ends.data[1]))
    return replace(mean, quantity=quantity)
