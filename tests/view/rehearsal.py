"""A run that never happened, told as a real one would be.

In: the size of the job and its incidents. Out: the calls an observer would get, in order, and the
files they would leave in a folder. Deterministic; `noise` is how far the losses are from those of
the undisturbed run.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Call = tuple[str, dict[str, Any]]
STEP_S = 0.35


@dataclass(frozen=True)
class Incident:
    """A GPU that is lost at `step`, or that is back at `step` and joins `warmup` steps later."""

    kind: str
    gpu: str
    step: int
    warmup: int = 6
    reason: str = "killed by signal 9"


DEMO = (
    Incident("failed", "1/2", 12),
    Incident("failed", "1/0", 20),
    Incident("returned", "1/2", 28),
    Incident("returned", "1/0", 36),
)


@dataclass(frozen=True)
class Rehearsal:
    steps: int = 60
    replicas: int = 2
    degree: int = 4
    min_degree: int = 2
    sequences: int = 12
    incidents: Sequence[Incident] = DEMO
    noise: float = 0.0
    val_every: int = 20

    def info(self) -> dict[str, Any]:
        gpus = [f"{r}/{i}" for r in range(self.replicas) for i in range(self.degree)]
        return {
            "replicas": self.replicas,
            "degree": self.degree,
            "min_degree": self.min_degree,
            "steps": self.steps,
            "parameters": 1_623_744,
            "gpus": gpus,
            "out": "runs/demo/with-failures",
        }

    def calls(self) -> list[Call]:
        return _Teller(self).tell()


class _Teller:
    def __init__(self, plan: Rehearsal) -> None:
        self.plan = plan
        self.time_s = 2.0
        self.generation = 1
        self.down: set[str] = set()
        self.calls: list[Call] = []

    def tell(self) -> list[Call]:
        plan = self.plan
        self.calls.append(("on_start", plan.info()))
        for gpu in plan.info()["gpus"]:
            self.event("started", 0, gpu, reason="process 4711 started")
        self.event("generation", 0, reason="all GPUs healthy")
        for step in range(1, plan.steps + 1):
            joined = self.joins(step)
            lost = self.failures(step)
            self.time_s += STEP_S
            self.calls.append(("on_step", self.step_record(step)))
            if lost:
                self.changed("recovery", step, lost[0], detect_s=0.004, redo_s=0.29)
            for gpu in joined:
                self.changed("joined", step, gpu, detect_s=None, redo_s=0.02)
            if plan.val_every and step % plan.val_every == 0:
                self.event("validation", step, loss=loss_at(step) + 0.05)
        reason = f"all {plan.steps} steps committed"
        self.event("finished", plan.steps, reason=reason)
        summary = {"status": "done", "reason": reason, "steps": plan.steps, "time_s": self.time_s}
        self.calls.append(("on_end", summary))
        return self.calls

    def joins(self, step: int) -> list[str]:
        joined = []
        for incident in self.plan.incidents:
            if incident.kind == "returned" and incident.step == step:
                self.event("returned", step, incident.gpu, reason="process 4712 started")
            if incident.kind == "returned" and incident.step + incident.warmup == step:
                self.down.discard(incident.gpu)
                joined.append(incident.gpu)
        if joined:
            self.regroup(step)
        return joined

    def failures(self, step: int) -> list[str]:
        lost = [i for i in self.plan.incidents if i.kind == "failed" and i.step == step]
        for incident in lost:
            self.down.add(incident.gpu)
            self.event("failed", step, incident.gpu, reason=incident.reason)
        if lost:
            self.time_s += 0.004 + 0.29
            self.regroup(step)
        return [incident.gpu for incident in lost]

    def regroup(self, step: int) -> None:
        self.generation += 1
        self.time_s += 0.11
        self.event("generation", step - 1, reason="batch shares 8+4")

    def changed(
        self, kind: str, step: int, gpu: str, detect_s: float | None, redo_s: float
    ) -> None:
        """Told right after the first commit; the whole is a little more than its parts."""
        total_s = (detect_s or 0.0) + 0.08 + 0.03 + redo_s + 0.01
        self.event(
            kind, step, gpu, detect_s=detect_s, regroup_s=0.08, transfer_s=0.03, redo_s=redo_s,
            transfer_bytes=1_203_456, total_s=total_s,
        )  # fmt: skip

    def event(self, kind: str, step: int, gpu: str | None = None, **more: Any) -> None:
        replica = None if gpu is None else int(gpu.partition("/")[0])
        record = {
            "time_s": round(self.time_s, 4), "kind": kind, "gpu": gpu, "replica": replica,
            "step": step, "generation": self.generation, "reason": "", **more,
        }  # fmt: skip
        self.calls.append(("on_event", record))

    def step_record(self, step: int) -> dict[str, Any]:
        plan = self.plan
        degrees = []
        for replica in range(plan.replicas):
            lost = sum(gpu.startswith(f"{replica}/") for gpu in self.down)
            alive = plan.degree - lost
            degrees.append(alive if alive >= plan.min_degree else 0)
        shares = [plan.sequences * degree // max(1, sum(degrees)) for degree in degrees]
        shares[degrees.index(max(degrees))] += plan.sequences - sum(shares)
        return {
            "step": step,
            "loss": loss_at(step) + plan.noise * math.sin(step) * (step > 12),
            "tokens": plan.sequences * 128,
            "samples": plan.sequences,
            "grad_norm": 1.0 + 1.0 / step,
            "generation": self.generation,
            "degrees": degrees,
            "batch_shares": shares,
            "time_s": round(self.time_s, 4),
        }


def loss_at(step: int) -> float:
    return 2.45 + 3.1 * math.exp(-step / 14) + 0.06 * math.sin(1.7 * step)


def play(calls: Sequence[Call], observer: Any, clock: Any = None, until: int | None = None) -> None:
    """Calls the observer; `clock` is set to the time of each record. Stops before step `until`."""
    for name, record in calls:
        if until is not None and record.get("step", 0) >= until and name == "on_step":
            return
        if clock is not None and "time_s" in record:
            clock.now_s = record["time_s"]
        getattr(observer, name)(dict(record))
        observer.tick()


def write(calls: Sequence[Call], folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for method, name in (("on_step", "steps.jsonl"), ("on_event", "events.jsonl")):
        lines = [json.dumps(record) + "\n" for called, record in calls if called == method]
        (folder / name).write_text("".join(lines), encoding="utf-8")
    summary = [record for called, record in calls if called == "on_end"]
    (folder / "summary.json").write_text(json.dumps(summary[0] if summary else {}))
    return folder
