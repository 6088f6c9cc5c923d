"""The GPUs that someone has or means to buy: a name of the catalog, or a TOML of ten lines.

In: a name or a path, and how many GPUs. Out: `ClusterDescription` and its facts. DESIGN "Plan and
report". Does not know: jobs, failures, or what anything costs; prices are handed on as they are
written.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nonuniform.cluster.fleet import Fleet
from nonuniform.errors import BadInput
from nonuniform.perf.catalog import CATALOG, known
from nonuniform.planner.jobs.account import Word, whole
from nonuniform.planner.jobs.fact import Fact, Kind, shown
from nonuniform.planner.jobs.source import parse_toml, read_text

KEYS = ("name", "gpus", "gpu", "domain", "node", "used")
SIZES = ("gpus", "domain", "node", "used")
NODE = 8  # GPUs of a node where a file does not say


@dataclass(frozen=True)
class ClusterDescription:
    """`gpu`: a name of catalog/gpus. `used`: GPUs of a domain that jobs use where that is less than
    all. `prices`: key and value as the file has them."""

    name: str
    gpus: int
    domain: int
    node: int
    gpu: str
    used: int
    prices: tuple[tuple[str, float | str], ...]
    facts: tuple[Fact, ...]
    format: str = "catalog"

    @property
    def fleet(self) -> Fleet:
        return Fleet(self.gpus, self.domain, self.node)


@dataclass(frozen=True)
class _Said:
    path: str
    name: str
    words: Mapping[str, Word]
    prices: tuple[tuple[str, float | str], ...] = ()
    about: str = ""


def read_cluster(name_or_path: str | Path, gpus: int | None = None) -> ClusterDescription:
    """`gpus` goes before what the file says."""
    text = str(name_or_path)
    own = text.endswith(".toml") or "/" in text or isinstance(name_or_path, Path)
    said = _own(Path(text)) if own else _of_catalog(text)
    words = dict(said.words)
    if gpus is not None:
        before = words.get("gpus")
        note = "--gpus" if before is None else f"--gpus; the file says {before.whole:,}"
        words["gpus"] = Word(whole("--gpus", gpus), note)
    if "gpus" not in words:
        where = "say it with --gpus" + (" or [cluster] gpus" if own else "")
        raise BadInput(f"{said.path}: how many GPUs are there? {where}")
    return _described(said, words, "toml" if own else "catalog")


def names() -> list[str]:
    return known("clusters")


def _described(said: _Said, words: dict[str, Word], form: str) -> ClusterDescription:
    words.setdefault("node", _assumed_node(words))
    words.setdefault("used", Word(words["domain"].whole, "all of a domain", "derived"))
    domain, used = words["domain"].whole, words["used"].whole
    if used > domain:
        raise BadInput(f"{said.path}: used = {used} is more than domain = {domain}")
    try:
        fleet = Fleet(words["gpus"].whole, domain, words["node"].whole)
    except BadInput as error:
        raise BadInput(f"{said.path}: {error}") from None
    return ClusterDescription(
        name=said.name,
        gpus=fleet.gpus,
        domain=domain,
        node=fleet.node,
        gpu=str(words["gpu"].value),
        used=used,
        prices=said.prices,
        facts=_facts(said, words, fleet),
        format=form,
    )


def _assumed_node(words: Mapping[str, Word]) -> Word:
    domain = words["domain"].whole
    note = "not in the file" if domain >= NODE else "not in the file: not more than a domain"
    return Word(min(NODE, domain), note, "assumed")


def _facts(said: _Said, words: Mapping[str, Word], fleet: Fleet) -> tuple[Fact, ...]:
    about = f"cluster {said.name}"
    facts = [Fact(about, "cluster", said.about, "catalog")] if said.about else []
    texts = {
        "gpus": "GPUs",
        "gpu": "kind of GPU",
        "domain": "GPUs of a domain",
        "node": "GPUs of a node",
    }
    for key, name in texts.items():
        word = words[key]
        text = f"{word.value:,}" if isinstance(word.value, int) else str(word.value)
        facts.append(Fact(about, name, text, word.note, word.kind))
    equation = f"{fleet.gpus:,} / {fleet.domain}"
    facts.append(Fact(about, "domains", _domains(fleet), equation, "derived"))
    used = words["used"]
    if used.whole < fleet.domain:
        text = (
            f"jobs in powers of two use {used.whole} of {fleet.domain} GPUs of a domain; "
            f"{fleet.domain - used.whole} are left for spares or other work"
        )
        facts.append(Fact(about, "use of a domain", text, used.note, used.kind))
    facts += [
        Fact(about, f"price {shown(key, 60)}", shown(str(value), 60), "[prices]")
        for key, value in said.prices
    ]
    return tuple(facts)


def _domains(fleet: Fleet) -> str:
    whole_ones = (
        f"{fleet.domains:,} whole {'domain' if fleet.domains == 1 else 'domains'} of {fleet.domain}"
    )
    if not fleet.leftover:
        return whole_ones
    return f"{whole_ones} + {fleet.leftover} GPUs left over: owned, in no whole domain, not used"


def _of_catalog(name: str) -> _Said:
    plain = name.strip().lower().replace("_", "-").replace(" ", "-")
    aliases: dict[str, str] = {}
    for stem in names():
        aliases[stem] = stem
        for alias in _file(stem).get("aliases", []):
            aliases.setdefault(alias, stem)
    if plain not in aliases:
        near = difflib.get_close_matches(plain, aliases, n=1)
        more = f", did you mean {aliases[near[0]]}?" if near else ""
        all_of_them = f"known are {', '.join(names())}, or a TOML file"
        raise BadInput(f"unknown cluster {shown(name, 60)!r}{more or ','} {all_of_them}")
    stem = aliases[plain]
    table = _file(stem)
    sources = {figure["figure"]: figure for figure in table.get("figure", [])}
    words = {
        key: _catalogued(stem, key, table[key], sources) for key in ("gpu", *SIZES) if key in table
    }
    return _Said(stem, stem, words, about=str(table["about"]))


def _file(stem: str) -> dict[str, Any]:
    path = CATALOG / "clusters" / f"{stem}.toml"
    return parse_toml(path, read_text(path))


def _catalogued(
    stem: str, key: str, value: int | str, sources: Mapping[str, Mapping[str, str]]
) -> Word:
    figure = sources.get(key)
    if figure is None:
        return Word(value, f"catalog {stem}")
    kind: Kind = "assumed" if figure["provenance"] == "assumed" else "stated"
    date = f", {figure['date']}" if "date" in figure else ""
    return Word(value, f"{figure['source']}{date}", kind)


def _own(path: Path) -> _Said:
    values = parse_toml(path, read_text(path))
    for section in values:
        if section not in ("cluster", "prices"):
            raise BadInput(
                f"{path}: unknown section [{shown(section, 40)}], known are cluster, prices"
            )
    table, prices = values.get("cluster"), values.get("prices", {})
    if not isinstance(table, dict) or not isinstance(prices, dict):
        raise BadInput(
            f"{path}: [cluster] is missing"
            if table is None
            else f"{path}: [cluster] and [prices] must be tables"
        )
    for key in table:
        if key not in KEYS:
            near = difflib.get_close_matches(key, KEYS, n=1)
            more = f", did you mean {near[0]}?" if near else f", known are {', '.join(KEYS)}"
            raise BadInput(f"{path}: [cluster] unknown key {shown(key, 40)}{more}")
    words = {
        key: Word(whole(f"{path}: [cluster] {key}", table[key]), f"[cluster] {key}")
        for key in SIZES
        if key in table
    }
    for key in ("gpu", "domain"):
        if key not in table:
            raise BadInput(f"{path}: [cluster] {key} is missing")
    if table["gpu"] not in known("gpus"):
        kinds = ", ".join(known("gpus"))
        raise BadInput(
            f"{path}: [cluster] gpu = {shown(str(table['gpu']), 40)!r}: known are {kinds}"
        )
    words["gpu"] = Word(table["gpu"], "[cluster] gpu")
    name = shown(str(table.get("name", path.stem)))
    return _Said(str(path), name, words, _prices(path, prices))


def _prices(path: Path, table: Mapping[str, object]) -> tuple[tuple[str, float | str], ...]:
    """Their meaning is checked by who uses them; here only that they are numbers or text."""
    found: list[tuple[str, float | str]] = []
    for key, value in table.items():
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise BadInput(f"{path}: [prices] {shown(key, 40)}: must be a number or text")
        found.append((key, value if isinstance(value, str) else float(value)))
    return tuple(found)
