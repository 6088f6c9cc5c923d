"""CONFIG.toml of `nonuniform perf`, as values of this package.

In: a path. Out: `Config`, checked: hardware and models are names of the catalog or tables of their
own. Every mistake is one line with the file, the section and the key. Does not know: the answer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

from nonuniform.errors import BadInput
from nonuniform.perf.catalog import load_constants, load_gpu, load_model
from nonuniform.perf.hardware import Gpu, Machine, machine
from nonuniform.perf.model import Model
from nonuniform.perf.nonuniform import Cut
from nonuniform.perf.parallelism import Parallel, Work, check, refuse_values
from nonuniform.toml_file import read_toml
from nonuniform.toml_table import from_table

SECTIONS = ("hardware", "model", "batch", "parallel", "nonuniform")


@dataclass(frozen=True)
class Hardware:
    """`[hardware]`: a GPU of the catalog; 0 leaves a value as the catalog has it."""

    gpu: str
    gpus: int
    domain_gpus: int = 0
    nic_gb_per_s: float = 0.0
    clock: float = 1.0


@dataclass(frozen=True)
class Batch:
    sequences: int
    length: int


@dataclass(frozen=True)
class Config:
    """`degrees`: of hurt replicas to be looked at, `cut` how their heads are cut."""

    machine: Machine
    gpus: int
    work: Work
    parallel: Parallel
    degrees: tuple[int, ...]
    cut: Cut


def load_config(path: Path, searching: bool = False) -> Config:
    """`searching`: `[parallel]` says only what the program does; its sizes are not checked."""
    values = read_toml(path)
    for section in values:
        if section not in SECTIONS:
            raise BadInput(f"{path}: unknown section [{section}], known are {', '.join(SECTIONS)}")
    for section in ("hardware", "model", "batch"):
        if not isinstance(values.get(section), dict):
            raise BadInput(f"{path}: [{section}] is missing")
    hardware = from_table(Hardware, values["hardware"], f"{path}: [hardware]", least=0)
    batch = from_table(Batch, values["batch"], f"{path}: [batch]", least=0)
    if not isinstance(values.get("parallel", {}), dict):
        raise BadInput(f"{path}: [parallel]: must be a table")
    parallel = from_table(Parallel, values.get("parallel", {}), f"{path}: [parallel]", least=0)
    try:
        here = _machine(hardware)
        work = Work(_model(path, values["model"]), batch.sequences, batch.length)
        wrong = refuse_values(here, work, parallel)
        if wrong:
            raise BadInput(wrong)
        if not searching:
            _check(here, hardware, work, parallel)
    except BadInput as error:
        prefix = f"{path}: "
        text = str(error)
        raise BadInput(text if text.startswith(prefix) else prefix + text) from None
    degrees, cut = _nonuniform(path, values.get("nonuniform", {}), parallel)
    return Config(here, hardware.gpus, work, parallel, degrees, cut)


def _machine(hardware: Hardware) -> Machine:
    gpu: Gpu = load_gpu(hardware.gpu)
    gpu = replace(
        gpu,
        domain_gpus=hardware.domain_gpus or gpu.domain_gpus,
        nic_gb_per_s=hardware.nic_gb_per_s or gpu.nic_gb_per_s,
    )
    if hardware.gpus < 1 or gpu.domain_gpus < 1:
        raise BadInput(
            f"[hardware] gpus = {hardware.gpus}, domain_gpus = {gpu.domain_gpus}: must be above 0"
        )
    return machine(gpu, load_constants(gpu.generation), hardware.clock)


def _model(path: Path, table: dict[str, Any]) -> Model:
    """A name alone is looked up; anything more is a model of its own."""
    if set(table) == {"name"}:
        return load_model(str(table["name"]))
    return from_table(Model, {"name": "model", **table}, f"{path}: [model]", least=0)


def _check(here: Machine, hardware: Hardware, work: Work, parallel: Parallel) -> None:
    check(here, work, parallel)
    if parallel.gpus != hardware.gpus:
        raise BadInput(
            f"[parallel] tensor x pipeline x context x data = {parallel.tensor} x "
            f"{parallel.pipeline} x {parallel.context} x {parallel.data} = {parallel.gpus}, "
            f"but [hardware] gpus = {hardware.gpus}"
        )


def _nonuniform(path: Path, table: Any, parallel: Parallel) -> tuple[tuple[int, ...], Cut]:
    where = f"{path}: [nonuniform]"
    if not isinstance(table, dict):
        raise BadInput(f"{where}: must be a table")
    unknown = set(table) - {"degrees", "cut"}
    if unknown:
        raise BadInput(f"{where}: unknown key {min(unknown)}, known are cut, degrees")
    cut = table.get("cut", "whole")
    if cut not in get_args(Cut):
        raise BadInput(f"{where}: cut = {cut!r}: known are {', '.join(get_args(Cut))}")
    degrees = table.get("degrees", [])
    if not isinstance(degrees, list) or not all(type(n) is int for n in degrees):
        raise BadInput(f"{where}: degrees must be a list of integers")
    for degree in degrees:
        if not 1 <= degree <= parallel.tensor:
            raise BadInput(
                f"{where}: degree {degree}: must be between 1 and [parallel] tensor = "
                f"{parallel.tensor}"
            )
    return tuple(degrees), "whole" if cut == "whole" else "finer"
