"""The invented runs of `rehearsal.py`, for the view and the demo; settings for a busy machine."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import settings

settings.register_profile("no deadline", deadline=None)  # other processes take the time
settings.load_profile("no deadline")

REHEARSAL = Path(__file__).with_name("view") / "rehearsal.py"


@pytest.fixture(scope="session")
def rehearsal() -> ModuleType:
    """A plain file, not a test module: loaded by its path in every import mode."""
    spec = importlib.util.spec_from_file_location("rehearsal_of_runs", REHEARSAL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
