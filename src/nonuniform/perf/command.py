"""The three things that `nonuniform perf` does: one configuration, a search, a validation.

In: the words and options of the command line. Out: values for machines and text for people. Knows
nothing of where they are printed.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from nonuniform.errors import BadInput
from nonuniform.perf.config_file import load_config
from nonuniform.perf.search import need_one, search, spreads
from nonuniform.perf.show import perf_json, perf_text, search_json, search_text
from nonuniform.perf.validate import report_text, validate

Answer = tuple[Any, str]
"""(what `--json` prints, what a person reads)."""


def one(path: Path) -> Answer:
    values = perf_json(load_config(path))
    return values, perf_text(values)


def best(path: Path, progress: Callable[[int, int], None] | None = None) -> Answer:
    """The fastest ways to spread the model over the GPUs of the file."""
    config = load_config(path, searching=True)
    candidates = spreads(config.machine, config.work, config.gpus, config.parallel)
    found = search(config.machine, config.work, candidates, progress=progress)
    need_one(found, config.gpus)
    values = search_json(config.machine, config.work, found)
    return values, search_text(values)


def against(tables: Path) -> Answer:
    """How far the model is from the published tables in `tables`/fit and `tables`/check."""
    if not (tables / "fit").is_dir():
        raise BadInput(f"--tables {tables}: no folder fit/ with the published tables in it")
    reports = validate(tables)
    return [report.to_json() for report in reports], report_text(reports)
