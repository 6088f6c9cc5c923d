"""The charts of a run and of several runs.

In: `RunData`. Out: `Chart`s: plain dicts for plotly, words in both languages, and the table
behind each. Long runs are thinned such that peaks stay. Colours stand out from the page and are
told apart with any colour vision; dashes and names say the same once more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nonuniform.report.blocks import Chart, Table, every_nth
from nonuniform.report.run_data import RunData, StepPoint
from nonuniform.report.run_goodput import REASONS
from nonuniform.report.run_timeline import STATES, GpuLine
from nonuniform.report.said import Both, Said, Verbatim
from nonuniform.report.texts import load_texts

COLOURS = ("#0072b2", "#b35900", "#00785a", "#a6467f", "#4a525c", "#8a6d00", "#5a3fa0", "#8f2d14")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
OF_REASON = {
    "useful": "#00785a", "validation": "#2b8cbe", "skipped": "#7a6000", "starting": "#5f6873",
    "detect": "#8f2d14", "regroup": "#d55e00", "transfer": "#b37a00", "redone": "#b8649a",
    "stalled": "#4b1d3f", "saving": "#5a3fa0", "open": "#868f9a",
}  # fmt: skip
OF_STATE = {
    "working": "#00785a", "joining": "#b37a00", "spare": "#2b8cbe", "failed": "#8f2d14",
    "drained": "#a6467f", "absent": "#868f9a",
}  # fmt: skip
PATTERNS = {
    "failed": "x",
    "drained": "/",
    "joining": ".",
    "spare": "-",
    "transfer": ".",
    "redone": "x",
    "stalled": "/",
}
POINTS = 2000
LINES = len(COLOURS)
GPUS_SHOWN = 128


def run_charts(data: RunData) -> list[Chart]:
    """Those that the run has something to show for."""
    charts = [loss_chart([data])] if data.steps else []
    if data.replicas:
        charts += [by_replica(data, "degrees"), by_replica(data, "shares")]
    if data.has_power:
        charts.append(by_replica(data, "power_w"))
    charts.append(goodput_chart([data]))
    if data.gpus:
        charts.append(gpu_chart(data))
    return charts


def loss_chart(runs: Sequence[RunData]) -> Chart:
    t = load_texts()
    traces = []
    for place, run in enumerate(runs):
        points = thinned([point for point in run.steps if point.loss is not None])
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": escaped(run.name),
                "x": [point.step for point in points],
                "y": [point.loss for point in points],
                "customdata": [round(point.time_s, 3) for point in points],
                "hovertemplate": "%{x}: %{y:.4f} (%{customdata} s)",
                "line": line_style(place),
            }
        )
    if len(runs) == 1:
        traces += _incidents(runs[0])
    layout = base_layout(t("run.axis.step"), t("run.axis.loss"))
    return Chart(
        name="loss",
        title=t("run.chart.loss"),
        alt=t("run.alt.loss", runs=len(runs), steps=max(len(run.steps) for run in runs)),
        spec={"data": traces, "layout": layout},
        table=_step_table(runs),
        kind=kind_of(runs),
        note=t("run.note.thinned", shown=POINTS) if any(_is_long(run) for run in runs) else None,
    )


def _is_long(run: RunData) -> bool:
    return len(run.steps) > POINTS


def _incidents(run: RunData) -> list[dict[str, Any]]:
    """Marks on the curve where GPUs went and came."""
    losses = {point.step: point.loss for point in run.steps if point.loss is not None}
    out = []
    for kind, symbol, colour in (("failed", "x", "#8f2d14"), ("joined", "circle", "#00785a")):
        events = [event for event in run.events if event.kind == kind and event.step in losses]
        if events:
            out.append(
                {
                    "type": "scatter",
                    "mode": "markers",
                    "name": load_texts().known("run.event", kind).chart(),
                    "x": [event.step for event in events],
                    "y": [losses[event.step or 0] for event in events],
                    "text": [escaped(event.gpu) for event in events],
                    "hovertemplate": "GPU %{text}, %{x}",
                    "marker": {"symbol": symbol, "size": 11, "color": colour},
                }
            )
    return out


def by_replica(data: RunData, what: str) -> Chart:
    """`what`: a field of `StepPoint` that is told by replica."""
    t = load_texts()
    points = changes(data.steps, what) if what != "power_w" else thinned(data.steps)
    series = [[_at(getattr(point, what), r) for point in points] for r in range(data.replicas)]
    steps = [point.step for point in points]
    name = {"degrees": "degrees", "shares": "shares", "power_w": "power"}[what]
    layout = base_layout(t("run.axis.step"), t(f"run.axis.{name}"))
    if data.replicas <= LINES:
        traces = [_replica_line(r, steps, series[r]) for r in range(data.replicas)]
        layout["yaxis"]["rangemode"] = "tozero"
    else:
        traces = [{"type": "heatmap", "x": steps, "z": series, "colorscale": "Cividis"}]
        layout["yaxis"]["title"]["text"] = t("run.axis.replica").chart()
    shown = range(min(data.replicas, 16))
    rows = [(_plain(point.step), *(_plain(_at(getattr(point, what), r)) for r in shown))
            for point in (points[i] for i in every_nth(len(points)))]  # fmt: skip
    head = (t("run.axis.step"), *(t("run.word.replica", number=r) for r in shown))
    return Chart(
        name=name,
        title=t(f"run.chart.{name}"),
        alt=t(f"run.alt.{name}", replicas=data.replicas),
        spec={"data": traces, "layout": layout},
        table=Table(t(f"run.chart.{name}"), head, tuple(rows), (True,) * len(head)),
        kind=kind_of([data]),
    )


def _replica_line(replica: int, steps: list[int], values: list[float]) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": load_texts()("run.word.replica", number=replica).chart(),
        "x": steps,
        "y": values,
        "line": line_style(replica) | {"shape": "hv", "width": 3},
        "opacity": 0.85,
    }


def goodput_chart(runs: Sequence[RunData]) -> Chart:
    """One bar for each run, cut by reason; the parts of a bar add up to the run's time."""
    t = load_texts()
    names = [escaped(run.name) for run in runs]
    used = [r for r in REASONS if any(run.goodput.seconds[r] > 0 for run in runs)]
    traces = [
        {
            "type": "bar",
            "orientation": "h",
            "name": t(f"run.reason.{reason}").chart(),
            "y": names,
            "x": [run.goodput.seconds[reason] for run in runs],
            "marker": _fill(OF_REASON[reason], reason),
            "hovertemplate": "%{x:.2f} s",
        }
        for reason in used
    ]
    layout = base_layout(t("run.axis.time"), None) | {
        "barmode": "stack",
        "height": 210 + 45 * len(runs),
    }
    layout["xaxis"]["rangemode"] = "tozero"
    layout["yaxis"] |= {
        "autorange": "reversed",
        "showticklabels": len(runs) > 1,
        "type": "category",
    }
    layout["legend"]["traceorder"] = "normal"
    rows = tuple(
        (t(f"run.reason.{r}"), *(_plain(run.goodput.seconds[r], 3) for run in runs)) for r in used
    )
    head = (t("run.word.reason"), *(Verbatim(run.name) for run in runs))
    return Chart(
        name="goodput",
        title=t("run.chart.goodput"),
        alt=t("run.alt.goodput", runs=len(runs)),
        spec={"data": traces, "layout": layout},
        table=Table(t("run.table.seconds"), head, rows, (False,) + (True,) * len(runs)),
        kind=kind_of(runs),
        note=t("run.note.goodput"),
    )


def gpu_chart(data: RunData) -> Chart:
    """One line for each GPU; of very many only those to which something happened."""
    t = load_texts()
    lines = shown_gpus(data.gpus)
    names = [escaped(line.gpu) for line in lines]
    traces = [_state_bars(state, lines, names) for state in STATES]
    layout = base_layout(t("run.axis.time"), t("run.axis.gpu"))
    layout |= {"barmode": "overlay", "bargap": 0.15, "height": 150 + max(60, 18 * len(lines))}
    layout["xaxis"]["rangemode"] = "tozero"
    layout["yaxis"] |= {
        "autorange": "reversed",
        "type": "category",
        "categoryorder": "array",
        "categoryarray": names,
    }
    head = (t("run.axis.gpu"), *(t(f"run.state.{state}") for state in STATES))
    rows = tuple(
        (Verbatim(line.gpu), *(_plain(line.seconds(state), 2) for state in STATES))
        for line in lines
    )
    left_out = len(data.gpus) - len(lines)
    return Chart(
        name="gpus",
        title=t("run.chart.gpus"),
        alt=t("run.alt.gpus", gpus=len(data.gpus)),
        spec={"data": [trace for trace in traces if trace["x"]], "layout": layout},
        table=Table(t("run.table.gpu_seconds"), head, rows, (False,) + (True,) * len(STATES)),
        kind=kind_of([data]),
        note=t("run.note.gpus", count=left_out) if left_out else None,
    )


def shown_gpus(lines: Sequence[GpuLine]) -> list[GpuLine]:
    if len(lines) <= GPUS_SHOWN:
        return list(lines)
    quiet = {"working", "joining"}
    marked = [line for line in lines if {span.state for span in line.spans} - quiet]
    return (marked or list(lines))[:GPUS_SHOWN]


def _state_bars(state: str, lines: Sequence[GpuLine], names: Sequence[str]) -> dict[str, Any]:
    spans = [
        (name, span)
        for name, line in zip(names, lines, strict=True)
        for span in line.spans
        if span.state == state
    ]
    return {
        "type": "bar",
        "orientation": "h",
        "name": load_texts()(f"run.state.{state}").chart(),
        "y": [name for name, _ in spans],
        "x": [span.length_s for _, span in spans],
        "base": [span.start_s for _, span in spans],
        "marker": _fill(OF_STATE[state], state),
        "hovertemplate": "%{y}: %{base:.2f} s, %{x:.2f} s",
    }


def _fill(colour: str, name: str) -> dict[str, Any]:
    pattern = PATTERNS.get(name)
    fill: dict[str, Any] = {"color": colour}
    if pattern:
        fill["pattern"] = {"shape": pattern, "bgcolor": colour, "fgcolor": "#fff", "solidity": 0.25}
    return fill


def thinned(points: Sequence[StepPoint], count: int = POINTS) -> list[StepPoint]:
    """At most `count`: of each stretch of a long run the point with the lowest and that with the
    highest loss, and always the last one."""
    if len(points) <= count:
        return list(points)
    size = -(-len(points) // (count // 2 - 1))
    keep = {len(points) - 1}
    for start in range(0, len(points), size):
        places = range(start, min(start + size, len(points)))
        keep |= {min(places, key=lambda i: points[i].loss or 0.0)}
        keep |= {max(places, key=lambda i: points[i].loss or 0.0)}
    return [points[i] for i in sorted(keep)]


def changes(points: Sequence[StepPoint], what: str) -> list[StepPoint]:
    """The first, the last, and those that differ from the one before: all that a stair needs."""
    last = len(points) - 1
    kept = [
        point
        for place, point in enumerate(points)
        if place in (0, last) or getattr(point, what) != getattr(points[place - 1], what)
    ]
    return [kept[i] for i in every_nth(len(kept), POINTS)]


def _step_table(runs: Sequence[RunData]) -> Table:
    t = load_texts()
    losses = [{point.step: point.loss for point in run.steps} for run in runs]
    steps = sorted(set().union(*losses))
    rows = tuple(
        (_plain(steps[i]), *(_plain(of_run.get(steps[i]), 4) for of_run in losses))
        for i in every_nth(len(steps))
    )
    head = (t("run.axis.step"), *(Verbatim(run.name) for run in runs))
    return Table(t("run.chart.loss"), head, rows, (True,) * len(head))


def base_layout(x: Said, y: Said | None) -> dict[str, Any]:
    axis = {"gridcolor": "#e3e7ec", "zerolinecolor": "#c9d0d8", "automargin": True}
    return {
        "height": 380,
        "margin": {"l": 64, "r": 16, "t": 12, "b": 56},
        "meta": {"narrow_margin": {"l": 44, "r": 6}},
        "font": {"color": "#1b1f24", "size": 13},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "xaxis": {**axis, "title": {"text": x.chart()}},
        "yaxis": {**axis, "title": {"text": y.chart() if y else ""}},
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom"},
        "hovermode": "closest",
    }


def line_style(place: int) -> dict[str, Any]:
    return {"color": COLOURS[place % LINES], "dash": DASHES[place % len(DASHES)], "width": 2}


def kind_of(runs: Sequence[RunData]) -> Said:
    """The weakest of them labels the chart."""
    kinds = {run.kind for run in runs}
    weakest = next(kind for kind in ("unknown", "emulated", "measured") if kind in kinds)
    return load_texts().known("kind", weakest)


def escaped(name: str) -> str:
    """plotly reads some tags in names."""
    return Verbatim(name).chart()["@en"]


def _at(values: Sequence[float], place: int) -> float:
    return values[place] if place < len(values) else 0


def _plain(value: float | None, digits: int = 0) -> Said:
    if value is None:
        return Both("none", "なし")
    shown = f"{value:,.{digits}f}" if digits else f"{value:,.10g}"
    return Both(shown, shown)
