"""`rack`, `boost`, `plan` and `report` as they are called from a shell."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nonuniform.cli import main

ROOT = Path(__file__).resolve().parents[2]
RACK = ROOT / "examples" / "rack.toml"
JOB = """
[job]
name = "<b>small</b>"
gpus = 64
tensor = 8
pipeline = 2
data = 4
micro_batch = 1
sequences = 64
length = 4096
days = 60
[model]
name = "llama3_8b"
"""
SCENARIO = """
[cluster]
gpus = 7200
domain = 72
[job]
sequences_per_replica = 16
[failures]
rate_per_gpu_day = 1e-3
repair_h = 48
[run]
days = 20
seeds = 2
"""


def status_of(*arguments: object) -> int:
    with pytest.raises(SystemExit) as caught:
        main([str(argument) for argument in arguments])
    assert isinstance(caught.value.code, int)
    return caught.value.code


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert status_of(*arguments) == 2
    said = capsys.readouterr()
    assert said.out == ""
    (line,) = said.err.splitlines()
    return line


def test_rack_answers_people_and_scripts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sheet, scenario = tmp_path / "sheet.md", tmp_path / "scenario.toml"
    scenario.write_text(SCENARIO)
    assert status_of("rack", RACK, "--spec", sheet, "--scenario", scenario) == 0
    said = capsys.readouterr().out
    assert "headroom" in said
    assert "extrapolated" in said
    assert "ever boosted" in said
    assert "headroom" in sheet.read_text()
    assert status_of("rack", RACK, "--json", "--scenario", scenario) == 0
    values = json.loads(capsys.readouterr().out)
    assert 0 < values["history"]["share_ever_boosted"]["mean"] <= 1


def test_boost_says_set_points_and_why(capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of("boost", RACK, "--failed", 2, "--dry-run") == 0
    said = capsys.readouterr().out
    assert "granted: 1.029 of nominal performance" in said
    assert status_of("boost", RACK, "--failed", 2, "--dry-run", "--json") == 0
    assert isinstance(json.loads(capsys.readouterr().out), dict)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("rack", "absent.toml"), "absent.toml: no such file"),
        (("boost", "absent.toml", "--failed", 1, "--dry-run"), "absent.toml: no such file"),
        (("boost", RACK, "--failed", 72, "--dry-run"), "72"),
        (("boost", RACK, "--failed", 1, "--actuator", "magic", "--dry-run"), "magic"),
        (("plan", "--out", "x"), "--job"),
        (("plan", "--job", RACK, "--out", "x"), "--cluster"),
        (("plan", "--out", "x", "--lang", "fr"), "--lang fr: expected en or ja"),
        (("plan", "--out", "x", "--fx", "cheap"), "--fx cheap: expected a number"),
        (("report", "absent"), "absent"),
    ],
)
def test_what_is_wrong_is_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[object, ...],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert message in refused(capsys, *arguments)
    assert list(tmp_path.iterdir()) == []


def test_from_files_to_a_page_in_one_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job, out = tmp_path / "job.toml", tmp_path / "plan"
    job.write_text(JOB)
    asked = ("plan", "--job", job, "--cluster", "dgx-h100", "--gpus", 64, "--failures", "llama3")
    assert status_of(*asked, "--out", out, "--seeds", 4, "--quiet") == 0
    assert capsys.readouterr().out.strip() == str(out / "report.html")
    summary = json.loads((out / "summary.json").read_text())
    assert (summary["kind"], summary["status"]) == ("plan", "done")
    page = (out / "report.html").read_text()
    assert "<b>small</b>" not in page
    assert "&lt;b&gt;small&lt;/b&gt;" in page
    before = page
    assert status_of("report", out, "--lang", "ja") == 0
    assert (out / "report.html").read_text() != before
    capsys.readouterr()
    assert "--overwrite" in refused(capsys, *asked, "--out", out)
