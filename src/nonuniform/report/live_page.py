"""The page of a run under way, before it knows anything of the run.

In: the name of the run. Out: one HTML page in both languages whose script asks the server that it
came from for what is new. Knows nothing of the run.
"""

from __future__ import annotations

from typing import Any

from markupsafe import Markup

from nonuniform.report.blocks import Chart, Table
from nonuniform.report.run_charts import COLOURS, DASHES, base_layout
from nonuniform.report.run_timeline import STATES
from nonuniform.report.said import LANGUAGES, Language, Said, Verbatim
from nonuniform.report.shell import as_data, asset, page, render
from nonuniform.report.texts import load_texts

TILES = ("step", "loss", "rate", "time", "generation")
CHARTS = ("loss", "degrees", "power")
KINDS = ("measured", "emulated", "unknown")
_STATUS = ("reading", "running", "done", "failed", "gone")


def live_html(name: str, lang: Language = "en") -> str:
    texts = load_texts()
    title = texts("run.live_title", name=name)
    charts = [_empty(name) for name in CHARTS]
    body = render(
        "live.html",
        texts,
        title=title,
        tiles=TILES,
        charts=charts,
        states=STATES,
        words=Markup(as_data(_words())),
    )
    return page(title, body, lang, texts, charts, live=asset("live.js"))


def _words() -> dict[str, Any]:
    """What the script says, and how it draws."""
    texts = load_texts()

    def both(said: Said) -> dict[str, str]:
        return {lang: said.text(lang) for lang in LANGUAGES}

    def both_bare(key: str) -> dict[str, str]:
        return {lang: texts.words(key, lang) for lang in LANGUAGES}

    return {
        "status": {name: both(texts(f"run.status.{name}")) for name in _STATUS},
        "state": {name: both(texts(f"run.state.{name}")) for name in STATES},
        "replica": both_bare("run.word.replica"),
        "lost": both(texts("run.event.failed")),
        "joined": both(texts("run.event.joined")),
        "loss": both(texts("run.axis.loss")),
        "step": both(texts("run.axis.step")),
        "time": both(texts("run.table.time")),
        "alt": {name: both_bare(f"live.alt_{name}") for name in ("none", *CHARTS)},
        "kind": {name: both(texts(f"kind.{name}")) for name in KINDS},
        "kind_note": {
            "measured": both(Verbatim("")),
            "emulated": both(texts("run.emulated")),
            "unknown": both(texts("live.kind_unknown")),
        },
        "colours": COLOURS,
        "dashes": DASHES,
    }


def _empty(name: str) -> Chart:
    texts = load_texts()
    layout = base_layout(texts("run.axis.step"), texts(f"run.axis.{name}"))
    layout["height"] = 320
    if name != "loss":
        layout["yaxis"]["rangemode"] = "tozero"
    nothing = Table(Verbatim(""), (), ())
    return Chart(
        name=f"live-{name}",
        title=texts(f"run.chart.{name}"),
        alt=texts("live.alt_none"),
        spec={"data": [], "layout": layout},
        table=nothing,
        kind=Verbatim(""),
    )
