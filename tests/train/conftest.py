"""Makes the stand-ins of this folder importable, and lends a launcher over some of them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
torch.set_num_threads(1)  # ranks are threads here, and the arithmetic must not depend on cores

from standins.ghost_runs import Run  # noqa: E402  (only now it can be found)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    return Run(tmp_path, monkeypatch)
