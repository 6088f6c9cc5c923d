"""docs/train.md has every key of a JOB file with the default that it has."""

from __future__ import annotations

import re
from dataclasses import MISSING, fields
from pathlib import Path

import pytest

from nonuniform import config

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "train.md").read_text(encoding="utf-8")
SECTIONS = {
    "model": config.ModelConfig,
    "parallel": config.ParallelConfig,
    "batch": config.BatchConfig,
    "data": config.DataConfig,
    "optimizer": config.OptimizerConfig,
    "run": config.RunConfig,
    "checkpoint": config.CheckpointConfig,
    "health": config.HealthConfig,
}


def shown(section: str) -> dict[str, str]:
    """key -> default, of one table of the page."""
    block = re.search(rf"^\| `\[{section}\]` \|.*?(?=\n\n)", PAGE, re.DOTALL | re.MULTILINE)
    assert block
    found = {}
    for line in block[0].splitlines()[2:]:
        keys, default = (cell.strip() for cell in line.strip("|").split("|")[:2])
        names = re.findall(r"`(\w+)`", keys)
        defaults = default.split(", ") if len(names) > 1 else [default]
        found |= dict(zip(names, defaults * (len(names) // len(defaults)), strict=True))
    return found


def written(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)


def test_every_section_is_there() -> None:
    assert {field.name for field in fields(config.JobConfig)} == SECTIONS.keys()


@pytest.mark.parametrize("section", SECTIONS)
def test_every_key_is_there_with_its_default(section: str) -> None:
    page = shown(section)
    own = {field.name: field.default for field in fields(SECTIONS[section])}
    assert page.keys() == own.keys()
    derived = {"kv_heads", "head_dim", "ffn", "val_sequences"}
    for name, default in own.items():
        if default is MISSING or default == ():
            assert page[name] == "", name
        elif name in derived:
            assert "`" in page[name], name
        else:
            assert page[name] == written(default), name
