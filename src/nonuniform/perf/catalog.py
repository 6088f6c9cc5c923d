"""What is known of GPUs and models: TOML files beside the code, or a person's own.

In: a name of the catalog, or a path. Out: `Gpu`, `Model`, `Constants`. Units are in the keys, and a
key that is missing or unknown is refused with the file's name. Does not know: what they are for.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import nonuniform
from nonuniform.errors import BadInput
from nonuniform.perf.hardware import Constants, Gpu, Machine, machine
from nonuniform.perf.model import Model
from nonuniform.toml_file import read_toml
from nonuniform.toml_table import from_table

CATALOG = Path(nonuniform.__file__).parent / "catalog"


def load_gpu(name: str) -> Gpu:
    path = _path("gpus", name)
    return from_table(Gpu, read_toml(path), str(path), least=0)


@lru_cache(maxsize=64)
def load_model(name: str) -> Model:
    path = _path("models", name)
    return from_table(Model, {"name": path.stem, **read_toml(path)}, str(path), least=0)


def load_constants(generation: str) -> Constants:
    path = _path("gpus/calibration", generation)
    table = read_toml(path).get("constants", {})
    return from_table(Constants, table, f"{path}: [constants]", least=0)


def load_intervals(generation: str) -> dict[str, tuple[float, float]]:
    """95% intervals of those constants that were fitted."""
    table = read_toml(_path("gpus/calibration", generation)).get("intervals", {})
    return {key: (float(low), float(high)) for key, (low, high) in table.items()}


def load_machine(name: str, clock: float = 1.0) -> Machine:
    gpu = load_gpu(name)
    return machine(gpu, load_constants(gpu.generation), clock)


def known(folder: str) -> list[str]:
    return sorted(path.stem for path in (CATALOG / folder).glob("*.toml"))


def _path(folder: str, name: str) -> Path:
    """Something with a slash or an ending is a person's own file."""
    if "/" in name or name.endswith(".toml"):
        return Path(name)
    names = known(folder)
    if name not in names:
        what = folder.split("/")[-1].removesuffix("s")
        raise BadInput(f"unknown {what} {name!r}, known are {', '.join(names)}")
    return CATALOG / folder / f"{name}.toml"
