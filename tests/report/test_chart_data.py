"""What the charts of a plan draw is what the summary has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from nonuniform.report.charts import plan_charts
from nonuniform.report.plan_page import top_of
from nonuniform.report.texts import load_texts

Build = Callable[..., dict[str, Any]]


@pytest.fixture
def drawn(plan_summary: Build) -> tuple[dict[str, Any], dict[str, list[dict[str, Any]]]]:
    """The charts of summary.json, and what is drawn of each."""
    summary = plan_summary()
    charts = plan_charts(top_of(summary), load_texts())
    return summary["charts"], {chart.name: chart.spec["data"] for chart in charts}


Drawn = tuple[dict[str, Any], dict[str, list[dict[str, Any]]]]


@pytest.mark.parametrize(
    ("chart", "lines", "x"),
    [("throughput", "policies", "failed_share"), ("spares", "interrupted", "domains"),
     ("year", "throughput", "time_h")],
)  # fmt: skip
def test_lines(drawn: Drawn, chart: str, lines: str, x: str) -> None:
    known, data = drawn
    found = {str(trace["name"]): trace for trace in data[chart]}  # a word has two languages
    for name, values in known[chart][lines].items():
        assert found[name]["x"] == known[chart][x]
        assert found[name]["y"] == values
    others = [trace["y"] for name, trace in found.items() if name not in known[chart][lines]]
    assert others == ([known["year"]["domains_hit"]] if chart == "year" else [])


def test_the_heat_map(drawn: Drawn) -> None:
    known, data = drawn
    (trace,) = data["heatmap"]
    assert trace["x"] == [str(degree) for degree in known["heatmap"]["degrees"]]
    for row, rate in enumerate(known["heatmap"]["rates"]):
        assert trace["z"][row] == [losses[row] for losses in known["heatmap"]["loss"]], rate


def test_the_map_of_domains(drawn: Drawn) -> None:
    known, data = drawn
    (trace,) = data["map"]
    cells = [cell for row in trace["z"] for cell in row if cell is not None]
    assert cells == known["map"]["lost"]
    assert any(cells)


def test_the_frontier(drawn: Drawn) -> None:
    known, data = drawn
    points = {
        (trace["name"], *point): size
        for trace in data["frontier"]
        for *point, size in zip(
            trace["x"], trace["y"], trace["customdata"], trace["marker"]["size"], strict=True
        )
    }
    assert len(points) == len(known["frontier"])
    for point in known["frontier"]:
        key = (point["policy"], point["cost"], point["throughput"], point["spare_domains"])
        assert (points[key] > 10) == point["best"]


def test_the_rack(drawn: Drawn) -> None:
    known, data = drawn
    ys = [trace["y"] for trace in data["rack"]]
    assert known["rack"]["power_w"] in ys
    assert known["rack"]["temperature_c"] in ys
    assert [known["rack"]["limit_c"]] * 2 in ys
