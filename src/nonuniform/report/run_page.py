"""The page of a training run, and that of several runs side by side.

In: `RunData`. Out: one HTML page in both languages, which `lang` it shows first. Every number
comes from `run_numbers` by its place, so it is in report.json too. Knows nothing of files.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from nonuniform.report.blocks import Chart, Table
from nonuniform.report.figures import Figure, Place
from nonuniform.report.run_charts import goodput_chart, loss_chart, run_charts
from nonuniform.report.run_data import EventRow, RunData
from nonuniform.report.run_goodput import REASONS
from nonuniform.report.run_numbers import compare_numbers, run_numbers
from nonuniform.report.said import Both, Joined, Language, Said, Verbatim
from nonuniform.report.shell import page, render
from nonuniform.report.texts import load_texts

FILE, COMPARISON_FILE = "report.json", "comparison.json"
MAIL, COMPARISON_MAIL = "report.md", "comparison.md"
EVENTS_SHOWN = 200
TILES = (
    "time",
    "useful",
    "typical_step",
    "tokens_per_s",
    "tokens_per_useful_s",
    "loss_last",
    "failures",
    "returns",
)
PARTS = ("detect", "regroup", "transfer", "redo", "total")
# Column -> its place among the numbers of a run.
COLUMNS = {
    "table.steps": "steps",
    "tile.time": "time",
    "table.useful": "useful",
    "table.failures": "failures",
    "table.pause": "pause",
    "table.loss": "loss_last",
    "table.rate": "tokens_per_s",
    "table.difference": "loss_difference",
}


@dataclass(frozen=True)
class Content:
    """What `run.html` shows, from top to bottom."""

    title: Said
    subtitle: Said
    notices: Sequence[Said] = ()
    says: Sequence[Said] = ()
    mood: str = ""
    tiles: Sequence[tuple[Said, Said]] = ()
    lead: Sequence[Table] = ()
    charts_title: Said | None = None
    charts: Sequence[Chart] = ()
    tables_title: Said | None = None
    remark: Said | None = None
    tables: Sequence[Table] = ()
    command: str = ""
    reproduce: Said | None = None

    def page(self, lang: Language) -> str:
        texts = load_texts()
        body = render("run.html", texts, **vars(self))
        return page(self.title, body, lang, texts, self.charts)


def run_html(data: RunData, lang: Language = "en") -> str:
    return run_content(data).page(lang)


def run_content(data: RunData) -> Content:
    t, place = load_texts(), Place(run_numbers(data), file=FILE)
    recoveries = [recovery_table(place)] if data.recoveries else []
    return Content(
        title=t("run.title", name=data.name),
        subtitle=_subtitle(place, FILE),
        notices=notices_of(data),
        says=sentences(data, place),
        mood={"done": "yes", "failed": "no", "unfinished": "unclear"}[data.status],
        tiles=[(t(f"run.tile.{name}"), place[name].figure()) for name in TILES],
        charts_title=t("run.charts"),
        charts=run_charts(data),
        tables_title=t("run.tables"),
        remark=None if data.recoveries else t("run.no_recoveries"),
        tables=[*recoveries, event_table(data.events)],
        command=f"nonuniform report {shlex.quote(str(data.folder))}",
        reproduce=t("run.reproduce_words", file=FILE, mail=MAIL),
    )


def compare_html(runs: Sequence[RunData], lang: Language = "en") -> str:
    return compare_content(runs).page(lang)


def compare_content(runs: Sequence[RunData]) -> Content:
    """The first run is the one that the others are compared with."""
    t, place = load_texts(), Place(compare_numbers(runs), file=COMPARISON_FILE)
    with_steps = [run for run in runs if run.steps]
    charts = [loss_chart(with_steps)] if with_steps else []
    charts.append(goodput_chart(runs))
    folders = " ".join(shlex.quote(str(run.folder)) for run in runs)
    return Content(
        title=t("run.compare_title", runs=len(runs)),
        subtitle=_subtitle(place, COMPARISON_FILE),
        notices=notices_of_several(runs),
        lead=[_runs_table(place), _reasons_table(place)],
        charts_title=t("run.charts"),
        charts=charts,
        command=f"nonuniform report {folders}",
        reproduce=t("run.reproduce_words", file=COMPARISON_FILE, mail=COMPARISON_MAIL),
    )


def notices_of(data: RunData) -> list[Said]:
    """What a reader must know before the first number."""
    t = load_texts()
    out: list[Said] = []
    if data.status == "unfinished":
        out.append(t("run.unfinished"))
    if len(data.sessions) > 1:
        steps = Joined(tuple(Verbatim(str(step)) for step in data.sessions[1:]))
        out.append(t("run.resumed", steps=steps))
    for file, lines in data.trouble:
        key = "run.missing" if lines == "missing" else "run.trouble"
        gaps = {} if lines == "missing" else {"lines": lines}
        out.append(t(key, file=file, **gaps))
    if data.kind == "emulated":
        out.append(t("run.emulated"))
    elif data.kind == "unknown":
        out.append(t("run.no_device"))
    return out


def notices_of_several(runs: Sequence[RunData]) -> list[Said]:
    """Each once, after the names of the runs that it is about."""
    names: dict[str, list[Said]] = {}
    notices: dict[str, Said] = {}
    for run in runs:
        for notice in notices_of(run):
            words = notice.text("en")
            notices[words] = notice
            names.setdefault(words, []).append(Verbatim(run.name))
    t = load_texts()
    return [
        t("run.of_runs", runs=Joined(tuple(names[words])), notice=notice)
        for words, notice in notices.items()
    ]


def sentences(data: RunData, place: Place) -> list[Said]:
    t = load_texts()
    known = {name: place[name].figure().bare() for name in ("steps", "time", "useful")}
    failed = {"reason": place["reason"].name()} if data.status == "failed" else {}
    out = [t(f"run.says.{data.status}", **known, **failed)]
    counts = {name: place[name].figure().bare() for name in ("failures", "returns")}
    if not data.count("failed"):
        out.append(t("run.says.quiet"))
    elif place["pause"].figure().quantity is None:
        out.append(t("run.says.losses_open", **counts))
    else:
        pause, longest = place["pause"].figure().bare(), place["pause_longest"].figure().bare()
        out.append(t("run.says.losses", **counts, pause=pause, longest=longest))
    if data.loss_last is None:
        out.append(t("run.says.no_loss"))
    else:
        loss, rate = place["loss_last"].figure().bare(), place["tokens_per_s"].figure().bare()
        out.append(t("run.says.loss", loss=loss, rate=rate))
    return out


def recovery_table(place: Place) -> Table:
    t = load_texts()
    names = ("step", "lost", "joined", *PARTS, "bytes")
    rows = tuple(
        (
            one["step"].figure().bare(),
            _gpus(one["lost"]),
            _gpus(one["joined"]),
            *(one[part].figure().bare() for part in (*PARTS, "bytes")),
        )
        for one in place["recoveries"]
    )
    numeric = (True, False, False, *(True,) * 6)
    head = tuple(t(f"run.table.{name}") for name in names)
    return Table(t("run.table.recoveries"), head, rows, numeric)


def _gpus(place: Place) -> Said:
    if not place.data:
        return load_texts()("figure.none")
    return Joined(tuple(one.name() for one in place))


def event_table(events: Sequence[EventRow]) -> Table:
    """The first ones and the last ones of a run with very many."""
    t = load_texts()
    half, count = EVENTS_SHOWN // 2, len(events)
    shown = events if count <= EVENTS_SHOWN else [*events[:half], *events[-half:]]
    rows = tuple(
        (
            Both(f"{event.time_s:,.2f}", f"{event.time_s:,.2f}"),
            Verbatim("" if event.step is None else str(event.step)),
            t.known("run.event", event.kind),
            Verbatim(event.gpu),
            Verbatim(event.reason),
        )
        for event in shown
    )
    head = tuple(t(f"run.table.{name}") for name in ("time", "step", "what", "gpu", "reason"))
    caption = t("run.table.events")
    if count > EVENTS_SHOWN:
        caption = t("run.table.some_events", shown=len(shown), count=count)
    marked = frozenset(i for i, event in enumerate(shown) if event.kind == "failed")
    return Table(caption, head, rows, (True, True), marked)


def _subtitle(place: Place, file: str) -> Said:
    return load_texts()("run.subtitle", version=place["version"].name(), file=file)


def _runs_table(place: Place) -> Table:
    t = load_texts()
    rows = tuple(
        (
            run["name"].name(),
            t.known("run.status", run["status"].words()),
            *(_cell(run, key) for key in COLUMNS.values()),
        )
        for run in place["runs"]
    )
    head = (t("run.word.run"), t("run.table.status"), *(t(f"run.{name}") for name in COLUMNS))
    return Table(t("run.table.runs"), head, rows, (False, False, *(True,) * len(COLUMNS)))


@dataclass(frozen=True)
class Tiny(Figure):
    """Of any size: only its magnitude matters."""

    def text(self, lang: Language) -> str:
        return super().text(lang) if self.value is None else f"{self.value:.1e}"

    def html(self, lang: Language) -> Markup:
        shown = Markup(
            '<span class="figure bare" data-figure="{}"><span class="value">{}</span></span>'
        )
        return shown.format(self.path, self.text(lang))


def _cell(run: Place, key: str) -> Figure:
    figure = run[key].figure().bare()
    if key != "loss_difference":
        return figure
    return Tiny(figure.path, figure.quantity, figure.kind, figure.source, "bare")


def _reasons_table(place: Place) -> Table:
    t = load_texts()
    runs = list(place["runs"])
    used = [
        reason
        for reason in REASONS
        if any(run["goodput"][reason]["seconds"].figure().value for run in runs)
    ]
    rows = tuple(
        (
            t(f"run.reason.{reason}"),
            *(run["goodput"][reason]["share"].figure().bare() for run in runs),
        )
        for reason in used
    )
    head = (t("run.word.reason"), *(run["name"].name() for run in runs))
    return Table(t("run.chart.goodput"), head, rows, (False, *(True,) * len(runs)))
