"""The numbers of a run's page as one plain value, which is also written beside it as report.json.

In: `RunData`. Out: a dict of figures `{value, low, high, unit, kind, source}`, so that whoever
reads the page can find each of its numbers in the file. Knows nothing of HTML and languages.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from nonuniform import __version__
from nonuniform.report.run_data import Recovery, RunData
from nonuniform.report.run_goodput import REASONS
from nonuniform.report.run_timeline import STATES

Numbers = dict[str, Any]
PARTS = ("detect", "regroup", "transfer", "redo", "total")


def run_numbers(data: RunData) -> Numbers:
    def figure(value: float | None, unit: str = "") -> Numbers:
        return _figure(value, unit, data.kind)

    goodput, useful_s = data.goodput, data.goodput.seconds["useful"]
    pauses = [one.total_s for one in data.recoveries if one.lost]
    return {
        "kind": "run",
        "version": __version__,
        "name": data.name,
        "status": data.status,
        "reason": data.reason,
        "device": data.device,
        "sessions": list(data.sessions),
        "steps": figure(len(data.steps)),
        "last_step": figure(data.steps[-1].step if data.steps else 0),
        "time": figure(data.time_s, "s"),
        "useful": figure(goodput.useful_share, "1"),
        "typical_step": figure(goodput.typical_s, "s"),
        "tokens": figure(data.tokens),
        "tokens_per_s": figure(data.tokens / data.time_s if data.time_s > 0 else None, "tokens/s"),
        "tokens_per_useful_s": figure(data.tokens / useful_s if useful_s > 0 else None, "tokens/s"),
        "loss_last": figure(data.loss_last),
        "failures": figure(data.count("failed")),
        "returns": figure(data.count("joined")),
        "drained": figure(data.count("drained")),
        "pause": figure(median(pauses) if pauses else None, "s"),
        "pause_longest": figure(max(pauses) if pauses else None, "s"),
        "goodput": _goodput(data),
        "gpus": figure(len(data.gpus), "GPU"),
        "gpu_time": {
            state: figure(sum(line.seconds(state) for line in data.gpus), "s") for state in STATES
        },
        "recoveries": [_recovery(one, data.kind) for one in data.recoveries],
    }


def _goodput(data: RunData) -> dict[str, Numbers]:
    total_s, seconds = data.goodput.total_s, data.goodput.seconds
    return {
        reason: {
            "seconds": _figure(seconds[reason], "s", data.kind),
            "share": _figure(seconds[reason] / total_s if total_s > 0 else None, "1", data.kind),
        }
        for reason in REASONS
    }


def _recovery(one: Recovery, kind: str) -> Numbers:
    values = (one.detect_s, one.regroup_s, one.transfer_s, one.redo_s, one.total_s)
    return {
        "step": one.step,
        "time_s": one.time_s,
        "lost": list(one.lost),
        "joined": list(one.joined),
        **{part: _figure(value, "s", kind) for part, value in zip(PARTS, values, strict=True)},
        "bytes": _figure(one.transfer_bytes / 2**20, "MiB", kind),
    }


def compare_numbers(runs: Sequence[RunData]) -> Numbers:
    """Of several runs; losses are compared with those of the first one, step by step."""
    return {
        "kind": "comparison",
        "version": __version__,
        "runs": [run_numbers(run) | {"loss_difference": _difference(runs[0], run)} for run in runs],
    }


def _difference(first: RunData, other: RunData) -> Numbers:
    """The largest absolute one over the steps that both have; none for a run and itself."""
    if other is first:
        return _figure(None, "", other.kind)
    losses = {point.step: point.loss for point in first.steps if point.loss is not None}
    apart = [
        abs(point.loss - losses[point.step])
        for point in other.steps
        if point.loss is not None and point.step in losses
    ]
    return _figure(max(apart, default=None), "", other.kind)


def _figure(value: float | None, unit: str, kind: str) -> Numbers:
    return {"value": value, "low": None, "high": None, "unit": unit, "kind": kind, "source": "log"}
