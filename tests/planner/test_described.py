"""From the files that people have to a whole answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nonuniform.errors import BadInput
from nonuniform.planner.inputs import understand
from nonuniform.planner.run import PlanArgs

from .conftest import Planned

CLUSTER = """
[cluster]
name = "ours"
gpu = "h100_sxm"
domain = 32
gpus = 2048
[prices]
gpu_hour = 1.5
"""


def script(folder: Path, name: str = "train.sh", **changes: object) -> Path:
    size: dict[str, object] = {"tp": 32, "pp": 2, "nodes": 256, "batch": 512, **changes}
    path = folder / name
    path.write_text(
        "#!/bin/bash\n"
        f"torchrun --nproc_per_node 8 --nnodes {size['nodes']} pretrain_gpt.py \\\n"
        f"  --tensor-model-parallel-size {size['tp']} --pipeline-model-parallel-size {size['pp']} "
        "--num-layers 64 --hidden-size 8192 --num-attention-heads 64 --seq-length 4096 "
        f"--micro-batch-size 1 --global-batch-size {size['batch']} --train-iters 2000000 --bf16 "
        "--use-distributed-optimizer --vocab-size 32000 --strange 3\n"
    )
    return path


def cluster(folder: Path) -> str:
    path = folder / "ours.toml"
    path.write_text(CLUSTER)
    return str(path)


def test_a_script_and_a_cluster_make_an_answer(tmp_path: Path, planned: Planned) -> None:
    summary = planned(
        jobs=(script(tmp_path),), cluster=cluster(tmp_path), failures="ntp-paper", seeds=3
    )
    (job,) = summary["jobs"]
    assert (job["degree"], job["stages"], job["replicas"], job["gpus"]) == (32, 2, 32, 2048)
    assert job["step_time"]["value"] > 0
    assert job["days"]["value"] == pytest.approx(2e6 * job["step_time"]["value"] / 86400, rel=0.01)
    assert summary["unknown"][0]["file"] == "train.sh"
    assert "--strange" in summary["unknown"][0]["what"]
    assert [row["what"] for row in summary["inputs"]] == ["job", "cluster", "failures"]
    assert all(len(row["sha256"]) == 64 for row in summary["inputs"][:2])
    marked = {row["key"]: row["value"] for row in summary["money"]["prices"] if row["overridden"]}
    assert marked == {"gpu_hour": 1.5}
    assert summary["marginal"]["hidden_sync"]["value"] >= 0
    assert {"stages"} <= set(job["policies"]["ntp"]["needs"])


def test_what_was_assumed_is_marked(tmp_path: Path) -> None:
    found = understand(PlanArgs(jobs=(script(tmp_path),), cluster=cluster(tmp_path)))
    marked = {(fact["about"], fact["name"]) for fact in found.facts if fact["assumed"]}
    assert {("failures", "catalog"), ("transition", "restart"), ("job train.sh", "boost")} <= marked


def test_several_jobs_make_a_portfolio(tmp_path: Path, planned: Planned) -> None:
    jobs = (
        script(tmp_path, "large.sh", nodes=128, batch=256),
        script(tmp_path, "small.sh", nodes=32, tp=1, pp=1, batch=256),
    )
    summary = planned(jobs=jobs, cluster=cluster(tmp_path), seeds=3)
    rows = summary["portfolio"]
    assert {row["job"] for row in rows} == {"large", "small"}
    assert rows[0]["lost"]["value"] >= rows[1]["lost"]["value"]
    assert summary["recommendation"]["job"] == "large"
    reasons = {row["job"]: row["reason"] for row in rows}
    assert reasons["small"] == "tensor-parallel-1"


def test_a_log_goes_all_the_way(tmp_path: Path, planned: Planned) -> None:
    from nonuniform.cluster.fleet import Fleet
    from nonuniform.planner.example_log import example_log

    path = tmp_path / "faults.csv"
    path.write_text(example_log(Fleet(2048, 32, 8), days=60))
    summary = planned(jobs=(script(tmp_path),), cluster=cluster(tmp_path), log=path, seeds=3)
    assert summary["example"]
    assert summary["jobs"][0]["failed_share"]["now"]["kind"] == "simulated"
    played = summary["replay"]["policies"]
    own = summary["jobs"][0]["policies"]
    assert played["ntp-tokens"]["value"] == pytest.approx(
        own["ntp-tokens"]["throughput"]["value"], abs=0.05
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tp": 64, "nodes": 256}, "tensor = 64 is more than the 32 GPUs of a domain"),
        ({"nodes": 512, "batch": 1024}, "has 64"),
    ],
)
def test_a_job_that_does_not_fit_is_one_line(
    tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(BadInput, match=words) as caught:
        understand(PlanArgs(jobs=(script(tmp_path, **changes),), cluster=cluster(tmp_path)))
    assert "\n" not in str(caught.value)


def test_failures_are_told_once(tmp_path: Path) -> None:
    args = PlanArgs(
        jobs=(script(tmp_path),),
        cluster=cluster(tmp_path),
        log=tmp_path / "x.csv",
        failures="llama3",
    )
    with pytest.raises(BadInput, match="cannot be together with --log"):
        understand(args)


def test_a_rack_without_room_leaves_more_power_out(tmp_path: Path, planned: Planned) -> None:
    """An H100 is delivered at its ceiling: boosting it would be the same answer, only dearer."""
    job = script(tmp_path, tp=8, nodes=128)
    summary = planned(jobs=(job,), cluster="dgx-h100", gpus=1024, seeds=3)
    assert "ntp-pw" not in summary["jobs"][0]["policies"]
    assert summary["marginal"]["boost"]["value"] is None
    assert summary["charts"]["rack"] is None
    assert all(row["what"] != "boost" for row in summary["recommendation"]["changes"])
    assert {"ntp-tokens", "restart"} <= summary["charts"]["throughput"]["policies"].keys()


def test_prices_are_those_of_the_gpu(tmp_path: Path) -> None:
    from nonuniform.planner.prices import default_prices, read_prices

    seen = understand(PlanArgs(jobs=(script(tmp_path, tp=8),), cluster="dgx-h100", gpus=2048))
    found = read_prices(None, None, seen.prices, seen.gpu)
    assert found["gpu_watts"] == 700
    assert found["gpu_hour"] == 1.42
    assert found["engineer_week"] == default_prices()["engineer_week"]
    assert not any(price.overridden for price in found.rows.values())


def test_the_checkpoint_interval_is_that_of_the_answer(tmp_path: Path, planned: Planned) -> None:
    summary = planned(jobs=(script(tmp_path),), cluster=cluster(tmp_path), seeds=3)
    advice = summary["recommendation"]
    every = advice["checkpoint_every"]
    if advice["policy"] == "restart":
        assert every["recommended"] == every["simulated"]
    else:
        assert every["recommended"]["value"] == 3600
        assert every["recommended"]["kind"] == "assumed"
