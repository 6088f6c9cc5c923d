"""The stand-ins for shards are shared with the tests of the runtime."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "train"))
