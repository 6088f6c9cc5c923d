"""Exposure from step logs and from Slurm's accounting."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nonuniform.errors import BadInput
from nonuniform.planner.measured import of_sacct, of_steps


def steps(folder: Path, rows: list[tuple[list[int], float]]) -> Path:
    path = folder / "steps.jsonl"
    lines = [json.dumps({"step": n, "degrees": d, "time_s": t}) for n, (d, t) in enumerate(rows)]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_shares_are_weighted_by_time(tmp_path: Path) -> None:
    found = of_steps(steps(tmp_path, [([4, 4], 1.0), ([4, 3], 3.0), ([4, 4], 4.0)]))
    assert found.mean.value == pytest.approx(0.125 * 3 / 8)
    assert found.now.value == 0
    assert found.p95.value == 0.125
    assert found.failures.value == 1
    assert found.tp_usage.value == 1
    assert found.gpu_hours.value == pytest.approx(8 * 8 / 3600)
    assert found.mean.kind == "measured"


def test_lost_is_what_was_longer_than_usual(tmp_path: Path) -> None:
    found = of_steps(steps(tmp_path, [([2, 2], 1.0)] * 5 + [([2, 1], 1.5)] * 2))
    assert found.lost.value == pytest.approx(2 * 0.5 / 3600 * 4)


def test_a_dissolved_replica_is_missing_whole(tmp_path: Path) -> None:
    found = of_steps(steps(tmp_path, [([2, 2], 1.0), ([2, 0], 1.0)]))
    assert found.mean.value == 0.25


@pytest.mark.parametrize("text", ["", "{}\n", "no\n", '{"degrees": [0], "time_s": 1}\n'])
def test_what_is_no_step_log_is_one_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "steps.jsonl"
    path.write_text(text)
    with pytest.raises(BadInput, match=r"steps\.jsonl") as caught:
        of_steps(path)
    assert "\n" not in str(caught.value)


SACCT = """JobID|JobName|ElapsedRaw|State|AllocTRES
1|big|864000|NODE_FAIL|billing=1,gres/gpu=1024,node=128
1.batch|big|864000|CANCELLED|cpu=8
2|big|864000|COMPLETED|gres/gpu:h100=1024
3|short|600|COMPLETED|gres/gpu=8
4|taken|200000|PREEMPTED|gres/gpu=64
5|cpu|200000|COMPLETED|cpu=4
"""


def test_accounting_is_summed_by_name(tmp_path: Path) -> None:
    path = tmp_path / "sacct.txt"
    path.write_text(SACCT)
    found = {each.name: each for each in of_sacct(path)}
    assert [*found][:2] == ["big", "taken"]
    assert found["big"].gpu_hours.value == pytest.approx(2 * 240 * 1024)
    assert found["big"].failures.value == 1
    assert found["big"].reason == ""
    assert found["short"].reason == "short-job"
    assert found["taken"].reason == "preemptible"
    assert found["cpu"].reason == "few-failures"
    assert found["big"].tp_usage.value is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no column jobname"),
        ("JobID|JobName\n1|a\n", "no column elapsedraw"),
        (SACCT + "6|x\n", "line 8: 2 fields, expected 5"),
        (SACCT.replace("600", "soon"), "ElapsedRaw = 'soon'"),
    ],
)
def test_bad_accounting_is_one_line(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "sacct.txt"
    path.write_text(text)
    with pytest.raises(BadInput, match=words):
        of_sacct(path)


@pytest.mark.parametrize(
    "row",
    ['{"degrees": [8, 1e999], "time_s": 1}', '{"degrees": [8, -100], "time_s": 1}',
     '{"degrees": [8], "time_s": -1}', '{"degrees": [8], "time_s": NaN}'],
)  # fmt: skip
def test_what_cannot_have_been_measured_is_one_line(tmp_path: Path, row: str) -> None:
    path = tmp_path / "steps.jsonl"
    path.write_text('{"degrees": [8], "time_s": 1}\n' + row + "\n")
    with pytest.raises(BadInput, match=r"steps\.jsonl: line 2"):
        of_steps(path)


@pytest.mark.parametrize("elapsed", ["-5", "nan", "inf"])
def test_a_job_cannot_take_less_than_nothing(tmp_path: Path, elapsed: str) -> None:
    path = tmp_path / "sacct.txt"
    path.write_text(f"JobID|JobName|ElapsedRaw|State|AllocTRES\n1|a|{elapsed}|COMPLETED|\n")
    with pytest.raises(BadInput, match="line 2: ElapsedRaw"):
        of_sacct(path)
