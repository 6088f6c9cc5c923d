"""News of GPUs from a file that an exporter writes anew again and again.

In: JSON `{"gpus": {"NAME": {"time_s": ..., "temperature_c": ...}}}`. Out: a sample for each GPU
whose `time_s` is later than it was when last looked. So no clock is compared with another one, and
a file that is written again with old figures is no news; nor is what it says at the first look.

Write the file elsewhere and rename it: one that is half written is not read. A GPU may be named as
it is asked for or, with NVML, by its index on this host.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from nonuniform.power.lease_values import Sample

_LONGEST = 1 << 22  # more is no news of one host, and what is cut off is no JSON


class TelemetryFile:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._last_s: dict[str, float] = {}

    def samples(self) -> list[Sample]:
        try:
            with open(self._path, "rb") as file:
                gpus = json.loads(file.read(_LONGEST))["gpus"].items()
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
            return []  # no news; what that means is decided elsewhere
        return [sample for gpu, figures in gpus if (sample := self._news(gpu, figures))]

    def _news(self, gpu: str, figures: Any) -> Sample | None:
        try:
            time_s, temperature_c = float(figures["time_s"]), float(figures["temperature_c"])
        except (LookupError, TypeError, ValueError, OverflowError):
            return None
        before_s = self._last_s.setdefault(gpu, time_s)
        if not (time_s > before_s and temperature_c > -273.15):  # also where one is not a number
            return None
        self._last_s[gpu] = time_s
        return Sample(gpu, temperature_c)
