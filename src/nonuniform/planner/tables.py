"""The numbers of a summary as flat tables.

In: the summary. Out: rows by name of the table. DESIGN "Outside contract". Works nothing out: a
figure becomes three columns, its value and the ends of its interval.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Rows = list[dict[str, Any]]


def tables_of(summary: Mapping[str, Any]) -> dict[str, Rows]:
    """Tables without rows are left out."""
    charts = summary["charts"]
    found = {
        "jobs": [_flat(job, leave=("policies",)) for job in summary["jobs"]],
        "policies": [
            {"job": job["name"], "policy": name, **_flat(own, leave=("needs",))}
            for job in summary["jobs"]
            for name, own in job["policies"].items()
        ],
        "portfolio": [_flat(row) for row in summary["portfolio"]],
        "changes": [_flat(row) for row in summary["recommendation"]["changes"]],
        "alternatives": [_flat(row) for row in summary["recommendation"]["alternatives"]],
        "path": [_flat(row, leave=("gate",)) for row in summary["path"]],
        "prices": [_flat(row) for row in summary["money"]["prices"]],
        "facts": [_flat(row) for row in summary["facts"]],
        "measured": [_flat(row) for row in summary["measured"]],
        "frontier": [_flat(row) for row in charts["frontier"]],
        "throughput": _series("failed_share", charts["throughput"], "policies"),
        "spares": _series("domains", charts["spares"], "interrupted"),
        "year": _year(charts["year"]),
        "heatmap": _heat(charts["heatmap"]),
    }
    return {name: rows for name, rows in found.items() if rows}


def is_figure(value: Any) -> bool:
    return isinstance(value, Mapping) and {"value", "unit", "kind"} <= value.keys()


def _flat(row: Mapping[str, Any], leave: tuple[str, ...] = (), before: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in row.items():
        name = f"{before}{key}"
        if key in leave:
            continue
        if is_figure(value):
            found[name] = value["value"]
            found[f"{name}_low"], found[f"{name}_high"] = value.get("low"), value.get("high")
        elif isinstance(value, Mapping):
            found |= _flat(value, leave, f"{name}_")
        elif not isinstance(value, list):
            found[name] = value
    return found


def _series(axis: str, chart: Mapping[str, Any], group: str) -> Rows:
    return [
        {axis: at, **{name: values[place] for name, values in chart[group].items()}}
        for place, at in enumerate(chart[axis])
    ]


def _year(chart: Mapping[str, Any]) -> Rows:
    rows = _series("time_h", chart, "throughput")
    for row, hit in zip(rows, chart["domains_hit"], strict=True):
        row["domains_hit"] = hit
    return rows


def _heat(chart: Mapping[str, Any]) -> Rows:
    return [
        {"degree": degree, "rate_per_gpu_day": rate, "loss": loss}
        for degree, losses in zip(chart["degrees"], chart["loss"], strict=True)
        for rate, loss in zip(chart["rates"], losses, strict=True)
    ]
