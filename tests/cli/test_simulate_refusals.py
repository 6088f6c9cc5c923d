"""What a scenario or a log may hold that once ended in a traceback, or cost results."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nonuniform.cli import main

SCENARIO = """
[cluster]
gpus = 256
domain = 32
[job]
sequences_per_replica = 8
[failures]
{failures}
"""
DRAWN = "rate_per_gpu_day = 4.736e-3\nrepair_h = 24\n[run]\ndays = 30\nseeds = 2"


def run(folder: Path, *options: str, failures: str = DRAWN) -> int:
    file = folder / "SCENARIO.toml"
    file.write_text(SCENARIO.format(failures=failures), encoding="utf-8")
    with pytest.raises(SystemExit) as end:
        main(["simulate", str(file), "--out", str(folder / "out"), *options])
    return int(end.value.code or 0)


def refusal(capsys: pytest.CaptureFixture[str]) -> str:
    line = capsys.readouterr().err
    assert line.count("\n") == 1, line
    return line


def test_names_are_shown_as_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = ("[red]x", "[/]", ":smile:")
    options = [f"policies.{name}.kind=ntp" for name in names]
    assert run(tmp_path, *(part for each in options for part in ("--set", each))) == 0
    printed = capsys.readouterr().out
    assert all(printed.count(name) >= 3 for name in names)


def test_old_results_outlive_a_scenario_that_cannot_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, "--quiet") == 0
    before = (tmp_path / "out" / "summary.json").read_bytes()
    for wrong in ("rate_per_gpu_day=1e9", "bursts={share=1,failures=1000,within_h=1e12}"):
        assert run(tmp_path, "--overwrite", "--set", f"failures.{wrong}") == 2
        line = refusal(capsys)
        assert "SCENARIO.toml" in line
        assert "[failures]" in line
        assert (tmp_path / "out" / "summary.json").read_bytes() == before


def test_a_sweep_is_checked_before_its_first_point(tmp_path: Path) -> None:
    assert run(tmp_path, "--quiet", "--sweep", "failures.rate_per_gpu_day=1e-3,1e9") == 2
    assert not (tmp_path / "out" / "summary.json").exists()


def test_a_window_of_nearly_nothing(tmp_path: Path) -> None:
    assert run(tmp_path, "--quiet", "--set", "run.days=1e-12") == 0
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["status"] == "done"


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("policies.ntp.spare_domains=100", "spare_domains = 100 of 8 domains"),
        ("failures.lemons={share=0.1,factor=1e308}", "factor = 1e+308"),
    ],
)
def test_numbers_that_leave_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], setting: str, told: str
) -> None:
    assert run(tmp_path, "--set", setting) == 2
    assert told in refusal(capsys)


@pytest.mark.parametrize(
    ("name", "text", "more", "told"),
    [
        ("l.csv", "node,start,end\na,1,2\n", 'nodes = {order = "random", seed = -5}', "seed"),
        ("l.log", "x\n", 'format = "xid"\npci = ["zz"]', "pci holds 'zz'"),
        ("l.log", "x\n", 'format = "xid"\npci = ["zz:3b:00"]', "pci holds"),
        ("l.csv", "node,start,end\na,1,2\n", 'delimiter = ""', "delimiter"),
        ("l.json", "[" * 100_000, "", "not JSON"),
        ("l.jsonl", "[" * 100_000 + "\n", "", "what is no JSON"),
        ("l.json", '[{"node": ' + "9" * 5_000 + "}]", "", "not JSON"),
    ],
)
def test_logs_that_cannot_be_read(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
    text: str,
    more: str,
    told: str,
) -> None:
    log = tmp_path / name
    log.write_text(text, encoding="utf-8")
    section = f'[failures.log]\npath = "{log}"\nexpand = "node"\n{more}'
    assert run(tmp_path, failures=section) == 2
    assert told in refusal(capsys)


def test_half_a_character_in_a_name(tmp_path: Path) -> None:
    log = tmp_path / "l.jsonl"
    log.write_text('{"node": "\\ud800", "start": 1.0, "end": 2.0}\n', encoding="utf-8")
    section = f'[failures.log]\npath = "{log}"\nexpand = "node"\nclock = {{ unit = "hour" }}'
    assert run(tmp_path, "--quiet", failures=section) == 0


PERF = """
[hardware]
gpu = "h100_sxm"
gpus = 64
[model]
name = "llama3_8b"
[batch]
sequences = 64
length = 4096
{parallel}
"""


@pytest.mark.parametrize("words", [["perf"], ["perf", "search"]])
@pytest.mark.parametrize(
    ("parallel", "told"),
    [
        ("[parallel]\ngradient_bytes = -4", "gradient_bytes"),
        ("[parallel]\ngradient_bytes = 0", "gradient_bytes = 0: known are 2, 4"),
        ("[[parallel]]\ntensor = 8", "[parallel]: must be a table"),
        ('[parallel]\nprecision = "x"', "CONFIG.toml: [parallel] precision = x"),
    ],
)
def test_step_time_of_nonsense(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], parallel: str, told: str
) -> None:
    file = tmp_path / "CONFIG.toml"
    file.write_text(PERF.format(parallel=parallel), encoding="utf-8")
    with pytest.raises(SystemExit) as end:
        main([*words, str(file)])
    assert end.value.code == 2
    assert told in refusal(capsys)
