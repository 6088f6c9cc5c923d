"""The example for many machines gives the figures of one; needs Dask, which is an extra."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from nonuniform.cli import main

ROOT = Path(__file__).resolve().parents[2]
SCENARIO = """
cluster = { gpus = 1024, domain = 32 }
job = { sequences_per_replica = 8, stages = 2 }
failures = { rate_per_gpu_day = 1e-3, repair_h = 48 }
run = { days = 20, seeds = 6 }
"""


def test_the_figures_are_those_of_one_machine(tmp_path: Path) -> None:
    pytest.importorskip("dask.distributed")
    path = tmp_path / "SCENARIO.toml"
    path.write_text(SCENARIO)
    flags = ["--quiet", "--out"]
    example = [sys.executable, str(ROOT / "examples" / "many_machines.py")]
    subprocess.run([*example, str(path), *flags, str(tmp_path / "many")], check=True, timeout=120)
    with pytest.raises(SystemExit):
        main(["simulate", str(path), *flags, str(tmp_path / "one")])
    one, many = (pl.read_parquet(tmp_path / name / "runs.parquet") for name in ("one", "many"))
    assert one.equals(many)
