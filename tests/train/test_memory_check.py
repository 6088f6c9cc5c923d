"""A job that would not fit is told before anything is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from nonuniform.config import (
    BatchConfig,
    DataConfig,
    JobConfig,
    ModelConfig,
    ParallelConfig,
    RunConfig,
)
from nonuniform.errors import BadInput
from nonuniform.train import memory
from nonuniform.train.run import train
from nonuniform.train.session import job_plan

MIB = 2**20


def job(folder: Path) -> JobConfig:
    (folder / "text").write_bytes(bytes(range(256)) * 8)
    data = DataConfig(("text",), holdout=0.1, root=str(folder))
    model = ModelConfig(layers=1, hidden=64, heads=4, kv_heads=2, vocab=256)
    return JobConfig(
        model, ParallelConfig(2, 2, 1), BatchConfig(2, 4), RunConfig(1, val_every=0), data
    )


def test_too_little_memory_ends_it_before_there_is_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "_free_bytes", lambda: 4 * memory.PROCESS_BYTES + 4 * MIB)
    with pytest.raises(BadInput, match=r"min_degree = 1") as told:
        train(job(tmp_path), tmp_path / "out")
    assert "\n" not in str(told.value)
    assert not (tmp_path / "out").exists()


def test_no_complaint_where_it_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_free_bytes", lambda: 4 * memory.PROCESS_BYTES + 400 * MIB)
    asked = job(tmp_path)
    memory.check_fit(asked, job_plan(asked), "cpu")
