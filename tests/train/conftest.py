"""Makes the stand-ins of this folder importable; settings that hold on a busy machine too."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))
torch.set_num_threads(1)  # ranks are threads here, and the arithmetic must not depend on cores
settings.register_profile("no deadline", deadline=None)  # other processes take the time
settings.load_profile("no deadline")
