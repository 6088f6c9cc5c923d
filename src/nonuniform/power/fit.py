"""The shape of the power curve, fitted: `python -m nonuniform.power.fit --tables DIR`.

In: a folder with perseus_a100_a40_freq_power_curve.csv, power_vs_perf_points.csv and
rack_power.csv, or one with hardware/ in it. Out: the text of
catalog/racks/calibration/curve.toml, on stdout. Every curve counts the same, however many points it
has. Points of one curve are not independent: the interval of a constant is that of leaving out one
curve after the other (jackknife).

Does not know: newer GPUs. Their published points have no curve, and rows marked UNVERIFIED or
without numbers are left alone.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import curve_fit
from scipy.stats import t as student

from nonuniform.errors import BadInput
from nonuniform.power.curve import Curve, Shape

PERSEUS = "perseus_a100_a40_freq_power_curve.csv"
CAPS = "power_vs_perf_points.csv"
RACKS = "rack_power.csv"
_PAPER = "NTP perf/W loss at 1.1x / 1.2x power (TP30)"
_CAPPED = ("V100", "A40")  # the rest of that table has single points, or no numbers
Array = NDArray[np.float64]


class Points(NamedTuple):
    """One measured curve, relative to its highest clock or cap."""

    name: str
    performance: Array
    power: Array


class CurveFit(NamedTuple):
    """`intervals`: 95% of the middle shape's constants."""

    curve: Curve
    intervals: dict[str, tuple[float, float]]
    rms: float
    series: tuple[str, ...]


def read_series(folder: Path) -> tuple[Points, ...]:
    """The measured curves; those of Perseus have relative values, the capped ones are divided."""
    found: dict[str, list[tuple[float, float]]] = {}
    for row in _rows(folder, PERSEUS):
        key = f"{row['gpu']} {row['model']}"
        pair = (_number(row, "relative_throughput"), _number(row, "relative_power"))
        found.setdefault(key, []).append(pair)
    for row in _rows(folder, CAPS):
        if row["gpu"] in _CAPPED:
            pair = (_number(row, "relative_throughput"), _number(row, "avg_power_W"))
            found.setdefault(f"{row['gpu']} {row['knob']}", []).append(pair)
    return tuple(_relative(name, pairs) for name, pairs in found.items())


def fit(folder: Path) -> CurveFit:
    folder = folder / "hardware" if (folder / "hardware").is_dir() else folder
    series = read_series(folder)
    middle = _shape(series)
    steep = max((_shape([one]) for one in series if len(one.power) > 30), key=_slope)
    perseus = [one for one in series if one.name.startswith("a100")]
    lowest = min(float(one.performance.min()) for one in perseus)
    errors = np.concatenate([_law(s.performance, *_pair(middle)) - s.power for s in series])
    return CurveFit(
        Curve(middle, Shape(0.0, _paper_exponent(folder)), steep, round(lowest, 4)),
        _intervals(series, middle),
        float(np.sqrt(np.mean(errors**2))),
        tuple(one.name for one in series),
    )


def to_toml(found: CurveFit) -> str:
    c = found.curve
    lines = [
        "# Shape of power against performance: see power/curve.py. Written by",
        "# `python -m nonuniform.power.fit --tables DIR`.",
        "",
        f'source = "{_SOURCE}"',
        'date = "2026-11"',
        f"measured_from = {c.measured_from:.6g}    # of the performance at the highest clock",
        "",
    ]
    for name, shape, told in zip(("middle", "flat", "steep"), c.shapes, _TOLD, strict=True):
        lines += [f"[{name}]    # {told}", f"static_share = {shape.static_share:.6g}"]
        lines += [f"exponent = {shape.exponent:.6g}", ""]
    lines.append("[intervals]    # 95% of [middle], by leaving out one curve after the other")
    for key, (low, high) in found.intervals.items():
        lines.append(f"{key} = [{low:.6g}, {high:.6g}]")
    return "\n".join(lines) + "\n"


_SOURCE = (
    "fitted to relative power and throughput of Perseus (A100, A40; GPT-3 and BLOOM stages, "
    "clock) and Zeus (V100, A40; BERT, power cap); flat edge from the simulated perf/W of "
    "arXiv 2504.06095"
)
_TOLD = (
    "all measured curves together, each counting the same",
    "no static part: the two points that arXiv 2504.06095 gives, simulated, not measured",
    "the steepest curve measured over at least 30 clocks",
)


def _paper_exponent(folder: Path) -> float:
    """Least squares on the logarithms of 'a loss of a / b % of performance per watt'."""
    for row in _rows(folder, RACKS):
        if row["item"] == _PAPER:
            losses = [float(part) / 100 for part in row["value"].split("/")]
            power = np.log([1.1, 1.2])
            speed = power + np.log1p(-np.array(losses))
            return float(speed @ power / (speed @ speed))
    raise BadInput(f"{folder / RACKS}: has no row {_PAPER!r}")


def _intervals(series: Sequence[Points], middle: Shape) -> dict[str, tuple[float, float]]:
    count = len(series)
    left = np.array([_pair(_shape([*series[:i], *series[i + 1 :]])) for i in range(count)])
    spread = np.sqrt((count - 1) / count * ((left - left.mean(axis=0)) ** 2).sum(axis=0))
    reach = float(student.ppf(0.975, count - 1)) * spread
    keys = ("static_share", "exponent")
    return {
        key: (max(0.0, value - float(by)), value + float(by))
        for key, value, by in zip(keys, _pair(middle), reach, strict=True)
    }


def _shape(series: Sequence[Points]) -> Shape:
    x = np.concatenate([one.performance for one in series])
    w = np.concatenate([one.power for one in series])
    sigma = np.concatenate([np.full(len(one.power), len(one.power) ** 0.5) for one in series])
    limits = ([0.0, 1.0], [0.99, 20.0])
    found, _ = curve_fit(_law, x, w, p0=(0.4, 5.0), sigma=sigma, bounds=limits)
    return Shape(float(found[0]), float(found[1]))


def _law(performance: Array, static_share: float, exponent: float) -> Array:
    return np.asarray(static_share + (1 - static_share) * performance**exponent)


def _pair(shape: Shape) -> tuple[float, float]:
    return shape.static_share, shape.exponent


def _slope(shape: Shape) -> float:
    return (1 - shape.static_share) * shape.exponent


def _relative(name: str, pairs: list[tuple[float, float]]) -> Points:
    performance, power = np.array(pairs).T
    top = int(np.argmin(np.abs(performance - 1)))
    return Points(name, performance, power / power[top])


def _rows(folder: Path, name: str) -> list[dict[str, str]]:
    path = folder / name
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            return list(csv.DictReader(stream))
    except FileNotFoundError:
        raise BadInput(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadInput(f"{path}: cannot be read: {error}") from None


def _number(row: dict[str, str], key: str) -> float:
    try:
        return float(row[key])
    except (KeyError, TypeError, ValueError):
        raise BadInput(f"a measured curve has no number for {key}: {row}") from None


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m nonuniform.power.fit", description=__doc__)
    parser.add_argument("--tables", type=Path, required=True, help="folder with the curves")
    try:
        found = fit(parser.parse_args(arguments).tables)
    except BadInput as error:
        sys.stderr.write(f"nonuniform: {error}\n")
        return error.exit_status
    sys.stdout.write(to_toml(found))
    sys.stderr.write(f"{len(found.series)} curves, root mean square error {found.rms:.4f}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
