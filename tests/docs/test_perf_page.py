"""The page on step time names every key, and the README shows what the example prints."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from nonuniform.cli import main
from nonuniform.perf.catalog import known
from nonuniform.perf.config_file import SECTIONS, Batch, Hardware
from nonuniform.perf.model import Model
from nonuniform.perf.parallelism import Parallel

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "perf.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", [Hardware, Batch, Model, Parallel])
def test_every_key_is_explained(kind: type) -> None:
    missing = [f.name for f in dataclasses.fields(kind) if f"`{f.name}`" not in PAGE]
    assert missing == []


def test_every_section_and_every_name_of_the_catalog_is_there() -> None:
    assert [name for name in SECTIONS if f"[{name}]" not in PAGE] == []
    names = [*known("gpus"), *known("models")]
    assert [name for name in names if f"`{name}`" not in PAGE] == []


def test_the_readme_shows_what_the_example_prints(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["perf", str(ROOT / "examples" / "perf.toml")])
    assert end.value.code == 0
    printed = capsys.readouterr().out
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    block = readme.split("nonuniform perf examples/perf.toml")[1].split("```")[1]
    lines = block.strip().splitlines()
    assert len(lines) == 2
    assert all(line in printed for line in lines)


def test_search_tells_what_it_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["perf", "search", str(ROOT / "examples" / "perf.toml")])
    assert end.value.code == 0
    assert "refused: interleave" in capsys.readouterr().out
