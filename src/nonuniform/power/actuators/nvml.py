"""The power limit of an NVIDIA GPU, by NVML.

In: a GPU by its UUID, or by its index on this machine. Out: `nvmlDeviceSetPowerManagementLimit`.
Needs the package nvidia-ml-py (extra `ops`), and root to set. UNTESTED ON HARDWARE: written from
NVML's documentation and tested against a stand-in for the module.

Prefer UUIDs: an index may name another GPU once one has fallen off the bus, and a set point must be
restored on the GPU on which it was raised.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from nonuniform.errors import BadInput
from nonuniform.power.actuators.base import ActuatorRefused, LimitsW

_MW_PER_W = 1000.0
_STEP_W = 1.0  # what a GPU may round a limit by


class Nvml:
    def __init__(self) -> None:
        self._nvml = _load()

    def read_w(self, gpu: str) -> float:
        limit_mw = self._ask("nvmlDeviceGetPowerManagementLimit", gpu)
        return float(limit_mw) / _MW_PER_W

    def set_w(self, gpu: str, watts: float) -> None:
        """Also refused where a lower limit from elsewhere (the board, another manager) is what
        the GPU obeys: the power would never come."""
        self._ask("nvmlDeviceSetPowerManagementLimit", gpu, round(watts * _MW_PER_W))
        enforced_w = float(self._ask("nvmlDeviceGetEnforcedPowerLimit", gpu)) / _MW_PER_W
        if enforced_w < watts - _STEP_W:
            raise ActuatorRefused(
                f"GPU {gpu} was set to {watts:g} W and obeys a limit of {enforced_w:g} W"
            )

    def limits_w(self, gpu: str) -> LimitsW:
        lowest_mw, highest_mw = self._ask("nvmlDeviceGetPowerManagementLimitConstraints", gpu)
        return LimitsW(lowest_mw / _MW_PER_W, highest_mw / _MW_PER_W)

    def uuids(self, gpus: Sequence[str]) -> tuple[str, ...]:
        """Names that stay with a GPU; BadInput for one that is not there."""
        try:
            return tuple(str(self._ask("nvmlDeviceGetUUID", gpu)) for gpu in gpus)
        except ActuatorRefused as error:
            raise BadInput(f"--gpus: {error}") from None

    def _ask(self, function: str, gpu: str, *rest: Any) -> Any:
        nvml = self._nvml
        try:
            by_index = gpu.isascii() and gpu.isdigit()
            handle = (
                nvml.nvmlDeviceGetHandleByIndex(int(gpu))
                if by_index
                else nvml.nvmlDeviceGetHandleByUUID(gpu)
            )
            return getattr(nvml, function)(handle, *rest)
        except nvml.NVMLError as error:
            raise ActuatorRefused(f"{function} of GPU {gpu}: {error}") from None


def _load() -> Any:
    try:
        nvml = importlib.import_module("pynvml")
    except ModuleNotFoundError:
        raise BadInput(
            "--actuator nvml needs nvidia-ml-py: pip install 'nonuniform[ops]'"
        ) from None
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        raise BadInput(f"--actuator nvml: NVML does not start here: {error}") from None
    return nvml
