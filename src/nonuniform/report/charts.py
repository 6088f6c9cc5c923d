"""The charts of the plan page, as plain dicts that plotly draws.

In: `charts` of a summary as a `Place`. Out: `Chart`s, each with words and the table of its data.
Colours are told apart by the colour-blind, and every line also has its own dash and marker. Works
nothing out: what a chart shows is what the summary holds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

from nonuniform.report.blocks import Chart, Table, every_nth
from nonuniform.report.figures import Place
from nonuniform.report.said import Said, Verbatim, for_chart
from nonuniform.report.texts import Texts

# Darker than usual, for a contrast of 3 on white; in an order in which neighbours differ most.
COLOURS = ("#4a525c", "#b3470f", "#0b62a4", "#00705a", "#8a3b7d", "#7a5c00")
DASHES = ("solid", "dash", "solid", "dashdot", "dot", "longdash")
MARKERS = ("circle", "square", "diamond", "triangle-up", "cross", "x")
# From light to darker in one hue: reads in grey too, and black text can be read on all of it.
SCALE = [[0.0, "#f2f5f8"], [0.5, "#a9c8e4"], [1.0, "#5b93c4"]]
FONT = (
    'system-ui, -apple-system, "Segoe UI", Roboto, "Hiragino Sans", "Yu Gothic UI", '
    '"Noto Sans CJK JP", "Noto Sans JP", sans-serif'
)
GRID, INK = "#dde2e8", "#1b1f24"
# Above, where no title of an axis is in its way however many lines it takes.
LEGEND = {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "xanchor": "left"}


def layout(**more: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "font": {"family": FONT, "size": 13, "color": INK},
        "paper_bgcolor": "#ffffff",
        "plot_bgcolor": "#ffffff",
        "margin": {"l": 70, "r": 20, "t": 12, "b": 60},
        "meta": {"narrow_margin": {"l": 52, "r": 8}},
        "height": 400,
        "hovermode": "closest",
        "showlegend": True,
        "legend": LEGEND,
    }
    return base | more


def axis(title: Said, **more: Any) -> dict[str, Any]:
    return {
        "title": {"text": title.chart(), "standoff": 8},
        "gridcolor": GRID,
        "linecolor": GRID,
        "zeroline": False,
        "automargin": True,
    } | more


def style(index: int) -> dict[str, Any]:
    """Colour, dash and marker of the line with this number."""
    return {
        "line": {"color": COLOURS[index % len(COLOURS)], "dash": DASHES[index % len(DASHES)],
                 "width": 2.5},
        "marker": {"color": COLOURS[index % len(COLOURS)], "symbol": MARKERS[index % len(MARKERS)],
                   "size": 8},
    }  # fmt: skip


def _kind(texts: Texts, kind: str = "simulated") -> Said:
    return texts.known("kind", kind)


def plan_charts(summary: Place, texts: Texts) -> list[Chart]:
    """All that the summary has; a chart whose data is null is left out."""
    charts = summary["charts"]
    order = [name for name, _ in summary["jobs"][0]["policies"].items()]
    makers = (
        ("throughput", throughput), ("heatmap", heatmap), ("year", year), ("spares", spares),
        ("frontier", partial(frontier, order=order)), ("map", domain_map), ("rack", rack),
    )  # fmt: skip
    found = ((place, maker) for name, maker in makers if (place := charts.get(name)) is not None)
    return [maker(place, texts) for place, maker in found]


def throughput(place: Place, texts: Texts) -> Chart:
    lines = place["policies"].items()
    data = [
        {"type": "scatter", "mode": "lines+markers", "name": for_chart(name),
         "x": place["failed_share"].data, "y": line.data, **style(index)}
        for index, (name, line) in enumerate(lines)
    ]  # fmt: skip
    rows = tuple(
        (share.figure("1").bare(), *(line[at].figure("1").bare() for _, line in lines))
        for at, share in enumerate(place["failed_share"])
    )
    spec = {
        "data": data,
        "layout": layout(
            xaxis=axis(texts("chart.throughput.x"), tickformat=".1%"),
            yaxis=axis(texts("chart.throughput.y"), tickformat=".0%"),
        ),
    }
    head = (texts("chart.throughput.x"), *(Verbatim(name) for name, _ in lines))
    return _chart("throughput", texts, spec, head, rows)


def heatmap(place: Place, texts: Texts) -> Chart:
    degrees, rates = list(place["degrees"]), list(place["rates"])
    rate_words = [rate.figure().bare() for rate in rates]
    z = [[row[at] for row in place["loss"].data] for at in range(len(rates))]
    spec = {
        "data": [{
            "type": "heatmap", "x": [str(degree.data) for degree in degrees],
            "y": [words.chart() for words in rate_words], "z": z, "colorscale": SCALE, "zmin": 0,
            "xgap": 2, "ygap": 2, "texttemplate": "%{z:.1%}", "textfont": {"color": INK},
            "hovertemplate": "%{x}, %{y}: %{z:.2%}<extra></extra>", "hoverongaps": False,
            "colorbar": {"title": {"text": texts("chart.heatmap.z").chart()}, "tickformat": ".0%"},
        }],
        "layout": layout(
            xaxis=axis(texts("chart.heatmap.x"), type="category"),
            yaxis=axis(texts("chart.heatmap.y"), type="category"),
            showlegend=False,
        ),
    }  # fmt: skip
    rows = tuple(
        (rate_words[at], *(place["loss"][column][at].figure("1").bare()
                           for column in range(len(degrees))))
        for at in range(len(rates))
    )  # fmt: skip
    head = (texts("chart.heatmap.y"), *(degree.figure().bare() for degree in degrees))
    return _chart("heatmap", texts, spec, head, rows, policy=place["policy"].name())


def year(place: Place, texts: Texts) -> Chart:
    lines = place["throughput"].items()
    days = {"x": place["time_h"].data, "xaxis": "x"}
    hit = {
        "type": "scatter", "mode": "lines", "name": texts("chart.year.hit").chart(), **days,
        "y": place["domains_hit"].data, "yaxis": "y2", "line": {"color": INK, "width": 1,
        "shape": "hv"}, "fill": "tozeroy", "fillcolor": "#d5dbe2",
    }  # fmt: skip
    data = [hit] + [
        {"type": "scatter", "mode": "lines", "name": for_chart(name), **days, "y": line.data,
         "line": style(index)["line"] | {"width": 1.5}}
        for index, (name, line) in enumerate(lines)
    ]  # fmt: skip
    spec = {
        "data": data,
        "layout": layout(
            height=520,
            xaxis=axis(texts("chart.year.time"), anchor="y"),
            yaxis=axis(texts("chart.year.y"), tickformat=".0%", domain=[0, 0.6]),
            yaxis2=axis(texts("chart.year.hit"), domain=[0.68, 1], anchor="x"),
        ),
    }
    rows = tuple(
        (place["time_h"][at].figure("h").bare(), place["domains_hit"][at].figure().bare(),
         *(line[at].figure("1").bare() for _, line in lines))
        for at in every_nth(len(place["time_h"].data))
    )  # fmt: skip
    head = (texts("chart.year.time"), texts("chart.year.hit"), *(Verbatim(n) for n, _ in lines))
    return _chart("year", texts, spec, head, rows, note=texts("shell.some_rows"))


def spares(place: Place, texts: Texts) -> Chart:
    lines = place["interrupted"].items()
    data = [
        {"type": "scatter", "mode": "lines+markers", "name": for_chart(name),
         "x": place["domains"].data, "y": line.data, **style(index)}
        for index, (name, line) in enumerate(lines)
    ]  # fmt: skip
    spec = {
        "data": data,
        "layout": layout(
            xaxis=axis(texts("chart.spares.x"), **_whole(place["domains"].data)),
            yaxis=axis(texts("chart.spares.y"), tickformat=".0%", rangemode="tozero"),
        ),
    }
    rows = tuple(
        (place["domains"][at].figure().bare(),
         *(line[at].figure("1").bare() for _, line in lines))
        for at in every_nth(len(place["domains"].data))
    )  # fmt: skip
    head = (texts("chart.spares.x"), *(Verbatim(name) for name, _ in lines))
    return _chart("spares", texts, spec, head, rows)


def _whole(numbers: Sequence[float]) -> dict[str, Any]:
    """Few whole numbers, or only one, would get fractions between them."""
    return {"dtick": 1, "range": [-0.5, max(numbers) + 0.5]} if max(numbers) < 5 else {}


def frontier(place: Place, texts: Texts, order: Sequence[str] = ()) -> Chart:
    """`order`: in which the other charts give the policies their colours."""
    points = list(place)
    names = list(dict.fromkeys((*order, *(point["policy"].words() for point in points))))
    spec = {
        "data": [
            _points(name, index, points)
            for index, name in enumerate(names)
            if any(point["policy"].words() == name for point in points)
        ],
        "layout": layout(
            xaxis=axis(texts("chart.frontier.x", currency=place.currency)),
            yaxis=axis(texts("chart.frontier.y"), tickformat=".1%"),
        ),
    }
    rows = tuple(
        (
            point["policy"].name(),
            point["spare_domains"].figure("domains").bare(),
            point["cost"].figure("money/year").bare(),
            point["throughput"].figure("1").bare(),
            texts("plan.yes" if point["best"].data else "plan.no"),
        )
        for point in points
    )
    head = (
        texts("plan.table.policy"), texts("plan.table.spare_domains"),
        texts("chart.frontier.x", currency=place.currency), texts("chart.frontier.y"),
        texts("chart.frontier.best"),
    )  # fmt: skip
    numeric = (False, True, True, True, False)
    return _chart("frontier", texts, spec, head, rows, numeric=numeric)


def _points(name: str, index: int, points: Sequence[Place]) -> dict[str, Any]:
    own = [point.data for point in points if point["policy"].words() == name]
    symbol = MARKERS[index % len(MARKERS)]
    colour = COLOURS[index % len(COLOURS)]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": for_chart(name),
        "x": [point["cost"] for point in own],
        "y": [point["throughput"] for point in own],
        "customdata": [point["spare_domains"] for point in own],
        "hovertemplate": "%{x:,.3s}, %{y:.2%} (+%{customdata})",
        "marker": {
            "symbol": [symbol if point["best"] else f"{symbol}-open" for point in own],
            "color": colour,
            "opacity": 1,
            "size": [13 if point["best"] else 9 for point in own],
            "line": {"color": colour, "width": 2},
        },
    }


def domain_map(place: Place, texts: Texts) -> Chart:
    lost: list[float] = place["lost"].data
    width = _map_width(len(lost))
    cells = [lost[start : start + width] for start in range(0, len(lost), width)]
    numbers = [list(range(start, min(start + width, len(lost))))
               for start in range(0, len(lost), width)]  # fmt: skip
    hover = "%{customdata}: %{z}<extra></extra>"
    blank = {"showgrid": False, "ticks": "", "showticklabels": False, "zeroline": False,
             "fixedrange": True}  # fmt: skip
    spec = {
        "data": [{
            "type": "heatmap", "z": [row + [None] * (width - len(row)) for row in cells],
            "customdata": [row + [None] * (width - len(row)) for row in numbers],
            "colorscale": _map_scale(), "zmin": 0, "zmax": max(1, *lost),
            "xgap": 2, "ygap": 2, "hovertemplate": hover, "hoverongaps": False,
            "colorbar": {"title": {"text": texts("chart.map.lost").chart()}, "tickformat": "d",
                         "dtick": max(1, round(max(lost) / 6))},
        }],
        "layout": layout(
            height=max(220, min(640, 24 * len(cells) + 60)), showlegend=False,
            margin={"l": 8, "r": 8, "t": 8, "b": 8},
            xaxis=blank | {"constrain": "domain"},
            yaxis=blank | {"autorange": "reversed", "scaleanchor": "x", "constrain": "domain"},
        ),
    }  # fmt: skip
    rows = tuple(
        (Verbatim(str(number)), place["lost"][number].figure("GPU").bare())
        for number, gone in enumerate(lost)
        if gone > 0
    )
    head = (texts("chart.map.domain"), texts("chart.map.lost"))
    return _chart(
        "map", texts, spec, head, rows, note=texts("chart.map.note"),
        domain=place["domain"].figure("GPU").bare(),
    )  # fmt: skip


def _map_width(domains: int) -> int:
    """Columns: wide enough that the map is broader than high."""
    return max(1, min(domains, max(16, round(math.sqrt(domains * 2.2)))))


def _map_scale() -> list[list[Any]]:
    """A whole domain is pale; one lost GPU stands out already."""
    return [[0.0, "#e6ebf0"], [1e-6, "#f0b27a"], [0.5, "#b3470f"], [1.0, "#5c1d00"]]


def rack(place: Place, texts: Texts) -> Chart:
    time = place["time_s"].data
    ends = [time[0], time[-1]]
    solid = {"width": 2.5}
    limit = {"color": "#a02020", "dash": "dash", "width": 2}

    def line(key: str, x: Any, y: Any, look: dict[str, Any], yaxis: str) -> dict[str, Any]:
        return {"type": "scatter", "mode": "lines", "name": texts(f"chart.rack.{key}").chart(),
                "x": x, "y": y, "line": look, "yaxis": yaxis}  # fmt: skip

    spec = {
        "data": [
            line("power", time, place["power_w"].data, solid | {"color": COLOURS[2]}, "y2"),
            line("budget", ends, [place["budget_w"].data] * 2, limit, "y2"),
            line("temperature", time, place["temperature_c"].data,
                 solid | {"color": COLOURS[1]}, "y"),
            line("limit", ends, [place["limit_c"].data] * 2, limit | {"dash": "dot"}, "y"),
        ],
        "layout": layout(
            height=520,
            xaxis=axis(texts("chart.rack.x"), anchor="y"),
            yaxis=axis(texts("chart.rack.temperature"), domain=[0, 0.46]),
            yaxis2=axis(texts("chart.rack.power"), domain=[0.54, 1], anchor="x"),
        ),
    }  # fmt: skip
    rows = tuple(
        (place["time_s"][at].figure().bare(), place["power_w"][at].figure("W").bare(),
         place["temperature_c"][at].figure("degC").bare())
        for at in every_nth(len(time))
    )  # fmt: skip
    head = (texts("chart.rack.x"), texts("chart.rack.power"), texts("chart.rack.temperature"))
    kind = place.get("kind")
    return _chart(
        "rack", texts, spec, head, rows, note=texts("shell.some_rows"),
        kind=_kind(texts, kind.words()) if kind else None,
    )  # fmt: skip


def _chart(
    name: str, texts: Texts, spec: dict[str, Any], head: tuple[Said, ...],
    rows: tuple[tuple[Said, ...], ...], note: Said | None = None, kind: Said | None = None,
    numeric: tuple[bool, ...] | None = None, **gaps: Said | str,
) -> Chart:  # fmt: skip
    title = texts(f"chart.{name}.title")
    table = Table(title, head, rows, numeric or tuple(True for _ in head))
    return Chart(
        name, title, texts(f"chart.{name}.alt", **gaps), spec, table, kind or _kind(texts), note
    )
