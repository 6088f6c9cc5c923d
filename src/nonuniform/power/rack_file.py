"""RACK.toml of `nonuniform rack`, as values of this package.

In: a path. Out: `RackFile`, checked. `[domain]` names a rack of the catalog and the losses to
survive; `[gpu]`, `[rack]` and `[cooling]` replace figures of the catalog; `[need]` says what a hurt
domain must reach. Every mistake is one line with file, section and key. Does not know: the answer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nonuniform.errors import BadInput
from nonuniform.power.catalog import SECTIONS, Entry, load_rack
from nonuniform.toml_file import read_toml
from nonuniform.toml_table import from_table

MOST = 1e4  # times its nominal performance: no GPU needs more


@dataclass(frozen=True)
class Domain:
    rack: str
    survive: int


@dataclass(frozen=True)
class RackFile:
    """`need[k]`: performance that each living GPU must reach with k GPUs lost. `seconds`: for how
    long a boost must last, infinite unless said."""

    entry: Entry
    survive: int
    need: tuple[float, ...]
    seconds: float


def load_rack_file(path: Path) -> RackFile:
    values = read_toml(path)
    known = ("domain", *SECTIONS, "need")
    for section, table in values.items():
        if section not in known:
            raise BadInput(f"{path}: unknown section [{section}], known are {', '.join(known)}")
        if not isinstance(table, dict):
            raise BadInput(f"{path}: [{section}]: must be a table")
    if "domain" not in values:
        raise BadInput(f"{path}: [domain] is missing")
    domain = from_table(Domain, values["domain"], f"{path}: [domain]")
    instead = {section: values[section] for section in SECTIONS if section in values}
    _refuse_another_size(path, domain.rack, instead.get("rack", {}))
    entry = load_rack(domain.rack, instead, str(path))
    _refuse_warm_inlet(path, entry)
    gpus = entry.rack.domain_gpus
    if not 0 <= domain.survive < gpus:
        raise BadInput(
            f"{path}: [domain] survive = {domain.survive}: must be from 0 to {gpus - 1}, one less "
            "than domain_gpus"
        )
    need, seconds, reach_s = _need(path, values.get("need", {}), gpus, domain.survive)
    in_time = replace(entry, rack=replace(entry.rack, reach_s=reach_s))
    return RackFile(in_time, domain.survive, need, seconds)


def _refuse_another_size(path: Path, name: str, own: dict[str, Any]) -> None:
    """What else a rack draws does not follow from the size of its domain."""
    missing = [key for key in ("other_w", "feed_w") if key not in own]
    if "domain_gpus" not in own or not missing or name.endswith(".toml"):
        return
    raise BadInput(
        f"{path}: [rack] domain_gpus = {own['domain_gpus']}: a domain of another size needs "
        f"{', '.join(missing)} of its own"
    )


def _refuse_warm_inlet(path: Path, entry: Entry) -> None:
    cooling = entry.cooling
    if cooling.inlet_c >= cooling.throttle_c:
        raise BadInput(
            f"{path}: [cooling] inlet_c = {cooling.inlet_c:g}: must be below throttle_c = "
            f"{cooling.throttle_c:g}"
        )


def _need(
    path: Path, table: dict[str, Any], gpus: int, survive: int
) -> tuple[tuple[float, ...], float, float]:
    where = f"{path}: [need]"
    known = ("performance", "seconds", "reach_s")
    for key in table:
        if key not in known:
            raise BadInput(f"{where}: unknown key {key}, known are {', '.join(known)}")
    need = (1.0, *(gpus / (gpus - lost) for lost in range(1, survive + 1)))
    if "performance" in table:
        need = (1.0, *_performances(where, table["performance"], survive))
    seconds = table.get("seconds", math.inf)
    if seconds != math.inf:
        seconds = _seconds(where, "seconds", seconds)
    return need, seconds, _seconds(where, "reach_s", table.get("reach_s", 10.0))


def _performances(where: str, given: object, survive: int) -> list[float]:
    if not isinstance(given, list) or not all(type(x) in (int, float) for x in given):
        raise BadInput(f"{where}: performance must be a list of numbers, for 1, 2, ... lost GPUs")
    if len(given) != survive:
        raise BadInput(
            f"{where}: performance has {len(given)} numbers, [domain] survive = {survive}"
        )
    numbers = [float(str(x)) for x in given]
    for before, after in zip([1.0, *numbers], numbers, strict=False):
        if not before <= after <= MOST:
            raise BadInput(
                f"{where}: performance has {after:g} after {before:g}: must not fall, nor be above "
                f"{MOST:g}"
            )
    return numbers


def _seconds(where: str, key: str, given: object) -> float:
    seconds = float(str(given)) if type(given) in (int, float) else math.nan
    if not 0 < seconds < math.inf:
        shown = repr(given) if math.isnan(seconds) else f"{seconds:g}"
        raise BadInput(f"{where}: {key} = {shown}: must be finite seconds above 0")
    return seconds
