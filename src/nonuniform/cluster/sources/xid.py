"""GPUs that the NVIDIA driver reports lost, from a kernel log.

In: lines of a kernel log with their node's name ("NVRM: Xid (PCI:0000:3b:00): 79, ..."). Out:
failures of single GPUs, in hours, without an end: a kernel log does not tell of repairs. Knows
nothing of the fleet, but how many GPUs a node has.

Which Xids cost the GPU: those whose immediate action in NVIDIA's catalog is a reset of the GPU or a
restart of the machine, and 48 and 74, whose text there says that a reset is needed to clear them
("Analyzing Xid Errors with the Xid Catalog", docs.nvidia.com/deploy/xid-errors, columns for A100 to
GB200). Xid 154 says itself what is needed. Those that end only a program (13, 31, 43, 45, 94 ...)
and 144 to 150, whose sub-code decides, cost no GPU unless 154 says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from nonuniform.cluster.sources.bad_rows import ROW, Findings, counted
from nonuniform.cluster.sources.clock import read_times
from nonuniform.cluster.sources.log_format import LogFormat
from nonuniform.cluster.sources.pairing import FAILURE, in_order
from nonuniform.cluster.sources.slurm import Span
from nonuniform.cluster.sources.text_file import read_lines
from nonuniform.errors import BadInput

RECOVERY_CHANGED = 154
LOST_XIDS: dict[int, str] = {
    46: "GPU stopped processing",
    48: "double-bit ECC error",
    62: "micro-controller halt",
    64: "memory remapping failure",
    74: "NVLink error",
    79: "fallen off the bus",
    95: "uncontained memory error",
    109: "context switch timeout",
    110: "security fault",
    119: "GSP RPC timeout",
    120: "GSP error",
    136: "link training failed",
    140: "unrecovered ECC error",
    143: "GPU initialization error",
    155: "NVLink down",
    156: "resource retirement",
    158: "GPU fatal timeout",
    RECOVERY_CHANGED: "reset or reboot required",
}

_NEEDS_RESET = re.compile(
    r"\((?:GPU Reset Required|Node Reboot Required|Drain and Reset)\)\s*$", re.IGNORECASE
)
_PCI = r"(?:PCI:)?((?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2})(?:\.[0-9a-fA-F])?"
_XID = re.compile(rf"NVRM: Xid \({_PCI}[^)]*\):? ?(\d+)\b(.*)")
_GPU_AT = re.compile(rf"NVRM: GPU at {_PCI}\b")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MONTH = {name: number for number, name in enumerate(_MONTHS, start=1)}
_HEAD = re.compile(
    r"(?:<\d+>1? ?)?"
    r"(?:(?P<before>[\w.-]+): )?"
    r"(?:(?P<iso>\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\S*)"
    r"|(?P<month>[A-Z][a-z]{2}) +(?P<day>\d+) (?P<clock>\d\d:\d\d:\d\d(?:\.\d+)?)"
    r"|\[\w{3} (?P<dmonth>[A-Z][a-z]{2}) +(?P<dday>\d+)"
    r" (?P<dclock>\d\d:\d\d:\d\d) (?P<dyear>\d{4})\])"
    r"(?: (?P<host>[\w.-]+) kernel\b)?"
)


@dataclass(frozen=True)
class _Xid:
    line: int
    node: str
    time: str
    pci: str
    xid: int


def read_xid(
    path: Path, form: LogFormat, gpus_per_node: int, findings: Findings
) -> tuple[pl.DataFrame, Span]:
    """Lines without an Xid are left out and counted, and so are Xids that cost no GPU."""
    lines = read_lines(path, findings)
    numbered = lines.numbered()
    findings.rows = len(numbered) + len(lines.bad)
    lost_xids = frozenset(form.lost_xids or LOST_XIDS)
    dated = list(_dated(path, numbered, form, findings))
    lost = list(_lost(dated, lost_xids, form, findings))
    addresses = {
        (_node(head, form), _address(match[1]))
        for _, line, head, _ in dated
        for match in [_GPU_AT.search(line) or _XID.search(line)]
        if match is not None and _node(head, form)
    }
    indices = _indices(addresses, form.pci, gpus_per_node, findings)
    frame = _frame(lost, indices, form, findings)
    kind = f"more GPUs in its node than {gpus_per_node}, or one that is not in pci"
    frame = findings.without(frame, pl.col("gpu").is_null(), kind, "node")
    span = _span([time for _, _, _, time in dated], form)
    return _without_repeats(in_order(frame, "start", findings), findings), span


_Dated = tuple[int, str, re.Match[str], str]
"""Line number, line, its head, its time."""


def _dated(
    path: Path, numbered: Sequence[tuple[int, str]], form: LogFormat, findings: Findings
) -> Iterator[_Dated]:
    """The lines that concern GPUs, with their times."""
    years = _Years(form.clock.year)
    for number, line in numbered:
        head = _HEAD.match(line)
        year = years.of(head["month"]) if head is not None and head["month"] else 0
        if "NVRM: " not in line or not ("Xid" in line or _GPU_AT.search(line)):
            findings.add("no Xid", 1, number, wrong=False)
        elif head is None:
            findings.add("an Xid and no time that can be read", 1, number, f" ({line[:40]!r})")
        elif head["month"] and not form.clock.year:
            raise BadInput(
                f"{path}: the times in line {number} name no year: say clock.year, that of the "
                "first line"
            )
        else:
            yield number, line, head, _time(head, year)
    if years.turns and form.clock.year:
        findings.assume(f"the year turns {counted(years.turns, 'time')} within the log")


class _Years:
    """The years of lines that name only months. They are in order of time, but for machines whose
    clocks differ a little, so that the month before the last one is still of its year."""

    def __init__(self, first: int) -> None:
        self._year, self._month = first, 0
        self.turns = 0

    def of(self, name: str) -> int:
        """The year of the next line."""
        month = _MONTH.get(name, self._month)
        if self.turns and (self._month, month) == (1, 12):
            return self._year - 1
        if month < self._month - 1:
            self._year, self.turns = self._year + 1, self.turns + 1
            self._month = month
        self._month = max(self._month, month)
        return self._year


def _time(head: re.Match[str], year: int) -> str:
    if head["iso"]:
        return head["iso"]
    if head["month"]:
        return f"{year}-{_MONTH.get(head['month'], 0):02}-{int(head['day']):02}T{head['clock']}"
    month = _MONTH.get(head["dmonth"], 0)
    return f"{head['dyear']}-{month:02}-{int(head['dday']):02}T{head['dclock']}"


def _node(head: re.Match[str], form: LogFormat) -> str:
    only = form.nodes.names[0] if len(form.nodes.names) == 1 else ""
    return head["host"] or head["before"] or only


def _address(text: str) -> str:
    """One form for "0000:3b:00", "00000000:3B:00" and "3b:00"."""
    *domain, bus, device = text.lower().split(":")
    return f"{int(domain[0], 16) if domain else 0:04x}:{bus}:{device}"


def _lost(
    dated: Sequence[_Dated], lost_xids: frozenset[int], form: LogFormat, findings: Findings
) -> Iterator[_Xid]:
    for number, line, head, time in dated:
        match = _XID.search(line)
        if match is None and _GPU_AT.search(line):
            findings.add("no Xid", 1, number, wrong=False)
        elif match is None:
            findings.add("an Xid that cannot be read", 1, number, f" ({line[-40:]!r})")
        elif not _node(head, form):
            findings.add("an Xid and no name of a node", 1, number)
        elif not _costs_the_gpu(int(match[2]), match[3], lost_xids):
            findings.add("an Xid that costs no GPU", 1, number, f" ({match[2]})", wrong=False)
        else:
            yield _Xid(number, _node(head, form), time, _address(match[1]), int(match[2]))


def _costs_the_gpu(xid: int, text: str, lost_xids: frozenset[int]) -> bool:
    if xid == RECOVERY_CHANGED and xid in lost_xids:
        return _NEEDS_RESET.search(text) is not None
    return xid in lost_xids


def _indices(
    addresses: set[tuple[str, str]], pci: Sequence[str], gpus_per_node: int, findings: Findings
) -> dict[tuple[str, str], int]:
    """(node, address) -> index in the node."""
    if pci:
        order = [_address(text) for text in pci]
        return {(n, a): order.index(a) for n, a in addresses if a in order}
    everywhere = sorted({address for _, address in addresses})
    if len(everywhere) <= gpus_per_node:
        findings.assume("PCI addresses in ascending order are the GPUs of a node, the same in all")
        return {(n, a): everywhere.index(a) for n, a in addresses}
    findings.assume("PCI addresses in ascending order are the GPUs of a node, in each on its own")
    indices: dict[tuple[str, str], int] = {}
    for node in sorted({node for node, _ in addresses}):
        own = sorted(address for name, address in addresses if name == node)
        indices.update({(node, a): i for i, a in enumerate(own) if i < gpus_per_node})
    return indices


def _frame(
    lost: Sequence[_Xid], indices: dict[tuple[str, str], int], form: LogFormat, findings: Findings
) -> pl.DataFrame:
    times = pl.Series("time", [x.time for x in lost], pl.String)
    read = read_times(times, form.clock)
    for text in read.assumed(form.clock):
        findings.assume(text)
    causes = [f"Xid {x.xid} {LOST_XIDS.get(x.xid, '')}".strip() for x in lost]
    frame = pl.DataFrame(
        {
            ROW: pl.Series([x.line for x in lost], dtype=pl.Int64),
            "node": pl.Series([x.node for x in lost], dtype=pl.String),
            "gpu": pl.Series([indices.get((x.node, x.pci)) for x in lost], dtype=pl.Int64),
            "cause": pl.Series(causes, dtype=pl.String),
            "start": read.hours,
            "end": pl.Series([None] * len(lost), dtype=pl.Float64),
            "time": times,
        }
    )
    return findings.without(frame, pl.col("start").is_null(), "a bad time", "time")


def _without_repeats(frame: pl.DataFrame, findings: Findings) -> pl.DataFrame:
    again = ~pl.struct(*FAILURE[1:]).is_first_distinct()
    kind = "an Xid that the same GPU reports again within the second"
    return findings.without(frame.select(FAILURE), again, kind, wrong=False)


def _span(times: Sequence[str], form: LogFormat) -> Span:
    hours = read_times(pl.Series("time", sorted(set(times)), pl.String), form.clock).hours
    known = hours.drop_nulls().to_list()
    return (min(known), max(known)) if known else None
