"""Exposure from what was measured: the step log of a run, and what Slurm accounts of jobs.

In: `steps.jsonl` of `nonuniform train`, or the text of `sacct --parsable2`. Out: rows of exposure,
every figure of kind "measured". DESIGN "Outside contract". Knows nothing of prices and policies.

A step log tells degrees and times of what ran, not of what stood still in between. Slurm tells how
long each job held how many GPUs and how it ended, not how it was cut: its share of tensor
parallelism is not known.
"""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from nonuniform.errors import BadInput
from nonuniform.planner.exposure import SHORT_DAYS, quantile
from nonuniform.planner.figure import Figure, nothing

FAILED_STATES = ("NODE_FAIL", "BOOT_FAIL")
STOOD = 2.0  # times the usual step: less is how steps of a whole job differ anyway
COLUMNS = ("jobname", "elapsedraw", "state", "alloctres")
_GPUS = re.compile(r"gres/gpu(?::[^=,]+)?=(\d+)")


@dataclass(frozen=True)
class Measured:
    """Of one job. `lost`: GPU-hours of work that a whole job would have done in that time;
    `reason`: the code of what speaks against NTP from the start, "" for nothing."""

    name: str
    gpu_hours: Figure
    tp_usage: Figure
    failures: Figure
    now: Figure
    mean: Figure
    p95: Figure
    lost: Figure
    reason: str = ""

    def as_dict(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "name": self.name, "candidate": not self.reason, "reason": self.reason or "not-known",
        }  # fmt: skip
        for key in ("gpu_hours", "tp_usage", "failures", "lost"):
            found[key] = getattr(self, key).as_dict()
        shares = {key: getattr(self, key).as_dict() for key in ("now", "mean", "p95")}
        return {**found, "failed_share": shares}


def of_steps(path: Path) -> Measured:
    """The share of GPUs missing is counted from the largest degrees that the log shows."""
    rows = list(_steps(path))
    most = max(len(row["degrees"]) for row in rows)
    whole = max(max(row["degrees"], default=0) for row in rows) * most
    if not whole:
        raise BadInput(f"{path}: no step has a replica that works")
    share = np.array([1 - sum(row["degrees"]) / whole for row in rows])
    time_h = np.array([row["time_s"] for row in rows]) / 3600
    if not time_h.sum() > 0:
        raise BadInput(f"{path}: the steps have no length")
    tensor = any(degree > 1 for row in rows for degree in row["degrees"])
    healthy = [row["time_s"] for row, gone in zip(rows, share, strict=True) if not gone]
    source = f"{path.name}: {len(rows):,} steps"
    lost = None
    if healthy:
        usual_h = float(np.median(healthy)) / 3600
        slower = float((time_h - usual_h)[share > 0].sum())
        stood = time_h[(share == 0) & (time_h > STOOD * usual_h)]
        lost = (max(0.0, slower) + float((stood - usual_h).sum())) * whole
    fell = sum(1 for a, b in pairwise(share) if b > a)
    return Measured(
        path.parent.name or path.stem,
        _figure(float(time_h.sum()) * whole, "GPU-h", source),
        _figure(1.0 if tensor else 0.0, "1", source),
        _figure(float(fell), "1", f"{source}; times that the degrees fell"),
        _figure(float(share[-1]), "1", source),
        _figure(float(np.average(share, weights=time_h)), "1", source),
        _figure(quantile(share, time_h, 0.95), "1", source),
        _figure(
            lost,
            "GPU-h",
            f"{source}; steps with GPUs missing, and such as took "
            f"{STOOD:g} times as long, beyond the usual one",
        )
        if lost is not None
        else nothing("GPU-h", "no step ran with all GPUs"),
    )


def _steps(path: Path) -> Sequence[Mapping[str, Any]]:
    rows = []
    for number, line in enumerate(_text(path).splitlines(), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            degrees = [int(degree) for degree in row["degrees"]]
            time_s = float(row["time_s"])
            if min(degrees, default=0) < 0 or not 0 <= time_s < math.inf:
                raise ValueError(f"degrees {degrees}, time_s {time_s}")
            rows.append({"degrees": degrees, "time_s": time_s})
        except (ValueError, KeyError, TypeError, OverflowError) as error:
            raise BadInput(f"{path}: line {number}: no step with degrees and time_s") from error
    if not rows:
        raise BadInput(f"{path}: has no steps")
    return rows


def of_sacct(path: Path) -> list[Measured]:
    """One row for each name of a job, the one that held most GPU-hours first."""
    by_name: dict[str, list[tuple[float, int, str]]] = defaultdict(list)
    for number, row in _table(path):
        if "." in row.get("jobid", ""):  # a step of a job
            continue
        gpus = _GPUS.search(row["alloctres"])
        try:
            hours = float(row["elapsedraw"]) / 3600
            if not 0 <= hours < math.inf:
                raise ValueError("not a duration")
        except ValueError:
            text = row["elapsedraw"]
            raise BadInput(f"{path}: line {number}: ElapsedRaw = {text!r}: no seconds") from None
        by_name[row["jobname"]].append((hours, int(gpus[1]) if gpus else 0, row["state"]))
    found = [_of_jobs(path, name, jobs) for name, jobs in by_name.items()]
    return sorted(found, key=lambda each: -(each.gpu_hours.value or 0.0))


def _of_jobs(path: Path, name: str, jobs: Sequence[tuple[float, int, str]]) -> Measured:
    source = f"{path.name}: {len(jobs):,} jobs"
    held = sum(hours * gpus for hours, gpus, _ in jobs)
    failed = sum(
        1 for *_, state in jobs if state.split()[0:1] and state.split()[0] in FAILED_STATES
    )
    unknown = nothing("1", "Slurm's accounting does not tell")
    return Measured(
        name, _figure(held, "GPU-h", source), unknown,
        _figure(float(failed), "1", f"{source}; ended by a node"), unknown, unknown, unknown,
        nothing("GPU-h", "Slurm's accounting does not tell"), _against(jobs, failed),
    )  # fmt: skip


def _against(jobs: Sequence[tuple[float, int, str]], failed: int) -> str:
    taken = sum(1 for *_, state in jobs if state.startswith("PREEMPTED"))
    if 2 * taken > len(jobs):
        return "preemptible"
    if sum(hours for hours, *_ in jobs) / len(jobs) < 24 * SHORT_DAYS:
        return "short-job"
    return "few-failures" if failed < 1 else ""


def _table(path: Path) -> list[tuple[int, dict[str, str]]]:
    lines = [(n, line) for n, line in enumerate(_text(path).splitlines(), 1) if line.strip()]
    header = lines[0][1].lower().rstrip("|").split("|") if lines else []
    missing = [name for name in COLUMNS if name not in header]
    if missing:
        wanted = "sacct --parsable2 --format JobID,JobName,ElapsedRaw,State,AllocTRES"
        raise BadInput(f"{path}: no column {missing[0]}; expected the text of {wanted}")
    rows = []
    for number, line in lines[1:]:
        cells = line.split("|")[: len(header)]
        if len(cells) < len(header):
            raise BadInput(f"{path}: line {number}: {len(cells)} fields, expected {len(header)}")
        rows.append((number, dict(zip(header, cells, strict=True))))
    return rows


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}: is not UTF-8 text (byte {error.start})") from None


def _figure(value: float, unit: str, source: str) -> Figure:
    return Figure(value, unit, "measured", source)
