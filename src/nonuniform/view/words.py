"""Numbers and events in words for people.

In: plain values of an event. Out: a short phrase or one sentence. The live view, the log lines and
the demo say the same thing in the same words because they all ask here.
Does not know: the state of the run, colours, widths.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

TIMINGS = ("detect_s", "regroup_s", "transfer_s", "redo_s")
_DEATH = re.compile(r"kill|signal|exit|died|dead|crash|lost connection", re.IGNORECASE)
_HANG = re.compile(
    "hang|hung|no sign of life|busy with|did not start|silent|no heartbeat|stalled|"
    "timed out|timeout",
    re.IGNORECASE,
)
_DRAIN = re.compile(r"drain", re.IGNORECASE)


def duration(time_s: float) -> str:
    """4 ms, 0.41 s, 12.3 s, 2 min 03 s."""
    if time_s < 0.1:
        in_ms = time_s * 1e3
        return f"{in_ms:.0f} ms" if in_ms >= 1 or in_ms == 0 else f"{in_ms:.1f} ms"
    if time_s < 9.995:
        return f"{time_s:.2f} s"
    if time_s < 59.95:
        return f"{time_s:.1f} s"
    whole = round(time_s)
    return f"{whole // 60} min {whole % 60:02d} s"


def clock(time_s: float) -> str:
    """0:09, 1:02:03: time since the start of the run."""
    whole = max(0, int(time_s))
    hours, rest = divmod(whole, 3600)
    return f"{hours}:{rest // 60:02d}:{rest % 60:02d}" if hours else f"{rest // 60}:{rest % 60:02d}"


def data_size(count_bytes: float) -> str:
    """In powers of 1024, as everywhere here: 1.5 MiB is 1,572,864 bytes."""
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count_bytes >= scale:
            return f"{count_bytes / scale:.1f} {unit}"
    return f"{count_bytes:.0f} bytes"


def parameter_count(count: int) -> str:
    for unit, scale in (("B", 1e9), ("M", 1e6), ("k", 1e3)):
        if count >= scale:
            return f"{count / scale:.1f} {unit} parameters"
    return f"{count} parameters"


def gpu_names(gpus: Sequence[str]) -> str:
    """GPU 1/2; GPUs 1/2 and 1/3; GPUs 0/1, 1/2 and 1/3."""
    if not gpus:
        return "a GPU"
    if len(gpus) == 1:
        return f"GPU {gpus[0]}"
    return f"GPUs {', '.join(gpus[:-1])} and {gpus[-1]}"


def loss_verb(reason: str, count: int = 1) -> str:
    """The verb a reason allows; 'lost' is always true, so it is what we say when unsure."""
    if _DRAIN.search(reason):
        return "was drained" if count == 1 else "were drained"
    if _HANG.search(reason):
        return "hung"
    if _DEATH.search(reason):
        return "died"
    return "was lost" if count == 1 else "were lost"


def replica_after_loss(replica: int, alive: int, base: int, min_degree: int) -> str:
    """What became of a replica, given how many of its GPUs are left."""
    if alive == 0:
        return f"replica {replica} is dissolved: none of its GPUs is left"
    if alive < min_degree:
        left = "its last GPU waits as a spare" if alive == 1 else f"its {alive} GPUs wait as spares"
        return f"replica {replica} is dissolved: below degree {min_degree}, {left}"
    if alive >= base:
        return f"replica {replica} stays at degree {base}"
    return f"replica {replica} goes on at degree {alive} of {base}"


def replica_after_join(replica: int, alive: int, base: int, min_degree: int) -> str:
    if alive < min_degree:
        return f"replica {replica} stays dissolved, below degree {min_degree}"
    if alive >= base:
        return f"replica {replica} is at full degree {base} again"
    return f"replica {replica} is now at degree {alive} of {base}"


def pause_s(record: Mapping[str, Any]) -> float:
    """From the moment something broke (or the run paused for a join) to the next committed step:
    measured as a whole where the event tells it, else the sum of its parts."""
    if record.get("total_s") is not None:
        return float(record["total_s"])
    return sum(float(record.get(key) or 0.0) for key in TIMINGS)


def how_long(record: Mapping[str, Any]) -> str:
    """noticed in 4 ms, regrouped in 80 ms, moved 1.2 MiB in 30 ms; only what the record tells."""
    parts = []
    if record.get("detect_s"):
        parts.append(f"noticed in {duration(float(record['detect_s']))}")
    if record.get("regroup_s") is not None:
        parts.append(f"regrouped in {duration(float(record['regroup_s']))}")
    if record.get("transfer_bytes"):
        moved = f"moved {data_size(float(record['transfer_bytes']))}"
        parts.append(f"{moved} in {duration(float(record.get('transfer_s') or 0.0))}")
    return ", ".join(parts)


def with_timings(what: str, record: Mapping[str, Any]) -> str:
    """`what` happened, then how long each part took and when the next step was committed."""
    took = how_long(record)
    total_s = pause_s(record)
    ending = f"next step committed after {duration(total_s)} in all" if total_s > 0 else ""
    details = ", ".join(part for part in (took, ending) if part)
    return f"{what}; {details}" if details else what


def other_event(record: Mapping[str, Any]) -> str:
    """One line for an event that is neither a loss, a return, a join nor a recovery."""
    kind = str(record.get("kind", "event"))
    reason = str(record.get("reason") or "").strip()
    step = "a step" if record.get("step") is None else f"step {record['step']}"
    if kind == "validation":
        loss = record.get("loss")
        return f"validation loss {math.nan if loss is None else float(loss):.4f} at {step}"
    if kind == "skip":
        return f"{step} was committed as a skip" + (f": {reason}" if reason else "")
    if kind == "grain":
        return f"batch shares: {reason}" if reason else "batch shares were cut anew"
    if kind == "order":
        gpu = gpu_names([str(record["gpu"])] if record.get("gpu") else [])
        return f"order for {gpu}: {reason}" if reason else f"order for {gpu} was not carried out"
    if kind == "checkpoint":
        return reason
    name = {"unit_mismatch": "units do not match"}.get(kind, kind.replace("_", " "))
    if record.get("gpu"):
        name = f"{gpu_names([str(record['gpu'])])} {name}"
    return f"{name}: {reason}" if reason else name
