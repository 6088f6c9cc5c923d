"""Published failure rates by name.

In: a file of `nonuniform/catalog/failures`. Out: causes for `generate`, each figure with its
source and how it is known. DESIGN "Two arrows". Knows nothing of the scenario that asks; what a
source does not say is in the file as assumed, and `assumptions` lists it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import Any, Literal

from nonuniform.cluster.sources.rates import Cause, observed, per_1000_node_days
from nonuniform.cluster.sources.repair import Fixed, Repair
from nonuniform.errors import BadInput

Provenance = Literal["read", "quoted", "derived", "assumed"]

_RATES = ("count", "rate_per_gpu_day", "rate_per_1000_node_days")


@dataclass(frozen=True)
class Source:
    """Where what one figure says is from."""

    figure: str
    source: str
    provenance: Provenance


@dataclass(frozen=True)
class Catalog:
    """The causes of one published cluster, whose nodes had `node` GPUs."""

    name: str
    about: str
    node: int
    causes: tuple[Cause, ...]
    sources: tuple[Source, ...]

    def assumptions(self) -> tuple[str, ...]:
        """One line for each figure that was not read in the source itself."""
        return tuple(
            f"{self.name}: {part.figure} is {part.provenance}: {part.source}"
            for part in self.sources
            if part.provenance != "read"
        )

    def scaled(self, factor: float) -> Catalog:
        """All rates times a factor."""
        causes = (replace(c, rate_per_day=c.rate_per_day * factor) for c in self.causes)
        return replace(self, causes=tuple(causes))

    def with_repair(self, name: str, repair: Repair) -> Catalog:
        """One cause repaired otherwise."""
        if name not in {cause.name for cause in self.causes}:
            known = ", ".join(cause.name for cause in self.causes)
            raise BadInput(f'catalog {self.name}: no cause "{name}", expected one of {known}')
        causes = (replace(c, repair=repair) if c.name == name else c for c in self.causes)
        return replace(self, causes=tuple(causes))


def catalog_names() -> tuple[str, ...]:
    """What `load_catalog` knows."""
    return tuple(sorted(f.name.removesuffix(".toml") for f in _folder().iterdir() if _is_data(f)))


@cache
def load_catalog(name: str) -> Catalog:
    """The published cluster of that name."""
    if name not in catalog_names():
        raise BadInput(
            f'failures: catalog = "{name}", expected one of {", ".join(catalog_names())}'
        )
    data = tomllib.loads((_folder() / f"{name}.toml").read_text(encoding="utf-8"))
    return Catalog(
        name=name,
        about=data["about"],
        node=data["gpus_per_node"],
        causes=tuple(_cause(data, part) for part in data["cause"]),
        sources=tuple(Source(**part) for part in data["figure"]),
    )


def _folder() -> resources.abc.Traversable:
    return resources.files("nonuniform.catalog") / "failures"


def _is_data(file: resources.abc.Traversable) -> bool:
    return file.name.endswith(".toml")


def _cause(data: Mapping[str, Any], part: Mapping[str, Any]) -> Cause:
    kind = part["kind"]
    per, rate = _rate(data, part)
    return Cause(
        name=part["name"],
        rate_per_day=rate * part.get("share", 1.0),
        repair=Fixed(data["repair_h"][kind]),
        per=per,
        blast=part["blast"],
    )


def _rate(data: Mapping[str, Any], part: Mapping[str, Any]) -> tuple[Literal["gpu", "node"], float]:
    """A file states a rate as it was published: as a count, per GPU-day or per 1000 node-days."""
    stated = {**{key: data[key] for key in _RATES if key in data}, **part}
    if "rate_per_1000_node_days" in stated:
        return "node", per_1000_node_days(stated["rate_per_1000_node_days"])
    if "rate_per_gpu_day" in stated:
        return "gpu", stated["rate_per_gpu_day"]
    seen = data["observed"]
    return "gpu", observed(stated["count"], units_seen=seen["gpus"], days=seen["days"])
