"""The files of catalog/gpus/calibration, made anew from the published tables.

In: the folder of tables. Out: the text of each file; writing them is the caller's. Does not know:
the command line.
"""

from __future__ import annotations

from pathlib import Path

from nonuniform.errors import BadInput
from nonuniform.perf.calibrate import FREE, Fit, to_toml
from nonuniform.perf.validate import fit_generation

SOURCES = {
    "ampere": "fitted to Korthikanti et al. 2022 (arXiv 2205.05198), Table 5, and the measured "
    "multi-node iterations of vTrain (VIA-Research/vTrain)",
    "hopper": "fitted to the H100 table of the Megatron-LM README; gemm_fill as on Ampere",
    "blackwell": "nothing fitted: constants and intervals of Hopper",
}


def refit(folder: Path) -> dict[str, str]:
    """Generation -> text. Refused where the tables do not tell a constant."""
    fits: dict[str, Fit] = {generation: fit_generation(folder, generation) for generation in FREE}
    for generation, found in fits.items():
        if found.unidentified():
            raise BadInput(
                f"{folder}: the tables of {generation} do not tell {found.unidentified()[0]}: "
                f"its interval is {found.intervals[found.unidentified()[0]]}"
            )
    fits["blackwell"] = fits["hopper"]
    return {name: to_toml(name, found, SOURCES[name]) for name, found in fits.items()}
