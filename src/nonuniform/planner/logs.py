"""A failure log of which nobody said how it is to be read.

In: a file, the fleet. Out: `FoundLog`: its trace, what it was taken for as facts, and whether by
its own words the simulator made it. DESIGN "Outside contract". `cluster/sources` reads; here only
columns and units are guessed by their names, and every guess is a fact that is marked. A
log that this does not understand is read by a scenario, which says all of it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nonuniform.cluster.fleet import Fleet
from nonuniform.cluster.sources.log_format import (
    Clock,
    Columns,
    FileKind,
    LogFormat,
    Nodes,
    TimeUnit,
)
from nonuniform.cluster.sources.read import read_log
from nonuniform.cluster.trace import Trace
from nonuniform.errors import BadInput
from nonuniform.planner.example_log import MARK

HEAD_BYTES = 100_000
REPAIR_H = 24.0
LEAST_HOURS = 1.0
FEW_HOURS, FEW_FAILURES = 24.0 * 14, 10
NAMES: dict[str, tuple[str, ...]] = {
    "node": ("node", "node_id", "node_name", "nodename", "hostname", "host", "server"),
    "gpu": ("gpu", "gpu_index", "gpu_id", "device"),
    "start": ("start", "start_time", "begin", "failed_at", "down_at", "from"),
    "end": ("end", "end_time", "until", "repaired_at", "recovered_at", "up_at", "to"),
    "cause": ("cause", "reason", "class", "error", "failure"),
}
UNITS: dict[str, TimeUnit] = {
    "day": "day", "days": "day", "h": "hour", "hour": "hour", "hours": "hour", "minutes": "minute",
    "s": "s", "seconds": "s", "ms": "ms",
}  # fmt: skip


@dataclass(frozen=True)
class FoundLog:
    trace: Trace
    facts: Sequence[dict[str, Any]]
    form: LogFormat
    example: bool


def find_log(path: Path, fleet: Fleet, skip_bad_rows: bool = False) -> FoundLog:
    head = _head(path)
    form, guessed = _form(path, head, fleet)
    try:
        trace, report = read_log(path, form, fleet, skip_bad_rows)
    except BadInput as error:
        text = str(error)
        raise BadInput(text if str(path) in text else f"{path}: {text}") from None
    facts = [
        _fact(path, "read", f"{report.rows:,} rows, {report.failures:,} failures"),
        *(_fact(path, name, text, True) for name, text in guessed),
        *(_fact(path, "read", text, True) for text in report.assumed),
        *(_fact(path, "left out", d.line("").removeprefix(": ")) for d in report.dropped),
    ]
    if trace.hours < LEAST_HOURS:
        raise BadInput(
            f"{path}: the log covers {trace.hours:.3g} h, which tells no rate; its window is told "
            "by [failures.log] of a scenario"
        )
    if trace.hours < FEW_HOURS or len(trace) < FEW_FAILURES:
        text = f"{len(trace):,} failures in {trace.hours / 24:.3g} days are little to go by"
        facts.append(_fact(path, "rates", text, True))
    example = MARK in head
    if example:
        facts.insert(0, _fact(path, "example", "made by the simulator from published rates"))
    return FoundLog(trace, facts, form, example)


def _fact(path: Path, name: str, text: str, assumed: bool = False) -> dict[str, Any]:
    return {"about": f"log {path.name}", "name": name, "text": text, "assumed": assumed, "note": ""}


def _head(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(HEAD_BYTES).decode("utf-8-sig", errors="replace")
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror}") from None


Guesses = list[tuple[str, str]]


def _form(path: Path, head: str, fleet: Fleet) -> tuple[LogFormat, Guesses]:
    kind = _kind(path, head)
    if kind in ("sacct", "scontrol", "xid"):
        guesses = [
            ("repair", f"{REPAIR_H:g} h where the log tells no end"),
            ("nodes", "names are scattered over the fleet"),
        ]
        expand = "" if kind == "xid" else "node"
        if expand:
            guesses.append(("extent", "a node that fails loses all its GPUs"))
        return LogFormat(
            format=kind, nodes=Nodes(order="random"), repair_h=REPAIR_H,
            expand="node" if expand else "", clock=Clock(year=2026) if kind == "xid" else Clock(),
        ), guesses  # fmt: skip
    if kind == "csv":
        return _of_table(path, head, fleet)
    return LogFormat(format=kind, expand="node", nodes=Nodes(order="random")), [
        ("columns", "node, start, end"),
        ("extent", "a node that fails loses all its GPUs"),
        ("nodes", "names are scattered over the fleet"),
    ]


def _kind(path: Path, head: str) -> FileKind:
    suffixes: dict[str, FileKind] = {
        ".parquet": "parquet", ".pq": "parquet", ".jsonl": "jsonl", ".ndjson": "jsonl",
        ".json": "json",
    }  # fmt: skip
    if path.suffix.lower() in suffixes:
        return suffixes[path.suffix.lower()]
    if "NVRM: Xid" in head:
        return "xid"
    if head.lstrip().startswith("NodeName="):
        return "scontrol"
    first = head.lstrip().splitlines()[0] if head.strip() else ""
    if first.startswith(("JobID", "NodeName")) and ("|" in first or "  " in first):
        return "sacct"
    return "csv"


def _of_table(path: Path, head: str, fleet: Fleet) -> tuple[LogFormat, Guesses]:
    lines = [line for line in head.splitlines() if line.strip()]
    first = lines[0] if lines else ""
    delimiter = max(",;\t", key=first.count)
    header = [name.strip().strip('"') for name in first.split(delimiter)]
    found, units = _columns(header)
    if len(units) > 1:
        raise BadInput(
            f"{path}: {found['start']} and {found['end']} are in different units; expected one"
        )
    unit = next(iter(units), None)
    if "start" not in found or not ({"node", "gpu"} & found.keys()):
        raise BadInput(
            f"{path}: no columns that say what failed and when among {', '.join(header[:12])}; "
            "expected node or gpu, start, end; other names are told by [failures.log] of a scenario"
        )
    places = {key: header.index(name) for key, name in found.items()}
    rows = [line.split(delimiter) for line in lines[1:]]
    nodes = [row[places["node"]] for row in rows if "node" in places and len(row) == len(header)]
    order, said = _order(nodes, fleet)
    guesses: Guesses = [("columns", ", ".join(f"{key}: {name}" for key, name in found.items()))]
    if unit:
        guesses.append(("clock", f"times in units of a {unit}"))
    if nodes:
        guesses.append(("nodes", said))
    if "gpu" not in found:
        guesses.append(("extent", "a node that fails loses all its GPUs"))
    columns = Columns(
        node=found.get("node", ""), gpu=found.get("gpu", ""), start=found["start"],
        end=found.get("end", ""), cause=tuple(filter(None, [found.get("cause")])),
    )  # fmt: skip
    if not columns.end:
        raise BadInput(f"{path}: no column that says when a failure ended, such as end")
    return LogFormat(
        format="csv", columns=columns, clock=Clock(unit=unit or "iso"), nodes=order,
        expand="node", delimiter=delimiter,
    ), guesses  # fmt: skip


def _columns(header: Sequence[str]) -> tuple[dict[str, str], set[TimeUnit | None]]:
    """What each column is, by its name with or without a unit at its end; the units of times."""
    found: dict[str, str] = {}
    units: set[TimeUnit | None] = set()
    for name in header:
        plain, _, last = name.lower().rpartition("_")
        for key, names in NAMES.items():
            if key in found:
                continue
            if name.lower() in names:
                found[key] = name
                if key in ("start", "end"):
                    units.add(None)
            elif key in ("start", "end") and last in UNITS and plain in names:
                found[key] = name
                units.add(UNITS[last])
    return found, units


def _order(nodes: Sequence[str], fleet: Fleet) -> tuple[Nodes, str]:
    """By the number at the end of the names, where all have one that the fleet has."""
    numbers = [re.search(r"(\d+)$", name.strip().strip('"')) for name in nodes]
    if nodes and all(n and int(n[1]) < fleet.nodes and len(n[1]) < 7 for n in numbers):
        uuid = any(re.fullmatch(r"[0-9a-f]{8}-.*", name) for name in nodes)
        if not uuid:
            return Nodes(order="number"), "the digits at the end of a node's name are its number"
    return Nodes(order="random"), "names are scattered over the fleet"
