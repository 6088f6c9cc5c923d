"""Health events: drains, spares, GPUs that fail too often; and a join without the secret."""

from __future__ import annotations

import json
from typing import Any

import torch.distributed as dist

STEPS = 30


def tell(live: Any, **event: str) -> None:
    with (live.folder / "health.jsonl").open("a") as file:
        file.write(json.dumps(event) + "\n")


def test_a_drained_gpu_leaves_at_a_commit_and_nothing_is_done_again(
    lab: Any, elastic: Any, reference: Any
) -> None:
    """It is the only one with its units, so it has to send them before it goes."""

    def during(live: Any) -> None:
        live.wait_step(3)
        tell(live, kind="drained", gpu="0/1", reason="XID 79")
        live.wait_events("drained")

    job = lab.job(parallel={"replicas": 1, "degree": 3})
    run = lab.train(job, during=during)
    assert run.status == 0, run.stderr
    elastic.assert_same_training(run, reference)
    (drained,) = run.of_kind("drained")
    assert (drained["gpu"], drained["reason"]) == ("0/1", "XID 79")
    assert run.of_kind("failed") == run.of_kind("recovery") == run.of_kind("fallback") == []
    assert elastic.runs_of([row["degrees"] for row in run.steps]) == [[3], [2]]
    generations = [row["generation"] for row in run.steps]
    assert generations == sorted(generations)


def test_a_line_that_says_nothing_sensible_is_told_and_harms_nobody(
    lab: Any, elastic: Any, reference: Any
) -> None:
    def during(live: Any) -> None:
        live.wait_step(1)
        tell(live, kind="exploded", gpu="0/1")
        tell(live, kind="drained", gpu="7/7")
        live.wait_events("order", 2)

    run = lab.train(lab.job(), during=during)
    assert run.status == 0, run.stderr
    elastic.assert_same_training(run, reference)
    said = [event["reason"] for event in run.of_kind("order")]
    assert "exploded" in said[0]
    assert "7/7" in said[1]


def test_a_spare_takes_the_label_of_a_lost_gpu_and_the_returned_one_waits(
    lab: Any, elastic: Any, reference: Any
) -> None:
    """One GPU too many is a spare, and takes over when the next one goes."""

    def during(live: Any) -> None:
        live.wait_step(3)
        live.kill("0/1")
        live.wait_events("recovery")
        tell(live, kind="returned", gpu="0/1")
        live.wait_events("spare")
        live.kill("1/2")
        live.wait_events("recovery", 2)

    job = lab.job(parallel={"spares": 1}, run={"steps": 400})
    run = lab.train(job, during=during, options=["--steps", "250"])
    assert run.status == 0, run.stderr
    assert {tuple(row["degrees"]) for row in run.steps} == {(3, 3)}
    placements = [event["placement"] for event in run.of_kind("generation")]
    assert sorted(placements[1]["0"]) == ["0/0", "0/2", "2/0"]
    assert sorted(placements[2]["1"]) == ["0/1", "1/0", "1/1"]
    assert [event["gpu"] for event in run.of_kind("spare")] == ["0/1"]
    for row, expected in zip(run.steps, reference.steps, strict=False):
        assert row["sample_ids"] == expected["sample_ids"]


def test_a_spare_takes_a_label_while_others_of_its_crew_have_nothing_to_send(
    lab: Any, elastic: Any, reference: Any
) -> None:
    """Of degree 4 a label's units are in no other rank of the replica but for the norms, which one
    rank sends; the exchange of a group is for all of its ranks."""
    job = lab.job(parallel={"replicas": 2, "degree": 4, "spares": 1})
    run = lab.train(job, fails=["1/1@4"])
    assert run.status == 0, run.stderr
    elastic.assert_same_training(run, reference)
    assert {tuple(row["degrees"]) for row in run.steps} == {(4, 4)}
    assert run.of_kind("stalled") == []
    assert [event["gpu"] for event in run.of_kind("failed")] == ["1/1"]


def test_several_spares_make_up_for_a_whole_replica(lab: Any, elastic: Any, reference: Any) -> None:
    job = lab.job(parallel={"replicas": 2, "degree": 3, "min_degree": 3, "spares": 3})
    run = lab.train(job, fails=["1/0@4", "1/1@4", "1/2@4"])
    assert run.status == 0, run.stderr
    elastic.assert_same_training(run, reference)
    assert sorted(run.of_kind("generation")[-1]["placement"]["1"]) == ["2/0", "2/1", "2/2"]
    assert run.steps[-1]["degrees"] == [3, 3]
    assert all(len(pids) == 1 for pids in run.pids().values())


def test_a_gpu_that_fails_again_and_again_is_kept_out_longer_each_time(
    lab: Any, elastic: Any, reference: Any
) -> None:
    def during(live: Any) -> None:
        live.wait_step(2)
        for number in range(3):
            live.kill("1/1")
            live.wait_events("failed", number + 1)
            live.wait_events("recovery", number + 1)
            tell(live, kind="returned", gpu="1/1")
            live.wait_events("joined", number + 1)

    health = {"flaps": 1, "quarantine_s": 1.0, "quarantine_max_s": 60.0}
    job = lab.job(health=health, run={"steps": 5000})
    run = lab.train(job, during=after(during), options=["--steps", "5000"])
    assert run.status == 3, run.stderr
    waits = quarantines_s(run)
    assert len(waits) == 2
    assert waits[0] >= 0.9
    assert waits[1] >= 1.9


def after(story: Any) -> Any:
    """The story, and then the end of the run by hand: it is long enough for any machine."""

    def during(live: Any) -> None:
        import os
        import signal

        story(live)
        os.kill(live.launcher, signal.SIGTERM)

    return during


def quarantines_s(run: Any) -> list[float]:
    """From each failure that led to a quarantine to the start of the next process."""
    found = []
    for event in run.of_kind("quarantined"):
        failed = max(e["time_s"] for e in run.of_kind("failed") if e["time_s"] <= event["time_s"])
        back = min(e["time_s"] for e in run.of_kind("returned") if e["time_s"] >= event["time_s"])
        found.append(back - failed)
    return found


def test_who_does_not_know_the_secret_cannot_join_nor_speak(
    lab: Any, elastic: Any, reference: Any
) -> None:
    """Somebody reaches the store of the run and claims to be a GPU that has come back."""
    with_port = elastic.free_port()

    def during(live: Any) -> None:
        live.wait_step(2)
        live.kill("0/1")
        live.wait_events("recovery")
        stranger = dist.TCPStore("127.0.0.1", with_port, is_master=False, wait_for_workers=False)
        stranger.set("ready/0/1/2", "1")
        stranger.set("beat/1/1/1", json.dumps({"count": 1}))
        stranger.set("g2/report/1/0/1", json.dumps({"gpu": "1/0", "step": 99}))

    run = lab.train(lab.job(run={"port": with_port}), during=during)
    assert run.status == 0, run.stderr
    elastic.assert_same_training(run, reference)
    assert run.of_kind("joined") == []
    assert len(run.of_kind("generation")) == 2
