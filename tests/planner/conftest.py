"""Small scenarios that a plan is made of, and one plan that many tests look at."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nonuniform.planner.run import PlanArgs, plan

SCENARIO = """
[cluster]
gpus = {gpus}
domain = {domain}
[job]
degree = {degree}
sequences_per_replica = 8
[failures]
rate_per_gpu_day = {rate}
repair_h = 120
steady_start = true
[run]
days = {days}
"""
USUAL = {"gpus": 1024, "domain": 32, "degree": 32, "rate": 2e-3, "days": 90}


def written(folder: Path, **values: float) -> Path:
    path = folder / "small.toml"
    path.write_text(SCENARIO.format(**{**USUAL, **values}))
    return path


Planned = Callable[..., dict[str, Any]]


@pytest.fixture
def planned(tmp_path: Path) -> Planned:
    """Arguments of `PlanArgs`, and values of the scenario in `scenario`."""

    def make(scenario: dict[str, float] | None = None, **args: Any) -> dict[str, Any]:
        if "jobs" not in args:
            args["scenario"] = written(tmp_path, **(scenario or {}))
        plan(PlanArgs(**{"seeds": 4, "overwrite": True, **args}), tmp_path / "out")
        found: dict[str, Any] = json.loads((tmp_path / "out" / "summary.json").read_text())
        return found

    return make


@pytest.fixture(scope="session")
def usual(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    folder = tmp_path_factory.mktemp("plan")
    args = PlanArgs(scenario=written(folder), seeds=6)
    plan(args, folder / "out")
    return json.loads((folder / "out" / "summary.json").read_text()), folder / "out"
