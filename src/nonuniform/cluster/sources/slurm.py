"""What Slurm tells of nodes that went down.

In: the text of `sacct`, of `sacctmgr show event` (both with "|" or in columns of fixed width), or
of `scontrol show node`. Out: failures by node name, in hours, and the times that the text spans.
Knows nothing of the fleet.

- `sacct` tells of jobs. Those that a node ended (NODE_FAIL, BOOT_FAIL) tell when, not for how long:
  the end is unknown. Column FailedNode says which node it was; without it a job on several nodes
  can't say.
- `sacctmgr show event` has a row per node and state, with both times.
- `scontrol show node` is a moment's picture: nodes that are down now, since when, and the reason.
  What was repaired before is not in it. A node that drains is out, though its last job may still
  run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from nonuniform.cluster.sources.bad_rows import ROW, Findings
from nonuniform.cluster.sources.clock import not_a_time, read_times
from nonuniform.cluster.sources.host_list import host_names
from nonuniform.cluster.sources.log_format import LogFormat
from nonuniform.cluster.sources.pairing import FAILURE, in_order
from nonuniform.cluster.sources.text_file import read_lines
from nonuniform.errors import BadInput

Span = tuple[float, float] | None
"""First and last time that a text mentions, in hours."""

OUT = frozenset(
    {"DOWN", "DRAIN", "DRAINED", "DRAINING", "FAIL", "FAILING", "ERROR", "NO_RESPOND"}
    | {"NOT_RESPONDING"}
)
"""States of a node that cannot be used; powered down, planned or reserved ones are no failures."""

ENDED_BY_NODE = ("NODE_FAIL", "BOOT_FAIL")
NEVER = frozenset({"", "Unknown", "None", "N/A"})
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")
_REASON = re.compile(r"\bReason=(.*?)\s*\[([^\[\]@\s]*)@([^\[\]\s]*)\]")
_KEY = {key: re.compile(rf"(?:^|\s){key}=(\S+)") for key in ("NodeName", "State")}


@dataclass(frozen=True)
class _Down:
    """A row of the text that tells of a failure; times as they stand, end "" if not known."""

    line: int
    node: str
    start: str
    end: str
    cause: str


def read_sacct(path: Path, form: LogFormat, findings: Findings) -> tuple[pl.DataFrame, Span]:
    """Of `sacct`, or of `sacctmgr show event`: the header tells which it is."""
    lines = read_lines(path, findings)
    numbered = lines.numbered()
    header, rows = _table(path, numbered, findings)
    findings.rows = len(rows) + len(lines.bad)
    if "nodename" in header:
        downs = list(_of_events(path, header, rows, findings))
    else:
        downs = list(_of_jobs(path, header, rows, findings))
    return _failures(downs, [line for _, line in numbered], form, findings)


def read_scontrol(path: Path, form: LogFormat, findings: Findings) -> tuple[pl.DataFrame, Span]:
    """Of `scontrol show node`, with or without -o."""
    lines = read_lines(path, findings)
    blocks = _blocks(lines.numbered())
    if not blocks:
        raise BadInput(f"{path}: no NodeName= in it, expected the text of scontrol show node")
    findings.rows = len(blocks)
    downs = list(_of_blocks(blocks, findings))
    findings.assume("scontrol shows one moment: failures that were repaired before are not in it")
    return _failures(downs, [text for _, text in blocks], form, findings)


# ------------------------------------------------------------------------------------ tables


def _table(
    path: Path, numbered: Sequence[tuple[int, str]], findings: Findings
) -> tuple[list[str], list[tuple[int, list[str]]]]:
    head = numbered[0][1] if numbered else ""
    if "|" in head:
        # sacct -p ends every line with a "|", -P does not, and there a last field may be empty.
        end = "|" if head.endswith("|") else ""
        header = _piped(head, end)
        split = [(n, _piped(line, end)) for n, line in numbered[1:]]
    elif len(numbered) > 1 and set(numbered[1][1].strip()) <= set("- "):
        spans = [match.span() for match in re.finditer(r"-+", numbered[1][1])]
        header = _sliced(head, spans)
        split = [(n, _sliced(line, spans)) for n, line in numbered[2:]]
    else:
        raise BadInput(f'{path}: expected the text of sacct, with "|" or a second line of dashes')
    rows = [(n, row) for n, row in split if len(row) == len(header)]
    if len(rows) < len(split):
        first = next(n for n, row in split if len(row) != len(header))
        kind = f"another number of fields than the {len(header)} of the header"
        findings.add(kind, len(split) - len(rows), first)
    return [name.lower() for name in header], rows


def _piped(line: str, end: str) -> list[str]:
    return [field.strip() for field in line.removesuffix(end).split("|")]


def _sliced(line: str, spans: Sequence[tuple[int, int]]) -> list[str]:
    return [line[start:stop].strip() for start, stop in spans]


def _place(path: Path, header: Sequence[str], name: str) -> int:
    if name.lower() not in header:
        raise BadInput(f'{path}: no column "{name}"; there are: {", ".join(header)}')
    return header.index(name.lower())


def _of_jobs(
    path: Path, header: list[str], rows: Sequence[tuple[int, list[str]]], findings: Findings
) -> Iterator[_Down]:
    state, end = _place(path, header, "State"), _place(path, header, "End")
    job = header.index("jobid") if "jobid" in header else None
    named = next((header.index(n) for n in ("failednode", "nodelist") if n in header), None)
    if named is None:
        _place(path, header, "FailedNode")
    assert named is not None
    for number, row in rows:
        if not row[state].startswith(ENDED_BY_NODE):
            findings.add("a job that no node ended", 1, number, wrong=False)
        elif job is not None and "." in row[job]:
            findings.add("a step of a job (the job itself counts)", 1, number, wrong=False)
        else:
            nodes = host_names(row[named])
            if nodes is None or len(nodes) != 1:
                kind = f"no single failed node (column {header[named]})"
                findings.add(kind, 1, number, f" ({row[named]!r})")
            else:
                yield _Down(number, nodes[0], row[end], "", row[state].split()[0])


def _of_events(
    path: Path, header: list[str], rows: Sequence[tuple[int, list[str]]], findings: Findings
) -> Iterator[_Down]:
    node, start, end, state = (
        _place(path, header, name) for name in ("NodeName", "TimeStart", "TimeEnd", "State")
    )
    why = header.index("reason") if "reason" in header else state
    for number, row in rows:
        if not row[node]:
            findings.add("an event of the cluster, not of a node", 1, number, wrong=False)
        elif not _is_out(row[state]):
            findings.add("a node that is no failure", 1, number, f" ({row[state]!r})", wrong=False)
        else:
            nodes = host_names(row[node])
            if nodes is None:
                findings.add("a bad list of nodes", 1, number, f" ({row[node]!r})")
            for name in nodes or ():
                yield _Down(number, name, row[start], row[end], row[why] or row[state])


def _is_out(state: str) -> bool:
    words = re.split(r"[+,\s]", state.upper())
    return any(word.rstrip("*~#!%$@^-") in OUT for word in words)


# ------------------------------------------------------------------------------------ scontrol


def _blocks(numbered: Sequence[tuple[int, str]]) -> list[tuple[int, str]]:
    """(line of NodeName=, all of the node's text)."""
    blocks: list[tuple[int, list[str]]] = []
    for number, line in numbered:
        if line.lstrip().startswith("NodeName="):
            blocks.append((number, [line]))
        elif blocks:
            blocks[-1][1].append(line)
    return [(number, "\n".join(lines)) for number, lines in blocks]


def _of_blocks(blocks: Sequence[tuple[int, str]], findings: Findings) -> Iterator[_Down]:
    for number, text in blocks:
        name, state = (_KEY[key].search(text) for key in ("NodeName", "State"))
        if name is None or state is None:
            findings.add("no NodeName or no State", 1, number)
        elif not _is_out(state[1]):
            findings.add("a node that is no failure", 1, number, f" ({state[1]!r})", wrong=False)
        else:
            reason = _REASON.search(text)
            if reason is None:
                findings.add(f"a node that is {state[1]} since nobody says when", 1, number)
            else:
                yield _Down(number, name[1], reason[3], "", reason[1].strip() or state[1])


# ------------------------------------------------------------------------------------ times


def _failures(
    downs: Sequence[_Down], texts: Sequence[str], form: LogFormat, findings: Findings
) -> tuple[pl.DataFrame, Span]:
    frame = pl.DataFrame(
        {
            ROW: pl.Series([down.line for down in downs], dtype=pl.Int64),
            "node": pl.Series([down.node for down in downs], dtype=pl.String),
            "gpu": pl.Series([None] * len(downs), dtype=pl.Int64),
            "cause": pl.Series([down.cause for down in downs], dtype=pl.String),
            "start_text": pl.Series([down.start for down in downs], dtype=pl.String),
            "end_text": pl.Series(
                [None if down.end in NEVER else down.end for down in downs], dtype=pl.String
            ),
        }
    )
    for name in ("start", "end"):
        read = read_times(frame[f"{name}_text"], form.clock)
        frame = frame.with_columns(read.hours.alias(name))
        for text in read.assumed(form.clock):
            findings.assume(text)
    bad_end = pl.col("end").is_null() & pl.col("end_text").is_not_null()
    kind = not_a_time(form.clock)
    frame = findings.without(frame, pl.col("start").is_null(), kind, "start_text")
    frame = findings.without(frame, bad_end, kind, "end_text")
    frame = findings.without(
        frame, pl.col("end") < pl.col("start"), "a negative duration", "end_text"
    )
    frame = in_order(frame, "start", findings).select(FAILURE)
    again = ~pl.struct(*FAILURE[1:]).is_first_distinct()
    kind = "what an earlier row says already (duplicated)"
    return findings.without(frame, again, kind), _span(texts, form)


def _span(texts: Sequence[str], form: LogFormat) -> Span:
    found = {time for text in texts for time in _TIME.findall(text)}
    hours = read_times(pl.Series("time", sorted(found), pl.String), form.clock).hours.drop_nulls()
    if hours.is_empty():
        return None
    return float(hours.min()), float(hours.max())  # type: ignore[arg-type]
