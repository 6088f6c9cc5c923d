"""What is known of racks: TOML files beside the code, or a person's own.

In: the name of a rack, or a path, and what a file says instead. Out: `Rack`, `Cooling`, and which
of their figures are assumed rather than published. Units are in the keys; a key that is missing or
unknown is refused with the file's name. Does not know: what the figures are for.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import nonuniform
from nonuniform.errors import BadInput
from nonuniform.power.curve import Curve, GpuPower, Shape
from nonuniform.power.rack import Rack
from nonuniform.power.thermal import Cooling
from nonuniform.toml_file import read_toml
from nonuniform.toml_table import from_table

RACKS = Path(nonuniform.__file__).parent / "catalog" / "racks"
SECTIONS = ("gpu", "rack", "cooling")
Table = dict[str, Any]
T = TypeVar("T")


@dataclass(frozen=True)
class Entry:
    """A rack of the catalog as values, with what is known of their origin."""

    name: str
    rack: Rack
    cooling: Cooling
    source: str
    assumed: tuple[str, ...]


def known_racks() -> list[str]:
    return sorted(path.stem for path in RACKS.glob("*.toml"))


@lru_cache(maxsize=1)
def load_curve() -> Curve:
    path = RACKS / "calibration" / "curve.toml"
    values = read_toml(path)
    middle, flat, steep = (
        from_table(Shape, values[key], f"{path}: [{key}]") for key in ("middle", "flat", "steep")
    )
    return Curve(middle, flat, steep, float(values["measured_from"]))


def load_rack(name: str, instead: dict[str, Table] | None = None, where: str = "") -> Entry:
    """The rack `name`; `instead` has keys by section that replace those of the catalog. `where`:
    the file that `instead` is from, for what is said of it."""
    path = _path(name)
    values = read_toml(path)
    for key in values:
        if key not in ("name", "notes", *SECTIONS):
            raise BadInput(f"{path}: unknown section [{key}], known are {', '.join(SECTIONS)}")
    own = instead or {}
    parts = {part: {**_table(values, part, path), **own.get(part, {})} for part in SECTIONS}
    told = where or str(path)
    _refuse_not_given(parts, told)
    gpu = _made(GpuPower, {**parts["gpu"], "curve": load_curve()}, f"{told}: [gpu]")
    rack = _made(Rack, {**parts["rack"], "gpu": gpu}, f"{told}: [rack]")
    cooling = from_table(Cooling, parts["cooling"], f"{told}: [cooling]")
    notes = _table(values, "notes", path)
    given = {key for part in own.values() for key in part}
    assumed = _still_assumed(tuple(notes.get("assumed", ())), given)
    label = str(values.get("name", path.stem))
    return Entry(label, rack, cooling, str(notes.get("source", path)), assumed)


_NOT_GIVEN = ("curve", "gpu", "reach_s")
_MEASURABLE = ("r_junction_c_per_w", "r_plate_c_per_w", "flow_l_per_min")


def _still_assumed(assumed: tuple[str, ...], given: set[str]) -> tuple[str, ...]:
    """Cooling counts as given once its resistances and flow are."""
    known = given | ({"cooling"} if given.issuperset(_MEASURABLE) else set())
    return tuple(key for key in assumed if key not in known)


def _refuse_not_given(parts: dict[str, Table], told: str) -> None:
    for part, table in parts.items():
        for key in _NOT_GIVEN:
            if key in table:
                raise BadInput(f"{told}: [{part}]: unknown key {key}")


def _path(name: str) -> Path:
    """Something with a slash or an ending is a person's own file."""
    if "/" in name or name.endswith(".toml"):
        return Path(name)
    if name not in known_racks():
        raise BadInput(f"unknown rack {name!r}, known are {', '.join(known_racks())}")
    return RACKS / f"{name}.toml"


def _table(values: Table, key: str, path: Path) -> Table:
    table = values.get(key, {})
    if not isinstance(table, dict):
        raise BadInput(f"{path}: [{key}]: must be a table")
    return table


def _made(kind: type[T], table: Table, where: str) -> T:
    """As `from_table`, for a kind that holds values which no such section gives."""
    return from_table(kind, table, where, hidden=_NOT_GIVEN)
