"""Makes the stand-ins of this folder importable."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))
torch.set_num_threads(1)  # ranks are threads here, and the arithmetic must not depend on cores
