"""A made-up `summary.json` of a plan, small and by the contract, for every verdict."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

Summary = dict[str, Any]
HURT = '<img src=x onerror="window.hurt=1">'
POLICIES = {
    "restart": ("uniform", 0.7051, True, []),
    "dp-drop": ("dp-drop", 0.9328, True, []),
    "ntp": ("ntp", 0.9857, True, []),
    "ntp-tokens": ("ntp", 0.9895, False, ["tokens"]),
    "ntp-pw": ("ntp-pw", 0.9931, False, ["tokens", "boost"]),
}


def figure(
    value: float | None, unit: str, kind: str = "simulated", spread: float = 0.0
) -> dict[str, Any]:
    ends = (None, None) if value is None or not spread else (value - spread, value + spread)
    return {"value": value, "low": ends[0], "high": ends[1], "unit": unit, "kind": kind,
            "source": "made up for a test"}  # fmt: skip


def policy(name: str, gpus: int) -> dict[str, Any]:
    kind, fast, runnable, needs = POLICIES[name]
    hours = gpus * 8760.0
    lost, today = hours * (1 - fast), hours * (1 - POLICIES["restart"][1])
    saved = (today - lost) * 2.21
    return {
        "kind": kind, "title": f"{name} in words", "runnable": runnable, "needs": needs,
        "throughput": figure(fast, "1", spread=0.0003),
        "throughput_worst": figure(fast - 0.01, "1"),
        "loss": figure(1 - fast, "1", spread=0.0003),
        "lost": figure(lost, "GPU-h/year", spread=hours * 0.0003),
        "interrupted": figure(0.11, "1", spread=0.004),
        "days": figure(90 / fast, "days", spread=0.4), "completion": "2027-03-01",
        "spares_domains": {p: figure(n, "domains") for p, n in
                           (("p50", 8.0), ("p95", 16.0), ("p100", 16.0))},
        "gpu_hours": {part: figure(hours * share, "GPU-h/year", spread=hours * share * 0.02)
                      for part, share in (("failed", 0.00185), ("idled", 0.006), ("spare", 0.0),
                                          ("transition", 0.0067), ("redone", 0.0),
                                          ("unused", 0.0))},
        "cost": {part: figure(value, "money/year", spread=abs(value) * 0.01) for part, value in
                 (("lost", lost * 2.21), ("spares", 0.0), ("energy", 12_000.0),
                  ("operators", 310_000.0), ("total", lost * 2.21 + 322_000))},
        "one_off": figure(0.0 if name == "restart" else 480_000.0, "money", "computed"),
        "payback_days": None if name == "restart" else figure(17.3, "days", "computed"),
        "net": figure(saved, "money/year", spread=0.02 * abs(saved)),
    }  # fmt: skip


def job(name: str, gpus: int, degree: int, candidate: bool, reason: str) -> dict[str, Any]:
    return {
        "name": name, "gpus": gpus, "degree": degree, "stages": 8, "replicas": gpus // degree // 8,
        "domain": 32, "gpus_per_replica": degree * 8, "days": figure(90, "days", "computed"),
        "step_time": None, "tp_usage": figure(1.0 if degree > 1 else 0.0, "1", "computed"),
        "blast_gpus": figure(float(degree * 8), "GPU", "computed"),
        "failures_expected": figure(gpus * 0.0426, "1", "computed"),
        "failed_share": {"now": None, "mean": figure(0.00185, "1", spread=0.00002),
                         "p95": figure(0.0031, "1", spread=0.0001)},
        "candidate": candidate, "reason": reason, "today": "restart",
        "policies": {each: policy(each, gpus) for each in POLICIES},
    }  # fmt: skip


def charts() -> dict[str, Any]:
    shares = [0.0, 0.0005, 0.001, 0.002, 0.004, 0.008]
    hours = [float(h) for h in range(0, 8760, 20)]
    waves = [max(0, round(14 + 9 * math.sin(h / 300) + 5 * math.sin(h / 37))) for h in hours]
    slope = {"restart": 60.0, "dp-drop": 36.0, "ntp": 7.7, "ntp-tokens": 5.0, "ntp-pw": 2.0}
    return {
        "throughput": {"failed_share": shares, "policies": {
            name: [max(0.0, 1 - s * k) for s in shares] for name, k in slope.items()}},
        "heatmap": {"degrees": [8, 16, 32, 64, 72], "rates": [4.7e-5, 1.4e-4, 4.7e-4, 1.42e-3],
                    "loss": [[min(0.95, d * r * 18) for r in (4.7e-5, 1.4e-4, 4.7e-4, 1.42e-3)]
                             for d in (8, 16, 32, 64)] + [[None] * 4], "policy": "restart"},
        "year": {"time_h": hours, "domains_hit": waves, "throughput": {
            name: [max(0.0, 1 - k * w / 9000) for w in waves] for name, k in slope.items()}},
        "spares": {"domains": list(range(0, 40, 4)), "interrupted": {
            name: [max(0.0, 0.9 - 0.05 * n * 9 / k) for n in range(10)]
            for name, k in slope.items()}},
        "frontier": [
            {"policy": name, "spare_domains": spare,
             "cost": 6e6 * k + 2e5 * spare, "throughput": POLICIES[name][1] + spare * 1e-5,
             "best": name == "ntp-pw"} for name, k in slope.items() for spare in (0, 4, 8)],
        "map": {"domain": 32, "time_h": 4123.0,
                "lost": [[0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0][i * i % 11] for i in range(1024)]},
        "rack": {"time_s": [float(t) for t in range(0, 600, 10)],
                 "power_w": [120e3 + 6e3 * (t > 100) for t in range(0, 600, 10)],
                 "budget_w": 132e3,
                 "temperature_c": [72 - 9 * math.exp(-max(0, t - 100) / 90)
                                   for t in range(0, 600, 10)],
                 "limit_c": 85.0, "kind": "simulated"},
    }  # fmt: skip


def change(what: str, setting: str, policy_name: str, changed: bool) -> dict[str, Any]:
    net = figure(9.1e7, "money/year", spread=1e6)
    factor = float(setting[1:]) if setting[0] == "x" else 1.0
    return {"what": what, "setting": setting, "factor": factor,
            "policy": policy_name, "net": net,
            "changed": changed}  # fmt: skip


def recommendation(name: str, chosen: str) -> dict[str, Any]:
    return {
        "job": name, "policy": chosen, "spare_domains": figure(8.0, "domains"),
        "spares_where": "8 whole domains of the job's own, in the same network block as the "
        "replicas they stand in for", "min_degree": 16,
        "boost": figure(0.15, "1", "assumed") if chosen == "ntp-pw" else None,
        "checkpoint_every": {"young_daly": figure(2750.0, "s", "computed"),
                             "simulated": figure(3600.0, "s"),
                             "recommended": figure(3600.0, "s", "assumed")},
        "saved": figure(8.27e7, "GPU-h/year", spread=6e5),
        "net": figure(1.81e8, "money/year", spread=1.4e6),
        "margin": figure(2.2e6, "money/year", spread=3e5), "stable": True,
        "alternatives": [
            {"policy": each, "spare_domains": 4, "net": figure(-1.2e6, "money/year", spread=9e5),
             "throughput": figure(POLICIES[each][1], "1", spread=0.0003), "runnable": True,
             "why_not": "loses-more"} for each in POLICIES if each != chosen][:4],
        "changes": [change("failure rate", "x0.3", "dp-drop", True),
                    change("failure rate", "x3", chosen, False),
                    change("boost", "not available", "ntp-tokens", True),
                    change("batch", "may shrink", chosen, False)],
    }  # fmt: skip


def path() -> list[dict[str, Any]]:
    rows = (("measure", 0.0, 2.0, 2e4, "loss_today", "at_least", figure(0.0004, "1", "computed")),
            ("pilot", 512.0, 4.0, 7.6e5, "recovery_s", "at_most", figure(60.0, "s", "assumed")),
            ("software", 32768.0, 12.0, 4.8e5, "throughput_gain", "at_least",
             figure(0.0004, "1", "computed")),
            ("boosted-racks", 32768.0, 26.0, 3e6, "boost_gain", "at_least",
             figure(0.0016, "1", "computed")))  # fmt: skip
    return [
        {"step": step, "gpus": figure(gpus, "GPU", "assumed"), "cost": figure(cost, "money"),
         "weeks": figure(weeks, "weeks", "assumed"), "gate": {"figure": what, side: limit}}
        for step, gpus, weeks, cost, what, side, limit in rows
    ]  # fmt: skip


def build(
    worth: str = "yes", reason: str = "saves", chosen: str = "ntp-pw", hurt: bool = False
) -> Summary:
    """`hurt`: names that are HTML."""
    name = HURT if hurt else "train.sh"
    return {
        "kind": "plan", "version": "0.1.0", "status": "done", "created": "2026-11-30",
        "command": f"nonuniform plan --job {name} --cluster gb200-nvl72 --gpus 32768 --out DIR",
        "time_s": 12.3, "seeds": 40, "example": True,
        "inputs": [{"what": "job", "name": name, "format": "megatron", "sha256": "ab" * 32},
                   {"what": "failures", "name": f"{name}.csv", "format": "csv",
                    "sha256": "cd" * 32}],
        "facts": [{"about": name, "name": "tensor parallel", "text": "32", "assumed": False,
                   "note": "--tensor-model-parallel-size"},
                  {"about": name, "name": "repair", "text": "120 h", "assumed": True,
                   "note": "nothing says otherwise"}],
        "unknown": [{"file": name, "what": f"--my-flag {name}"}],
        "verdict": {"worth": worth, "policy": chosen, "today": "restart", "reason": reason,
                    "change": chosen != "restart"},
        "jobs": [job(name, 32768, 32, worth == "yes", reason),
                 job("tune.toml", 512, 1, False, "tensor-parallel-1")],
        "portfolio": [{"job": name, "lost": figure(8.46e7, "GPU-h/year", spread=6e5),
                       "candidate": worth == "yes", "reason": reason},
                      {"job": "tune.toml", "lost": figure(9000.0, "GPU-h/year", spread=300),
                       "candidate": False, "reason": "tensor-parallel-1"}],
        "recommendation": recommendation(name, chosen),
        "marginal": {"live": figure(0.2277, "1", spread=0.001),
                     "ntp": figure(0.053, "1", spread=0.001),
                     "hidden_sync": figure(None, "1", "computed"),
                     "tokens": figure(0.0038, "1", spread=0.0002),
                     "boost": figure(0.0036, "1", spread=0.0002)},
        "path": path(),
        "money": {"currency": "USD", "fx": 1.0, "fx_date": None, "prices": [
            {"key": "gpu_hour", "value": 2.21, "unit": "money/GPU-h", "date": "2026-05",
             "source": "an analyst's estimate", "overridden": False},
            {"key": "energy_kwh", "value": 0.09, "unit": "money/kWh", "date": "2026-11",
             "source": "ours", "overridden": True}]},
        "charts": charts(),
    }  # fmt: skip


@pytest.fixture
def plan_summary() -> Callable[..., Summary]:
    return build


@pytest.fixture
def hurt_name() -> str:
    return HURT
