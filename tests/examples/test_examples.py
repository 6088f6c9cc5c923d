"""The jobs and commands that people are shown are run here, as they stand."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 180


def run(command: str, folder: Path) -> None:
    words = shlex.split(command)
    assert words[0] == "nonuniform"
    program = str(Path(sys.executable).parent / "nonuniform")
    done = subprocess.run(
        [program, *words[1:]], cwd=folder, capture_output=True, text=True, timeout=LIMIT_S
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


def rows(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_the_quick_start_of_the_readme(tmp_path: Path) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    job = re.search(r"```toml\n(# JOB\.toml\n.*?)```", readme, re.DOTALL)
    command = re.search(r"^nonuniform train JOB\.toml .*$", readme, re.MULTILINE)
    assert job
    assert command
    (tmp_path / "JOB.toml").write_text(job[1], encoding="utf-8")
    run(command[0], tmp_path)
    steps = rows(tmp_path / "runs/first/steps.jsonl")
    assert [step["step"] for step in steps] == list(range(1, 61))
    degrees = {tuple(step["degrees"]) for step in steps}  # type: ignore[arg-type]
    assert degrees == {(4, 4), (4, 3)}
    assert steps[-1]["degrees"] == [4, 4], "the GPU that came back has joined"


def test_the_example_where_nothing_divides(tmp_path: Path) -> None:
    example = ROOT / "examples" / "uneven.toml"
    command = re.search(r"#\s+(nonuniform train .*)$", example.read_text("utf-8"), re.MULTILINE)
    assert command
    run(command[1].replace("runs/uneven", str(tmp_path / "out")), ROOT)
    steps = rows(tmp_path / "out" / "steps.jsonl")
    assert [step["step"] for step in steps] == list(range(1, 16))
    assert steps[0]["degrees"] == [5, 5]
    assert steps[-1]["degrees"] == [5, 3]
    kinds = {event["kind"] for event in rows(tmp_path / "out" / "events.jsonl")}
    assert "recovery" in kinds
    assert "unit_mismatch" not in kinds
