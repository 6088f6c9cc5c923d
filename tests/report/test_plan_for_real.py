"""From files to a page by the command line: the example of the README, and a real log."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from nonuniform.cli import main

from .page_reader import disagreements

ROOT = Path(__file__).resolve().parents[2]
TRACE = ROOT.parent / "shared" / "data" / "failures" / "fault_intervals_paired.csv"


def answered(words: list[str], out: Path) -> tuple[dict[str, Any], str]:
    """summary.json and the page."""
    with pytest.raises(SystemExit) as caught:
        main([*words, "--out", str(out), "--quiet"])
    assert caught.value.code == 0
    page = (out / "report.html").read_text(encoding="utf-8")
    return json.loads((out / "summary.json").read_text()), page


def readme_command() -> list[str]:
    found = re.search(r"^nonuniform (plan .*?) --out \S+$", (ROOT / "README.md").read_text(), re.M)
    assert found
    return shlex.split(found[1])


def test_the_example_of_the_readme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    summary, page = answered(readme_command(), tmp_path / "plan")
    wrong, right = disagreements(page, summary)
    assert wrong == []
    assert right > 400
    assert summary["example"]
    assert "were made by a simulator" in page
    assert len(page) < 8e6
    japanese = (ROOT / "README.ja.md").read_text(encoding="utf-8")
    assert shlex.join(readme_command()) in japanese


def test_a_log_that_really_happened(tmp_path: Path) -> None:
    if not TRACE.exists():
        pytest.skip("the tables of measurements are not on this machine")
    job = tmp_path / "train.toml"
    job.write_text(
        "[job]\ntensor = 8\npipeline = 2\ngpus = 3072\nsequences = 1536\nmicro_batch = 1\n"
    )
    words = ["plan", "--job", str(job), "--cluster", "dgx-a100", "--gpus", "3200"]
    summary, page = answered([*words, "--log", str(TRACE), "--seeds", "4"], tmp_path / "plan")
    assert disagreements(page, summary)[0] == []
    assert not summary["example"]
    assert "were made by a simulator" not in page
    assumed = {fact["name"] for fact in summary["facts"] if fact["assumed"]}
    assert {"columns", "extent", "nodes", "GPUs that it is of"} <= assumed
    now = summary["jobs"][0]["failed_share"]["now"]
    assert now["kind"] == "measured"
    assert summary["replay"]["failures"]["value"] > 100
    # The log tells of nodes. In domains of one node nothing is left of a hurt one.
    assert summary["verdict"]["worth"] == "no"
    assert summary["verdict"]["reason"] == "no-domain-loss"
    assert summary["verdict"]["policy"].startswith("dp-drop")
