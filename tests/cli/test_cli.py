"""The command line as a script sees it: exit status, one line for bad input, no traceback."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import pytest

from nonuniform import __version__
from nonuniform.cli import main

# A process in which torch cannot be imported, as on a machine that only plans.
WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None
from nonuniform.cli import main
main(sys.argv[1:])
"""

JOB = """
model = { layers = 1, hidden = 32, heads = 4 }
parallel = { replicas = 1, degree = 2 }
batch = { sequences = 2, length = 16 }
run = { steps = 3 }
"""


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    out, err = capsys.readouterr()
    code = caught.value.code
    assert isinstance(code, int)
    return code, out, err


def call_without_torch(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", WITHOUT_TORCH, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(capsys, "--version") == (0, f"nonuniform {__version__}\n", "")


def test_layout_json_has_the_keys_that_scripts_rely_on(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["layout", "--units", "8", "--base", "8", "--degree", "7", "--json"]
    status, out, _ = call(capsys, *arguments)
    report = json.loads(out)
    assert status == 0
    assert report["sizes"] == [2, 1, 1, 1, 1, 1, 1]
    wanted = "units base degree sizes gained moved lower_bound bytes_moved load_max load_mean"
    assert {*wanted.split(), "slowdown"} <= set(report)


def test_layout_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = call(capsys, "layout", "--units", "8", "--base", "8", "--degree", "7")
    assert status == 0
    assert "2 1 1 1 1 1 1" in out


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["layout", "--units", "8"],
        ["layout", "--units", "0", "--base", "8", "--degree", "7"],
        ["layout", "--units", "x", "--base", "8", "--degree", "7"],
        ["layout", "--unts", "8"],
        ["layout", "--units", "8", "--base", "7", "--degree", "8"],
        ["train"],
        ["no-such-command"],
        ["--no-such-option"],
    ],
)
def test_wrong_use_is_status_2(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    status, out, err = call(capsys, *arguments)
    assert (status, out) == (2, "")
    assert re.fullmatch(r"nonuniform: \S.*\n", err)


@pytest.mark.parametrize("command", ["", "layout", "train", "simulate", "paper", "demo", "doctor"])
def test_help_is_no_error(capsys: pytest.CaptureFixture[str], command: str) -> None:
    status, out, err = call(capsys, *command.split(), "--help")
    assert (status, err) == (0, "")
    assert out.startswith(f"Usage: nonuniform {command}".rstrip())


def test_a_usage_error_names_the_command_that_explains(capsys: pytest.CaptureFixture[str]) -> None:
    _, _, err = call(capsys, "train")
    assert err == "nonuniform: Missing argument 'JOB.toml' (see nonuniform train --help)\n"


def test_an_interrupt_before_the_run_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr("nonuniform.config.load_job", interrupt)
    called = call(capsys, "train", "JOB.toml", "--out", "x")
    assert called == (130, "", "nonuniform: interrupted\n")


def test_a_demo_that_has_no_folder_is_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    (tmp_path / "file").write_text("")
    status, out, err = call(capsys, "demo", "--out", str(tmp_path / "file"))
    assert (status, out) == (2, "")
    assert err == f"nonuniform: --out {tmp_path / 'file'}: cannot be written to: File exists\n"


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("arguments", ["layout --units 8 --base 8 --degree 7", "--help"])
def test_a_reader_that_has_gone_is_no_traceback(arguments: str, unbuffered: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    run = subprocess.run(
        [sys.executable, "-c", "from nonuniform.cli import main; main()", *arguments.split()],
        stdout=writer,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        timeout=60,
        check=False,
    )
    os.close(writer)
    assert (run.returncode, run.stderr) == (1, b"")


def test_bad_input_is_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    job = tmp_path / "JOB.toml"
    job.write_text(JOB.replace("heads = 4", "heads = 5"))
    status, out, err = call(capsys, "train", str(job), "--out", str(tmp_path / "out"))
    assert (status, out) == (2, "")
    assert err.startswith(f"nonuniform: {job}: [model] heads: ")
    assert err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_bad_flag_is_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    job = tmp_path / "JOB.toml"
    job.write_text(JOB)
    out_folder = ["--out", str(tmp_path / "out"), "--steps", "2"]
    status, _, err = call(capsys, "train", str(job), *out_folder, "--fail", "gpu=0/1@step=3")
    assert status == 2
    assert err == "nonuniform: --fail gpu=0/1@step=3: step must be in 1 to 2, got 3\n"


def test_who_goes_on_with_a_run_cannot_replace_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    job = tmp_path / "JOB.toml"
    job.write_text(JOB)
    out = tmp_path / "out"
    (out / "checkpoints").mkdir(parents=True)
    (out / "steps.jsonl").write_text("precious")
    status, said, err = call(
        capsys, "train", str(job), "--out", str(out), "--overwrite", "--resume"
    )
    assert (status, said) == (2, "")
    assert err == ("nonuniform: --resume and --overwrite: choose one, to go on or to begin anew\n")
    assert (out / "steps.jsonl").read_text() == "precious"
    assert (out / "checkpoints").is_dir()


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        (
            ["--drain", "gpu=1/0@step=2"],
            "--drain gpu=1/0@step=2: there is no GPU 1/0, the job has 0/0 to 0/1",
        ),
        (
            ["--drain", "gpu=0/0"],
            "--drain gpu=0/0: must be gpu=R/I@step=S, such as gpu=0/3@step=20",
        ),
        (
            ["--drain", "gpu=0/1@step=2", "--fail", "gpu=0/1@step=3"],
            "--fail gpu=0/1@step=3: GPU 0/1 has already drained at step 2",
        ),
        (
            ["--fail", "gpu=0/1@step=2", "--drain", "gpu=0/1@step=3"],
            "--drain gpu=0/1@step=3: GPU 0/1 has already failed at step 2",
        ),
    ],
)
def test_an_order_to_drain_that_makes_no_sense_is_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, flags: list[str], line: str
) -> None:
    job = tmp_path / "JOB.toml"
    job.write_text(JOB)
    called = call(capsys, "train", str(job), "--out", str(tmp_path / "out"), *flags)
    assert called == (2, "", f"nonuniform: {line}\n")
    assert not (tmp_path / "out").exists()


def test_without_torch_the_planning_commands_work() -> None:
    run = call_without_torch("layout", "--units", "16", "--base", "4", "--degree", "3", "--json")
    assert run.returncode == 0, run.stderr
    assert sum(json.loads(run.stdout)["sizes"]) == 16


def test_without_torch_train_says_how_to_get_it(tmp_path: Path) -> None:
    job = tmp_path / "JOB.toml"
    job.write_text(JOB)
    run = call_without_torch("train", str(job), "--out", str(tmp_path / "out"))
    assert run.returncode == 2
    advice = "training needs torch: from a checkout, pip install '.[train]'"
    assert run.stderr == f"nonuniform: {advice}\n"
