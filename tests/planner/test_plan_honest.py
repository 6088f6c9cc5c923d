"""Cases in which a plan could easily say what is not so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nonuniform.cluster.fleet import Fleet
from nonuniform.cluster.trace import make_trace
from nonuniform.planner.hurt import hurt_hours
from nonuniform.planner.run import PlanArgs, plan

from .conftest import Planned


def script(folder: Path, nodes: int = 64, tp: int = 8, extra: str = "") -> Path:
    path = folder / f"train{nodes}.sh"
    path.write_text(
        f"torchrun --nproc_per_node 8 --nnodes {nodes} pretrain_gpt.py "
        f"--tensor-model-parallel-size {tp} --num-layers 32 --hidden-size 4096 "
        f"--num-attention-heads 32 --seq-length 4096 --micro-batch-size 1 "
        f"--global-batch-size {nodes * 4} --train-iters 3000000 --bf16 --vocab-size 32000 "
        f"--use-distributed-optimizer {extra}\n"
    )
    return path


def log_of_nodes(folder: Path, nodes: int = 64) -> Path:
    """Every fourth day a node goes for two days."""
    rows = [f"node-{n % nodes},{n * 4}.0,{n * 4 + 2}.0" for n in range(80)]
    path = folder / "nodes.csv"
    path.write_text("node,start_day,end_day\n" + "\n".join(rows) + "\n")
    return path


def policies(summary: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = summary["jobs"][0]["policies"]
    return found


def check_shares(summary: dict[str, Any]) -> None:
    for name, own in policies(summary).items():
        assert 0 <= own["throughput"]["value"] <= 1.0001, name
        assert own["gpu_hours"]["useful"]["value"] >= 0, name


def test_where_whole_domains_fail_unequal_replicas_gain_and_cost_nothing(
    tmp_path: Path, planned: Planned
) -> None:
    """Nothing is left of a hurt replica: no sync is longer for it, and a finer batch is not NTP."""
    job = script(tmp_path)
    summary = planned(jobs=(job,), cluster="dgx-h100", gpus=512, log=log_of_nodes(tmp_path))
    check_shares(summary)
    own = policies(summary)
    for with_ntp, without in (("ntp", "dp-drop"), ("ntp-tokens", "dp-drop-tokens")):
        assert own[with_ntp]["throughput"]["value"] == own[without]["throughput"]["value"]
    assert summary["verdict"]["worth"] == "no"
    assert summary["verdict"]["reason"] == "no-domain-loss"
    extent = [r for r in summary["recommendation"]["changes"] if r["what"] == "extent of a failure"]
    assert extent[0]["setting"] == "one GPU"


def test_the_sync_of_hurt_replicas_counts_while_they_are_there() -> None:
    fleet = Fleet(32, 8, 8)

    def trace(*failures: tuple[float, float, int, int]) -> dict[int, float]:
        start, end, first, gpus = zip(*failures, strict=True)
        return hurt_hours(
            make_trace(100.0, start, end, first, gpus, [0] * len(start), ("x",)), fleet, 8, 4
        )

    assert trace((10.0, 30.0, 0, 1)) == {7: 20.0}
    assert trace((10.0, 30.0, 0, 1), (20.0, 50.0, 8, 2)) == {7: 10.0, 6: 30.0}
    assert trace((10.0, 30.0, 0, 8)) == {}  # below the floor: it is out


def test_a_fleet_that_is_not_quite_full_has_the_same_answer(
    tmp_path: Path, planned: Planned
) -> None:
    tried = {}
    for nodes in (63, 64):
        summary = planned(jobs=(script(tmp_path, nodes),), cluster="dgx-h100", gpus=nodes * 8)
        tried[nodes] = {row["policy"] for row in summary["charts"]["frontier"]
                        if row["spare_domains"]}  # fmt: skip
        check_shares(summary)
    assert tried[63] == tried[64] != set()


def test_gpus_beside_a_job_stand_in_for_lost_ones(tmp_path: Path, planned: Planned) -> None:
    job = script(tmp_path)
    tight = policies(planned(jobs=(job,), cluster="dgx-h100", gpus=512))
    wide = policies(planned(jobs=(job,), cluster="dgx-h100", gpus=544))
    assert wide["dp-drop"]["throughput"]["value"] > tight["dp-drop"]["throughput"]["value"]
    assert wide["dp-drop"]["spare_domains"] <= tight["dp-drop"]["spare_domains"]


def test_checkpoints_are_written_as_often_as_the_job_says(tmp_path: Path, planned: Planned) -> None:
    found = {}
    for every in (0, 200, 20000):
        job = script(tmp_path, extra=f"--save-interval {every}" if every else "")
        summary = planned(jobs=(job,), cluster="dgx-h100", gpus=512)
        found[every] = policies(summary)["restart"]["throughput"]["value"]
        stated = [fact for fact in summary["facts"] if fact["name"] == "checkpoints of today"]
        assert bool(stated) == bool(every)
    assert found[0] > found[200]
    assert found[0] > found[20000]


def test_without_tensor_parallelism_simpler_answers_are_still_given(planned: Planned) -> None:
    summary = planned({"degree": 1, "domain": 8, "gpus": 512, "rate": 4e-3})
    assert list(policies(summary)) == ["restart", "dp-drop", "dp-drop-tokens"]
    assert summary["verdict"]["worth"] == "no"
    assert summary["verdict"]["reason"] == "tensor-parallel-1"
    assert summary["verdict"]["policy"].startswith("dp-drop")
    assert summary["verdict"]["change"]
    assert not summary["portfolio"][0]["candidate"]
    assert summary["recommendation"]["net"]["low"] > 0


def test_today_with_spares_is_a_change(tmp_path: Path, planned: Planned) -> None:
    prices = tmp_path / "prices.toml"
    prices.write_text("engineer_week = 1e9\n")
    summary = planned(prices=prices)
    assert summary["verdict"]["policy"] == "restart"
    spares = summary["recommendation"]["spare_domains"]["value"]
    assert summary["verdict"]["change"] == bool(spares)
    assert (summary["recommendation"]["net"]["value"] > 0) == bool(spares)


def test_a_stated_floor_is_kept(tmp_path: Path) -> None:
    scenario = tmp_path / "floor.toml"
    scenario.write_text(
        "[cluster]\ngpus = 1024\ndomain = 32\n[job]\ndegree = 32\nsequences_per_replica = 8\n"
        "[failures]\nrate_per_gpu_day = 2e-3\nrepair_h = 120\nsteady_start = true\n"
        '[run]\ndays = 60\n[policies.ntp]\nkind = "ntp"\nmin_degree = 31\n'
    )
    found = plan(PlanArgs(scenario=scenario, seeds=2), tmp_path / "out")
    assert found["recommendation"]["min_degree"] >= 31
    assert all(row["degree"] >= 31 for row in found["recommendation"]["min_degree_tried"])


def test_free_gpu_hours_leave_no_gate_and_no_crash(tmp_path: Path, planned: Planned) -> None:
    prices = tmp_path / "prices.toml"
    prices.write_text("gpu_hour = 0\n")
    summary = planned(prices=prices)
    assert summary["status"] == "done"
    assert summary["path"][0]["gate"]["at_least"]["value"] is None


def test_the_chart_of_failed_shares_has_shares_that_can_be(planned: Planned) -> None:
    shares = planned({"gpus": 256, "domain": 8, "degree": 8})["charts"]["throughput"][
        "failed_share"
    ]
    assert shares == sorted(set(shares))
    assert shares[0] == 0.0
    assert all(abs(share * 256 * 20 - round(share * 256 * 20)) < 1e-3 for share in shares)


def test_nothing_that_is_dearer_and_no_faster_is_on_the_frontier(
    usual: tuple[dict[str, Any], Path],
) -> None:
    points = usual[0]["charts"]["frontier"]
    for a in points:
        better = [
            b for b in points
            if b["cost"] <= a["cost"] and b["throughput"] >= a["throughput"]
            and (b["cost"], b["throughput"]) != (a["cost"], a["throughput"])
        ]  # fmt: skip
        assert a["best"] == (not better)


def test_lost_hours_and_throughput_say_the_same(usual: tuple[dict[str, Any], Path]) -> None:
    (job,) = usual[0]["jobs"]
    for own in job["policies"].values():
        lost = own["loss"]["value"] * job["gpus"] * 8760
        assert own["lost"]["value"] == pytest.approx(lost)
