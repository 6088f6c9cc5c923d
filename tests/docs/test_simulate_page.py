"""docs/simulate.md: every key is in it, and its examples come out as it says."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path

import pytest

from nonuniform.cli import main
from nonuniform.cluster.sources.catalog import catalog_names
from nonuniform.scenario import sections

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "simulate.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(
    r"^```toml\n(.*?)^```\n\n\| policy \| mean loss \|\n\|---\|---\|\n((?:\|[^\n]*\|\n)+)",
    PAGE,
    re.DOTALL | re.MULTILINE,
)


def losses(scenario: Path, out: Path) -> dict[str, float]:
    with pytest.raises(SystemExit) as caught:
        main(["simulate", str(scenario), "--out", str(out), "--quiet"])
    assert caught.value.code == 0
    policies = json.loads((out / "summary.json").read_text())["policies"]
    return {name: policy["loss_mean"] for name, policy in policies.items()}


def run(number: int, folder: Path) -> dict[str, float]:
    path = folder / "SCENARIO.toml"
    path.write_text(EXAMPLES[number][0])
    return losses(path, folder / "out")


def shown(number: int) -> dict[str, str]:
    rows = (row.strip("| ").split(" | ") for row in EXAMPLES[number][1].splitlines())
    return dict(row for row in rows)


def test_every_example_is_run() -> None:
    assert len(EXAMPLES) == PAGE.count("```toml") == 4


@pytest.mark.parametrize("number", range(4))
def test_the_examples_come_out_as_shown(number: int, tmp_path: Path) -> None:
    found = {name: f"{100 * loss:.2f} %" for name, loss in run(number, tmp_path).items()}
    assert found == shown(number)


@pytest.mark.parametrize(
    ("number", "order"),
    [
        (0, ["live", "dp-drop", "restarting"]),
        (1, ["patient", "eager"]),
        (2, ["spread", "packed"]),
        (3, ["spread-tokens", "packed-tokens", "packed", "spread"]),
    ],
)
def test_what_the_examples_show_is_so(number: int, order: list[str]) -> None:
    loss = {name: float(text.removesuffix(" %")) for name, text in shown(number).items()}
    assert sorted(loss, key=loss.__getitem__) == order
    assert len(set(loss.values())) == len(loss)


def test_every_key_is_on_the_page() -> None:
    kinds = [getattr(sections, name) for name in dir(sections) if name.endswith("Section")]
    keys = {field.name for kind in kinds for field in fields(kind)}
    prose = re.sub(r"^```.*?^```", "", PAGE, flags=re.DOTALL | re.MULTILINE)
    quoted = re.findall(r"`([^`]+)`", prose)
    # `[policies.NAME]` and the like are headings, as is the section of the same name.
    said = set(re.findall(r"\w+", " ".join(quoted)))
    assert sorted(keys - said) == []
    assert set(catalog_names()) <= set(quoted)


def test_what_the_readme_shows_of_a_year_is_what_comes_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    block = re.search(
        r"^nonuniform (simulate \S+) --out \S+\n```\n.*?^```\n(.*?)^```",
        README,
        re.DOTALL | re.MULTILINE,
    )
    assert block
    command, example = block[1].split()
    with pytest.raises(SystemExit):
        main([command, str(ROOT / example), "--out", str(tmp_path / "out")])
    assert block[2] in capsys.readouterr().out
