"""Fixtures of the elastic runs, the means of this folder, and the run that nothing happens to."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

HERE = Path(__file__).parent
ELASTIC = HERE.with_name("elastic") / "conftest.py"
sys.path.insert(0, str(HERE))


def _module(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


_elastic = _module("matrix_elastic_fixtures", ELASTIC)
elastic, lab, draw = _elastic.elastic, _elastic.lab, _elastic.draw


@pytest.fixture(scope="session")
def reference(lab: Any) -> Any:
    """The run that nothing happens to."""
    from means.bouts import job_of

    run = lab.train(job_of(lab))
    assert run.status == 0, run.stderr
    return run


@pytest.fixture(scope="session")
def memory_cgroup() -> None:
    """Skips where the kernel's answer to a lack of memory cannot be had for one process alone."""
    from means.strikes import MEMORY_CGROUPS

    probe = MEMORY_CGROUPS / f"nonuniform-probe-{os.getpid()}"
    try:
        probe.mkdir()
        (probe / "memory.limit_in_bytes").write_text("33554432")
        probe.rmdir()
    except OSError as error:
        pytest.skip(f"no memory group of its own can be made: {error}")
