"""Faults that people met elsewhere, on real processes: norms, samples, saves that one cannot do."""

from __future__ import annotations

from typing import Any

import pytest

STEPS = 4


@pytest.fixture(scope="module")
def one_replica(lab: Any) -> Any:
    """(replicas, accumulation) = (1, 4) at a global batch of four sequences."""
    return run_split(lab, 1, 4)


def run_split(lab: Any, replicas: int, accumulation: int) -> Any:
    job = lab.job(
        parallel={"replicas": replicas, "degree": 1},
        batch={"sequences": 4, "accumulation": accumulation},
        run={"steps": STEPS},
    )
    run = lab.train(job)
    assert run.status == 0, run.stderr
    return run


def check_norms(run: Any, expected: Any, after: int = 0) -> None:
    for row, other in zip(run.steps, expected.steps, strict=False):
        if row["step"] > after:
            assert row["sample_ids"] == other["sample_ids"]
            assert row["grad_norm"] == pytest.approx(other["grad_norm"], rel=1e-12)
            assert row["loss"] == pytest.approx(other["loss"], rel=1e-12)


@pytest.mark.parametrize(("replicas", "accumulation"), [(2, 2), (4, 1)])
def test_the_norm_does_not_depend_on_how_the_batch_is_split(
    lab: Any, one_replica: Any, replicas: int, accumulation: int
) -> None:
    check_norms(run_split(lab, replicas, accumulation), one_replica)


def test_the_norm_is_the_same_with_three_and_one_over_two_replicas(lab: Any, elastic: Any) -> None:
    """Shares 3 + 1, since one replica has lost two of its three GPUs."""
    batch = {"sequences": 4, "accumulation": 1}
    whole = lab.train(lab.job(parallel={"replicas": 1, "degree": 1}, batch=batch))
    job = lab.job(parallel={"replicas": 2, "degree": 3}, batch=batch)
    run = lab.train(job, fails=["1/1@3", "1/2@3"])
    assert run.status == 0, run.stderr
    assert run.steps[-1]["batch_shares"] == [3, 1]
    elastic.assert_same_training(run, whole)


def test_a_save_that_only_one_rank_cannot_do_holds_nobody_up(
    lab: Any, elastic: Any, reference: Any
) -> None:
    """One rank meets an error of the file system; nothing in a save waits for another rank."""
    victim = "step-00000015-gpu-1-0.distcp"

    def during(live: Any) -> None:
        live.wait_step(2)
        (live.folder / "checkpoints" / "step-00000015.g1.part" / victim).mkdir(parents=True)

    run = lab.train(lab.job(checkpoint={"every": 15}), during=during)
    assert run.status == 0, run.stderr
    elastic.assert_same_training(run, reference)
    (failed,) = run.of_kind("checkpoint_failed")
    assert failed["step"] == 15
    assert "GPU 1/0" in failed["reason"]
    assert [event["step"] for event in run.of_kind("checkpoint")] == [30]
