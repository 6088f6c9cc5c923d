"""What is known of GPUs and models: TOML files beside the code, or a person's own.

In: a name of the catalog, or a path. Out: `Gpu`, `Model`, `Constants`. Units are in the keys, and a
key that is missing or unknown is refused with the file's name. Does not know: what they are for.
"""

from __future__ import annotations

import difflib
from dataclasses import MISSING, fields
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import nonuniform
from nonuniform.errors import BadInput
from nonuniform.perf.hardware import Constants, Gpu, Machine, machine
from nonuniform.perf.model import Model
from nonuniform.toml_file import read_toml

CATALOG = Path(nonuniform.__file__).parent / "catalog"
T = TypeVar("T")


def load_gpu(name: str) -> Gpu:
    path = _path("gpus", name)
    return from_table(Gpu, read_toml(path), str(path))


@lru_cache(maxsize=64)
def load_model(name: str) -> Model:
    path = _path("models", name)
    return from_table(Model, {"name": path.stem, **read_toml(path)}, str(path))


def load_constants(generation: str) -> Constants:
    path = _path("gpus/calibration", generation)
    table = read_toml(path).get("constants", {})
    return from_table(Constants, table, f"{path}: [constants]")


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


def from_table(kind: type[T], table: dict[str, Any], where: str) -> T:
    """A dataclass of plain values from a table, or one line that says which key is wrong."""
    hints = get_type_hints(kind)
    known_keys = {field.name: field for field in fields(kind)}  # type: ignore[arg-type]
    for key in table:
        if key not in known_keys:
            near = difflib.get_close_matches(key, known_keys, n=1, cutoff=0.4)
            more = f", did you mean {near[0]}?" if near else f", known are {', '.join(known_keys)}"
            raise BadInput(f"{where}: unknown key {key}{more}")
    missing = [k for k, field in known_keys.items() if k not in table and field.default is MISSING]
    if missing:
        raise BadInput(
            f"{where}: {', '.join(missing)} {'is' if len(missing) < 2 else 'are'} missing"
        )
    for key, value in table.items():
        _check_type(where, key, value, hints[key])
    return kind(**table)


def _check_type(where: str, key: str, value: object, hint: object) -> None:
    wanted: dict[object, tuple[type, ...]] = {
        int: (int,),
        float: (int, float),
        bool: (bool,),
        str: (str,),
    }
    allowed = wanted.get(hint, (str,))
    right = isinstance(value, allowed) and (hint is bool or not isinstance(value, bool))
    if not right:
        name = getattr(hint, "__name__", "string")
        raise BadInput(f"{where}: {key} = {value!r}: must be of type {name}")
    if hint is float and not 0 <= float(str(value)) < float("inf"):
        raise BadInput(f"{where}: {key} = {value}: must be 0 or more and finite")
