"""Fits the constants of a generation to rows of published tables.

In: rows, which constants are free, where to start. Out: `Fit`: constants and their intervals.
Relative errors count, softly: a row that no spread explains must not bend the physics. Constants
that are not free keep their assumed value. Does not know: files (catalog/gpus/calibration has the
result).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy.optimize import least_squares

from nonuniform.perf.hardware import Constants, Machine, machine
from nonuniform.perf.step_time import step_time
from nonuniform.perf.tables import Row

Array = npt.NDArray[np.float64]

# Assumed where the tables cannot tell: set free, they run to their limits (docs/perf-conventions).
ASSUMED = Constants(
    gemm_share=0.9,
    gemm_fill=150.0,
    memory_share=0.85,
    link_share=0.80,
    nic_share=0.85,
    launch_s=5e-6,
    hidden_share=0.80,
    flash_share=0.85,
)
FREE: Mapping[str, tuple[str, ...]] = {
    "ampere": ("gemm_share", "gemm_fill", "launch_s"),
    "hopper": ("gemm_share", "hidden_share"),
}
TABLES: Mapping[str, tuple[str, ...]] = {
    "ampere": ("korthikanti", "vtrain"),
    "hopper": ("h100-readme",),
}
_LIMITS = {
    "gemm_share": (0.3, 1.2),
    "gemm_fill": (1.0, 5000.0),
    "memory_share": (0.2, 1.0),
    "link_share": (0.1, 1.0),
    "nic_share": (0.05, 1.0),
    "launch_s": (1e-7, 2e-4),
    "hidden_share": (0.01, 1.0),
    "flash_share": (0.2, 1.2),
}
SOFT = 0.05  # errors above 5% count less than their square
IDENTIFIED = 5.0  # an interval is narrow enough if its ends differ by less than this factor


@dataclass(frozen=True)
class Fit:
    """`intervals`: 95%, from the curvature at the optimum, on a logarithmic scale."""

    constants: Constants
    intervals: dict[str, tuple[float, float]]

    def unidentified(self) -> list[str]:
        """Constants that the rows do not tell."""
        return [key for key, (low, high) in self.intervals.items() if not high / low < IDENTIFIED]


def predict(constants: Constants, rows: Sequence[Row]) -> Array:
    """Seconds of each row; of several spreads that a table allows the fastest."""
    machines: dict[int, Machine] = {}
    found = []
    for row in rows:
        here = machines.setdefault(id(row.gpu), machine(row.gpu, constants))
        spreads = row.choices or (row.parallel,)
        found.append(min(step_time(here, row.work, p).total_s for p in spreads))
    return np.array(found)


def errors(constants: Constants, rows: Sequence[Row]) -> Array:
    """Relative: 0.05 is 5% too slow."""
    measured: Array = np.array([row.measured_s for row in rows])
    return np.asarray(predict(constants, rows) / measured - 1.0)


def start(generation: str, ampere: Constants | None = None) -> Constants:
    """Hopper has few rows: what it loses to fill a tile is taken over from Ampere."""
    if generation == "hopper" and ampere:
        return replace(ASSUMED, gemm_fill=ampere.gemm_fill)
    return ASSUMED


def fit(rows: Sequence[Row], free: Sequence[str], begin: Constants) -> Fit:
    values = asdict(begin)
    low, high = (np.log([_LIMITS[key][end] for key in free]) for end in (0, 1))

    def constants_at(x: Array) -> Constants:
        return replace(begin, **{key: float(v) for key, v in zip(free, np.exp(x), strict=True)})

    measured = np.array([row.measured_s for row in rows])
    answer = least_squares(
        lambda x: np.log(predict(constants_at(x), rows) / measured),
        np.clip(np.log([values[key] for key in free]), low + 1e-6, high - 1e-6),
        bounds=(low, high),
        loss="soft_l1",
        f_scale=SOFT,
        diff_step=1e-4,
    )
    spread = _spread(answer.jac, float(answer.cost), len(rows))
    ends = zip(free, answer.x - spread, answer.x + spread, strict=True)
    intervals = {
        key: (float(np.exp(lower)), min(float(np.exp(upper)), _LIMITS[key][1]))
        for key, lower, upper in ends
    }
    return Fit(constants_at(answer.x), intervals)


def _spread(jacobian: Array, cost: float, rows: int) -> Array:
    """Half of a 95% interval for each unknown."""
    curvature = jacobian.T @ jacobian
    variance = 2 * cost / max(1, rows - jacobian.shape[1])
    sd = np.sqrt(np.maximum(np.diag(np.linalg.pinv(curvature)) * variance, 0.0))
    # A direction without curvature is not known at all.
    sd = np.where(np.diag(curvature) < 1e-12, np.inf, sd)
    return np.asarray(1.96 * np.minimum(sd, 50.0))


def to_toml(generation: str, found: Fit, source: str) -> str:
    """As catalog/gpus/calibration holds it."""
    lines = [f"# Constants of the generation {generation}: see perf/hardware.py.", ""]
    lines += [f'source = "{source}"', "", "[constants]"]
    lines += [f"{key} = {value:.6g}" for key, value in asdict(found.constants).items()]
    lines += ["", "[intervals]    # 95%; what is not here is assumed, not fitted"]
    lines += [f"{key} = [{low:.6g}, {high:.6g}]" for key, (low, high) in found.intervals.items()]
    return "\n".join(lines) + "\n"
