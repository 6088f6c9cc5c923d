"""What the docs say is so: their job loads, their output is printed, their links lead somewhere."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from nonuniform.cli import main
from nonuniform.config import load_job, parse_schedule

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.DOTALL | re.MULTILINE)


def test_the_job_in_the_readme_loads_and_its_failures_are_possible(tmp_path: Path) -> None:
    (text,) = blocks("toml")
    path = tmp_path / "JOB.toml"
    path.write_text(text)
    job = load_job(path)
    fails = re.findall(r'--fail "(.*?)"', README)
    returns = re.findall(r'--return "(.*?)"', README)
    assert len(parse_schedule(fails, returns, job)) == 2


@pytest.mark.parametrize("block", blocks("console"))
def test_commands_in_the_readme_print_what_it_shows(
    block: str, capsys: pytest.CaptureFixture[str]
) -> None:
    prompt, _, shown = block.partition("\n")
    program, *arguments = shlex.split(prompt.removeprefix("$ "))
    assert program == "nonuniform"
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 0
    assert capsys.readouterr().out == shown


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)", page.read_text())
    inside = [link for link in links if "://" not in link]
    assert [link for link in inside if not (page.parent / link).exists()] == []


def test_sections_that_docstrings_name_are_in_the_architecture() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    named = set()
    for path in (ROOT / "src").rglob("*.py"):
        for quotes in re.findall(r'DESIGN:?\s+((?:"[^"]+"(?:,|\s|and)*)+)', path.read_text()):
            named |= {" ".join(name.split()) for name in re.findall(r'"([^"]+)"', quotes)}
    assert named
    assert {name for name in named if not any(h.startswith(name) for h in headings)} == set()
