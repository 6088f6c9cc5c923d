"""`nonuniform simulate` as a script sees it: its files, its tables, its refusals."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

import polars as pl
import pytest

from nonuniform.cli import main
from nonuniform.sim.paper.compared import Row

SCENARIO = """
[cluster]
gpus = 1064
domain = 32
[job]
degree = 32
stages = 2
sequences_per_replica = 8
[failures]
rate_per_gpu_day = 5e-3
hardware = { share = 0.78, repair_h = 120 }
software = { share = 0.22, repair_h = 3 }
[transition]
regroup_s = 30
[policies.dp-drop]
[policies.ntp]
degrees = [32, 30, 28]
[policies.restart]
kind = "uniform"
on_failure = "restart"
restart_s = 600
checkpoint_every_s = 1800
[run]
days = 30
seeds = 3
"""
POLICIES = ["dp-drop", "ntp", "restart"]
HOURS = 30 * 24


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "SCENARIO.toml"
    path.write_text(SCENARIO)
    return path


def call(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as caught:
        main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    assert isinstance(caught.value.code, int)
    return caught.value.code, out, err


def summary_of(out: Path) -> dict[str, Any]:
    summary = json.loads((out / "summary.json").read_text())
    assert isinstance(summary, dict)
    return summary


def test_the_summary_has_the_keys_that_scripts_rely_on(
    capsys: pytest.CaptureFixture[str], scenario: Path, tmp_path: Path
) -> None:
    status, _, err = call(capsys, "simulate", scenario, "--out", tmp_path / "out")
    assert (status, err) == (0, "")
    summary = summary_of(tmp_path / "out")
    assert summary["status"] == "done"
    assert 0 < summary["failed_share_mean"] < 0.05
    assert list(summary["policies"]) == POLICIES
    for policy in summary["policies"].values():
        assert policy["loss_mean"] == pytest.approx(1 - policy["throughput_mean"])
        assert policy["amplification"] == pytest.approx(
            policy["loss_mean"] / summary["failed_share_mean"]
        )
        low, high = policy["loss_ci95"]
        assert low < policy["loss_mean"] < high
        hours = policy["gpu_hours"]
        assert {"failed", "idled", "transition", "redone"} <= set(hours)
        assert sum(hours.values()) == pytest.approx(1064 * HOURS)
        assert hours["unused"] == 8 * HOURS
        spares, gpus = policy["spares_domains"], policy["spares_gpus"]
        assert 0 <= spares["p50"] <= spares["p95"] <= spares["p100"]
        assert gpus == {share: 32 * domains for share, domains in spares.items()}
    loss = {name: policy["loss_mean"] for name, policy in summary["policies"].items()}
    assert loss["ntp"] < loss["dp-drop"] < loss["restart"]
    redone = {name: p["gpu_hours"]["redone"] for name, p in summary["policies"].items()}
    assert (redone["ntp"], redone["restart"] > 0) == (0, True)


def test_the_tables_have_a_row_for_each_policy_and_seed(
    capsys: pytest.CaptureFixture[str], scenario: Path, tmp_path: Path
) -> None:
    call(capsys, "simulate", scenario, "--out", tmp_path, "--quiet")
    runs = pl.read_parquet(tmp_path / "runs.parquet")
    assert runs.select("policy", "seed").rows() == [
        (policy, seed) for policy in POLICIES for seed in (1, 2, 3)
    ]
    summary = summary_of(tmp_path)["policies"]
    for policy, loss in runs.group_by("policy").agg(pl.col("loss_mean").mean()).rows():
        assert summary[policy]["loss_mean"] == pytest.approx(loss)
    steps = pl.read_parquet(tmp_path / "trajectory.parquet").filter(policy="ntp")
    assert set(steps["mode"]) <= {"run", "stall", "redo"}
    assert steps["time_h"].is_sorted()
    ends = steps["time_h"].shift(-1).fill_null(HOURS)
    useful = ((ends - steps["time_h"]) * steps["throughput"]).filter(steps["mode"] == "run").sum()
    first = runs.filter(policy="ntp", seed=1)["throughput_mean"][0]
    assert useful / HOURS == pytest.approx(first)


def test_the_figures_do_not_depend_on_the_number_of_processes(
    capsys: pytest.CaptureFixture[str], scenario: Path, tmp_path: Path
) -> None:
    for jobs in ("1", "2"):
        out = tmp_path / jobs
        status, _, err = call(capsys, "simulate", scenario, "--out", out, "--jobs", jobs, "--quiet")
        assert (status, err) == (0, "")
    one, two = (pl.read_parquet(tmp_path / jobs / "runs.parquet") for jobs in "12")
    assert one.equals(two)


def test_people_read_what_was_understood_and_what_came_out(
    capsys: pytest.CaptureFixture[str], scenario: Path, tmp_path: Path
) -> None:
    _, out, _ = call(capsys, "simulate", scenario, "--out", tmp_path)
    assert "1,064 GPUs: 33 domains of 32 GPUs + 8 GPUs left over" in out
    assert "16 replicas of 2 stages at degree 32: 1,024 GPUs, 128 sequences a step" in out
    assert "\x1b" not in out
    assert all(line == line.rstrip() for line in out.splitlines())
    ntp = summary_of(tmp_path)["policies"]["ntp"]
    assert f"{100 * ntp['throughput_mean']:.2f} %" in out
    assert f"{ntp['gpu_hours']['failed']:,.0f}" in out
    for word in ("transition", "redone", "amplified", "per owned GPU", "95 %", "100 %"):
        assert word in out
    for fact in ("* nodes of 8 GPUs", "* all stages take equally long", "* a failure takes 1 GPU"):
        assert fact in " ".join(out.split())


def test_quiet_prints_nothing(
    capsys: pytest.CaptureFixture[str], scenario: Path, tmp_path: Path
) -> None:
    assert call(capsys, "simulate", scenario, "--out", tmp_path, "--quiet") == (0, "", "")


def test_keys_can_be_replaced_and_varied(
    capsys: pytest.CaptureFixture[str], scenario: Path, tmp_path: Path
) -> None:
    flags = ["--seeds", "2", "--set", "run.days=10", "--set", "policies.ntp.grain=token"]
    flags += ["--sweep", "failures.rate_factor=0,1", "--sweep", "policies.ntp.min_degree=32,16"]
    status, out, _ = call(capsys, "simulate", scenario, "--out", tmp_path, *flags)
    assert status == 0
    assert "failures.rate_factor" in out
    points = summary_of(tmp_path)["points"]
    assert [list(point["set"].values()) for point in points] == [[0, 32], [0, 16], [1, 32], [1, 16]]
    for point in points:
        assert (point["hours"], point["seeds"]) == (240, 2)
        assert point["scenario"]["policies"]["ntp"]["grain"] == "token"
    assert [point["failed_share_mean"] > 0 for point in points] == [False, False, True, True]
    nothing = points[0]["policies"]["restart"]
    assert (nothing["loss_mean"], nothing["amplification"]) == (0, None)
    # A floor of the full degree leaves nothing to reduce to; 30 and 28 are above 16.
    floor, free = (point["policies"]["ntp"]["loss_mean"] for point in points[2:])
    drop = points[2]["policies"]["dp-drop"]["loss_mean"]
    assert floor == pytest.approx(drop)
    assert free < drop
    runs = pl.read_parquet(tmp_path / "runs.parquet")
    assert runs["policies.ntp.min_degree"].unique().sort().to_list() == [16, 32]
    assert runs.height == 4 * 3 * 2


def test_all_points_of_a_sweep_are_checked_before_the_first_runs(
    capsys: pytest.CaptureFixture[str], scenario: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    flags = ["--sweep", "job.stages=1,2,99"]
    status, said, err = call(capsys, "simulate", scenario, "--out", out, *flags)
    assert (status, said) == (2, "")
    assert "one replica of 99 stages at degree 32 needs 99 groups" in err
    assert err.count("\n") == 1
    assert not out.exists()


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        (["--set", "run.dais=3"], "command line: [run] dais: unknown key, did you mean days?"),
        (["--set", "days=3"], "--set days=3: the key must name its section, such as run.days=30"),
        (["--sweep", "run.days"], "--sweep run.days: must be key=v1,v2, such as cluster.domain="),
        (["--jobs", "0"], "--jobs 0: must be 1 or more, or -1 for one on each core"),
        (["--seeds", "0"], "Invalid value for '--seeds': "),
    ],
)
def test_a_flag_that_makes_no_sense_is_one_line(
    capsys: pytest.CaptureFixture[str], scenario: Path, tmp_path: Path, flags: list[str], line: str
) -> None:
    out = tmp_path / "out"
    status, said, err = call(capsys, "simulate", scenario, "--out", out, *flags)
    assert (status, said) == (2, "")
    assert err.startswith(f"nonuniform: {line}")
    assert err.count("\n") == 1
    assert not out.exists()


@pytest.mark.parametrize("held", ["summary.json", "runs.parquet"])
def test_results_that_are_there_stay_unless_told(
    capsys: pytest.CaptureFixture[str], scenario: Path, tmp_path: Path, held: str
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / held).write_text("precious")
    status, _, err = call(capsys, "simulate", scenario, "--out", out, "--quiet")
    assert status == 2
    assert err == (
        f"nonuniform: --out {out}: holds other results ({held}); choose another folder, or replace "
        "them with --overwrite\n"
    )
    assert (out / held).read_text() == "precious"
    assert call(capsys, "simulate", scenario, "--out", out, "--quiet", "--overwrite")[0] == 0
    assert summary_of(out)["status"] == "done"


def test_a_training_run_is_never_replaced(
    capsys: pytest.CaptureFixture[str], scenario: Path, tmp_path: Path
) -> None:
    (tmp_path / "steps.jsonl").write_text("precious")
    status, _, err = call(capsys, "simulate", scenario, "--out", tmp_path, "--overwrite")
    assert (status, "holds a training run (steps.jsonl)" in err) == (2, True)
    assert (tmp_path / "steps.jsonl").read_text() == "precious"


def test_a_folder_that_cannot_be_made_is_one_line(
    capsys: pytest.CaptureFixture[str], scenario: Path
) -> None:
    status, _, err = call(capsys, "simulate", scenario, "--out", scenario)
    assert (status, err) == (2, f"nonuniform: --out {scenario}: File exists\n")


def fail(*_: object) -> NoReturn:
    raise ZeroDivisionError("no fault of yours")


def interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("what", "status", "said", "reason"),
    [
        (fail, 3, "ZeroDivisionError: no fault of yours (see ", "ZeroDivisionError: no fault of "),
        (interrupt, 130, "interrupted", "interrupted"),
    ],
)
def test_a_run_that_ends_early_closes_its_summary(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    scenario: Path,
    tmp_path: Path,
    what: Any,
    status: int,
    said: str,
    reason: str,
) -> None:
    monkeypatch.setattr("nonuniform.scenario.run.run", what)
    ended, out, err = call(capsys, "simulate", scenario, "--out", tmp_path / "out", "--quiet")
    assert (ended, out) == (status, "")
    assert err.startswith(f"nonuniform: {said}")
    assert err.count("\n") == 1
    summary = summary_of(tmp_path / "out")
    assert summary["status"] == "failed"
    assert summary["reason"].startswith(reason)


LOG = """
[cluster]
gpus = 64
domain = 8
[job]
sequences_per_replica = 8
[failures.log]
path = "log.csv"
expand = "node"
clock = { unit = "hour" }
nodes = { names = ["a", "b"] }
window = { start = 0, end = 100 }
[policies.ntp]
[policies.dp-drop]
"""


def test_wrong_rows_of_a_log_end_it_or_are_left_out_and_told(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "SCENARIO.toml"
    path.write_text(LOG)
    rows = ["node,start,end", "a,10,35", "b,9,5", "c,1,2", "b,8,7"]
    (tmp_path / "log.csv").write_text("\n".join(rows) + "\n")
    out = tmp_path / "out"
    status, said, err = call(capsys, "simulate", path, "--out", out)
    assert (status, said) == (2, "")
    assert len(err.splitlines()) == 2, "one line for each kind"
    assert "2 rows with" in err
    assert "line 3" in err
    assert not out.exists()
    status, said, err = call(capsys, "simulate", path, "--out", out, "--skip-bad-rows")
    assert (status, err) == (0, "")
    assert "left out: 2 rows with" in " ".join(said.split())
    summary = summary_of(out)
    assert sum("left out" in fact["text"] for fact in summary["understood"]) == 2
    # One of 8 domains is down for a quarter of the time, and nothing can be done about it.
    assert summary["failed_share_mean"] == pytest.approx(0.25 / 8)
    for policy in summary["policies"].values():
        assert policy["loss_mean"] == pytest.approx(0.25 / 8)
        assert policy["loss_ci95"] is None
        assert policy["amplification"] == pytest.approx(1)
        assert policy["spares_domains"] == {"p50": 0, "p95": 1, "p100": 1}


ROWS = [Row("loss", "A section", "losses", "up to 12%", "12.4%", "none", 0.124)]


def test_the_papers_figures_stand_beside_ours(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("nonuniform.sim.paper.render.rows", lambda: ROWS)
    status, out, err = call(capsys, "paper")
    assert (status, err) == (0, "")
    assert [line.split("  ")[0] for line in out.splitlines()] == ["A section", "what", "losses", ""]
    assert "up to 12%   12.4%   none" in out
    page = tmp_path / "page.md"
    assert call(capsys, "paper", "--markdown", page) == (0, "", "")
    assert "| losses | up to 12% | 12.4% | none |" in page.read_text()
    status, out, err = call(capsys, "paper", "--markdown", tmp_path)
    assert (status, out) == (2, "")
    assert err == f"nonuniform: --markdown {tmp_path}: Is a directory\n"


def test_a_reader_that_has_gone_is_no_traceback(scenario: Path, tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    code = "from nonuniform.cli import main; main()"
    command = [sys.executable, "-c", code, "simulate", str(scenario), "--out", str(tmp_path / "o")]
    run = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, timeout=60, check=False)
    os.close(writer)
    assert run.returncode != 0
    assert b"Traceback" not in run.stderr


def test_without_torch_it_works(scenario: Path, tmp_path: Path) -> None:
    code = "import sys; sys.modules['torch'] = None; from nonuniform.cli import main; main()"
    command = [sys.executable, "-c", code, "simulate", str(scenario), "--out", str(tmp_path / "o")]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (run.returncode, run.stderr) == (0, "")
    assert summary_of(tmp_path / "o")["status"] == "done"
