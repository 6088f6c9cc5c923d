"""Bad input: status 2, one line that names what is wrong, and nothing lost."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

QUICK = {"steps": 2}


def check_refused(run: Any, *words: str) -> None:
    assert run.status == 2, run.stderr
    (line,) = run.stderr.splitlines()
    assert line.startswith("nonuniform: ")
    assert "Traceback" not in line
    for word in words:
        assert word in line


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


REFUSED = {
    "unknown key": ({"run": {"stepz": 3}}, [], ["[run]", "stepz", "steps"]),
    "more GPUs than heads": (
        {
            "model": {"hidden": 40, "heads": 5, "kv_heads": 5},
            "parallel": {"degree": 8, "min_degree": 8},
        },
        [],
        ["heads", "5", "8"],
    ),
    "batch smaller than the replicas": (
        {"batch": {"sequences": 1}},
        [],
        ["[batch] sequences", "sequences = 1", "replicas = 2"],
    ),
    "failure of no GPU": ({}, ["1/3@5"], ["--fail", "1/3", "1/2"]),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_by_the_command(lab: Any, launch: Any, case: str) -> None:
    changes, fails, words = REFUSED[case]
    job = lab.job(**changes)
    command = launch(job, fails=fails)
    run = command.wait(60.0)
    check_refused(run, *words)
    if not fails:
        assert str(job) in run.stderr
    assert not run.folder.exists()


def test_pattern_that_matches_nothing(lab: Any, launch: Any) -> None:
    pattern = str(lab.folder / "nothing-*.txt")
    run = launch(lab.job(Path(pattern))).wait(60.0)
    check_refused(run, "[data] text", pattern)
    assert not run.folder.exists()


def test_empty_text(lab: Any, tmp_path: Path) -> None:
    text = tmp_path / "empty.txt"
    text.touch()
    run = lab.train(lab.job(text))
    check_refused(run, "[data] text", str(text), "0 bytes")
    assert not run.folder.exists()


def test_port_in_use(lab: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        run = lab.train(lab.job(run={"port": port}))
        check_refused(run, "[run]", f"port = {port}", "127.0.0.1", "in use")
        assert not run.folder.exists()


def test_folder_of_another_run(lab: Any) -> None:
    """Refused without a word lost; replaced when asked to, unless the new job is refused."""
    job = lab.job(run=QUICK)
    first = lab.train(job)
    assert first.status == 0, first.stderr
    before = contents(first.folder)
    assert {"steps.jsonl", "events.jsonl", "summary.json"} <= before.keys()
    check_refused(lab.train(job, out=first.folder), "--out", str(first.folder), "another run")
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        bad = lab.job(run={"port": port})
        check_refused(lab.train(bad, out=first.folder, options=["--overwrite"]), str(port))
    assert contents(first.folder) == before
    again = lab.train(job, out=first.folder, options=["--overwrite"])
    assert again.status == 0, again.stderr
    assert [row["loss"] for row in again.steps] == [
        pytest.approx(row["loss"], rel=1e-12) for row in read_steps(before)
    ]
    assert again.steps != read_steps(before)


def read_steps(files: dict[str, bytes]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in files["steps.jsonl"].splitlines()]


def test_patterns_are_seen_from_the_folder_of_the_job(lab: Any, tmp_path: Path) -> None:
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "a.txt").write_bytes(lab.text.read_bytes())
    job = tmp_path / "JOB.toml"
    text = lab.job(data={"text": ["corpus/*.txt"]}, run=QUICK).read_text()
    job.write_text(text)
    run = lab.train(job)
    assert run.status == 0, run.stderr
