"""GPUs that are files in a folder, so that several processes see them, and a test hurts them.

In: a folder. Out: set points in `NAME.w`, and every `set_w` as a line of `set.log`. What a test may
put there: `NAME.ceiling` (watts; more is clamped in silence), `NAME.refuses` (the reason why a set
fails), `NAME.silent` (reads fail), `NAME.hangs` (a set returns only when that file is gone).
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from nonuniform.power.actuators.base import ActuatorRefused, LimitsW


class FakeGpus:
    def __init__(self, folder: Path, limits: LimitsW) -> None:
        self.folder = folder
        self._limits = limits

    def read_w(self, gpu: str) -> float:
        if self._file(gpu, "silent").exists():
            raise ActuatorRefused(f"GPU {gpu} does not answer")
        try:
            return float(self._file(gpu, "w").read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ActuatorRefused(f"GPU {gpu}: {error}") from None

    def set_w(self, gpu: str, watts: float) -> None:
        while self._file(gpu, "hangs").exists():
            time.sleep(0.01)
        with open(self.folder / "set.log", "a", encoding="utf-8") as log:
            log.write(f"{gpu} {watts:g}\n")
        refuses, ceiling = self._file(gpu, "refuses"), self._file(gpu, "ceiling")
        if refuses.exists():
            raise ActuatorRefused(refuses.read_text(encoding="utf-8").strip() or "no permission")
        if ceiling.exists():
            watts = min(watts, float(ceiling.read_text(encoding="utf-8")))
        self.put(gpu, watts)

    def limits_w(self, gpu: str) -> LimitsW:
        return self._limits

    def put(self, gpu: str, watts: float) -> None:
        """As if somebody else had set it."""
        part = self._file(gpu, "part")
        part.write_text(f"{watts!r}\n", encoding="utf-8")
        os.replace(part, self._file(gpu, "w"))

    def _file(self, gpu: str, kind: str) -> Path:
        return self.folder / f"{gpu.replace('/', '_')}.{kind}"
