"""The page of a plan: what a manager reads first and an engineer can check below.

In: a `summary.json` as plain data. Out: one HTML page in both languages. DESIGN "Plan and report".
Numbers are formatted and never worked out; every one carries its place in the summary.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nonuniform.errors import BadInput
from nonuniform.report import plan_tables as tables
from nonuniform.report.blocks import Table
from nonuniform.report.charts import plan_charts
from nonuniform.report.figures import KINDS, Place
from nonuniform.report.phrases import Phrase
from nonuniform.report.plan_words import Told, answer, talk, told
from nonuniform.report.said import Language, Said, Verbatim
from nonuniform.report.shell import page, render
from nonuniform.report.texts import Texts, load_texts


def plan_html(summary: Mapping[str, Any], lang: Language = "en") -> str:
    """`lang` is the language in which the page opens."""
    texts = load_texts()
    place = top_of(summary)
    found = told(place, texts)
    charts = plan_charts(place, texts)
    title = texts("plan.title", job=found.job["name"].name())
    body = render(
        "plan.html",
        texts,
        title=title,
        made=made(place, texts),
        example=bool(place.get("example") and place["example"].data),
        worth=found.worth,
        answer=answer(found),
        talk=talk(found),
        tiles=tiles(found),
        kinds=KINDS,
        exposure=[
            table
            for table in (
                tables.portfolio(place, texts),
                tables.exposure(place, texts),
                tables.measured(place, texts),
            )
            if table.rows
        ],
        jobs=[_of_job(job, found, texts) for job in place["jobs"] if job["policies"].data],
        advice=_advice(place, texts),
        charts=charts,
        no_rack=place["charts"].get("rack") is None,
        path=tables.path(place, texts),
        prices=tables.prices(place, texts),
        currency=currency(place, texts),
        facts=tables.facts(place, texts),
        inputs=tables.inputs(place, texts),
        unknown=tables.unknown(place, texts),
        command=place["command"].name(),
    )
    return page(title, body, lang, texts, charts)


def top_of(summary: Mapping[str, Any]) -> Place:
    """The summary of a plan, or one line that says what it is instead."""
    if summary.get("kind") != "plan":
        raise BadInput(f"summary.json: kind is {summary.get('kind')!r}, not 'plan'")
    place = Place(summary)
    return Place(summary, currency=place["money"]["currency"].words())


def made(place: Place, texts: Texts) -> Said:
    seeds = place.get("seeds")
    gaps: dict[str, Said | str | int] = {
        "created": place["created"].name(),
        "version": place["version"].name(),
    }
    if seeds is None:
        return texts("plan.made_one", **gaps)
    return texts("plan.made", seeds=seeds.figure(), **gaps)


def currency(place: Place, texts: Texts) -> Said:
    money = place["money"]
    name = money["currency"].name()
    if money["fx"].data == 1:
        return texts("plan.fx.same", currency=name)
    fx = money["fx"].figure()
    if money.get("fx_date") is None:
        return texts("plan.fx.converted", currency=name, fx=fx)
    return texts("plan.fx.converted_on", currency=name, fx=fx, date=money["fx_date"].name())


def tiles(found: Told) -> list[tuple[Said, Said]]:
    """The recommendation at a glance."""
    advice, texts = found.recommendation, found.texts
    boost = advice.get("boost")
    every = advice["checkpoint_every"]
    shown: list[tuple[str, Said]] = [
        ("policy", Verbatim(found.chosen.key)),
        ("spares", advice["spare_domains"].figure()),
        ("where", Phrase(advice["spares_where"].words())),
        ("min_degree", advice["min_degree"].figure()),
        ("boost", texts("plan.none") if boost is None else boost.figure()),
        ("checkpoint", every["recommended"].figure()),
        ("young_daly", every["young_daly"].figure()),
        ("simulated", every["simulated"].figure()),
        ("saved", advice["saved"].figure()),
        ("net", advice["net"].figure()),
        ("margin", advice["margin"].figure()),
    ]
    return [(texts(f"plan.tile.{key}"), said) for key, said in shown]


def _of_job(job: Place, found: Told, texts: Texts) -> tuple[Said, bool, list[Table]]:
    """Name, whether it is the one that the answer is about, its tables."""
    about = job.path == found.job.path
    chosen = found.chosen.key if about else ""
    kinds = (tables.meaning, tables.policies, tables.hours, tables.spares, tables.costs)
    return (
        texts("plan.other_job", job=job["name"].name()),
        about,
        [kind(job, chosen, texts) for kind in kinds],
    )


def _advice(place: Place, texts: Texts) -> list[Table]:
    kinds = (tables.alternatives, tables.changes, tables.marginal)
    return [kind(place, texts) for kind in kinds]
