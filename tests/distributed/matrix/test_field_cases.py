"""Faults that people met elsewhere, on real processes: batches that shrink, losses before a group's
first collective, one process too many, state that arrives wrong."""

from __future__ import annotations

import time
from typing import Any

import pytest
from means.around import FAULT_STEP
from means.bouts import (
    AROUND,
    HANG_S,
    PRIOR,
    STEPS,
    Bout,
    check_samples,
    check_times,
    fight,
    job_of,
    start_of,
    story,
)
from means.strikes import Strike, strike_folder

VICTIM = "1/0"
BOUND_S = 10.0  # hang_timeout_s is 30: nobody may have waited for that


@pytest.mark.parametrize("label", range(3))
def test_any_local_rank_may_die_and_the_batch_stays(
    lab: Any, elastic: Any, reference: Any, label: int
) -> None:
    gpu = f"1/{label}"
    killed_s = [0.0]

    def during(live: Any) -> None:
        live.wait_step(4)
        killed_s[0] = time.time()
        live.kill(gpu)

    run = lab.train(job_of(lab), during=during)
    assert run.status == 0, run.stderr
    elastic.assert_same_training(run, reference, steps=STEPS)
    (recovery,) = run.of_kind("recovery")
    assert recovery["gpu"] == gpu
    assert recovery["time_s"] - (killed_s[0] - start_of(run)) <= BOUND_S
    assert run.steps[-1]["degrees"] == [3, 2, 3]
    assert {row["samples"] for row in run.steps} == {9}
    assert {row["tokens"] for row in run.steps} == {9 * 16}


@pytest.mark.parametrize("way", ["kill", "stop"])
@pytest.mark.parametrize("place", ["groups", "first collective"])
def test_before_the_first_collective_of_a_group(
    lab: Any, elastic: Any, reference: Any, place: str, way: str
) -> None:
    """The others stand in the rendezvous of their groups, or have just left it."""
    phase = "regroup" if place == "groups" else "forward"
    strike = Strike((VICTIM,), phase, way, step=1)
    changes = {"run": {"hang_timeout_s": HANG_S}} if way == "stop" else {}
    bout = fight(lab, strike, changes, fails=[f"{PRIOR}@8"])
    check_ends_well(bout, elastic, reference)
    assert bout.failed() == {VICTIM, PRIOR}, story(bout)
    first = bout.run.of_kind("failed")[0]
    assert (first["gpu"], first["generation"]) == (VICTIM, 1)
    if way == "stop":
        check_times(bout, HANG_S)
    else:
        recovery = bout.run.of_kind("recovery")[0]
        assert recovery["time_s"] - bout.struck_s(start_of(bout.run)) <= BOUND_S


@pytest.mark.parametrize("phase", ["forward", "reshard", "all-reduce", "optimizer", "checkpoint"])
def test_one_that_is_stuck_in_its_own_work_is_given_up(
    lab: Any, elastic: Any, reference: Any, phase: str
) -> None:
    """It lives and says so; nobody else may be taken for it."""
    strike = Strike((VICTIM,), phase, "spin", step=5)
    changes = {"run": {"hang_timeout_s": HANG_S}, "checkpoint": {"every": 3}}
    bout = fight(lab, strike, changes, fails=[f"{PRIOR}@2"])
    check_ends_well(bout, elastic, reference)
    assert bout.failed() == ({PRIOR} if phase == "checkpoint" else {VICTIM, PRIOR}), story(bout)
    assert bout.run.of_kind("stalled") == [], story(bout)


def test_one_whose_place_was_taken_by_a_spare_becomes_a_spare(
    lab: Any, elastic: Any, reference: Any
) -> None:
    def during(live: Any) -> None:
        live.wait_events("spare")
        (strike_folder(live.folder) / "heard").touch()

    strike = Strike((), "nowhere", "none", STEPS, hold_step=7, hold="heard")
    bout = fight(
        lab,
        strike,
        {"parallel": {"spares": 1}},
        fails=["0/1@3"],
        returns=["0/1@5"],
        during=during,
    )
    check_ends_well(bout, elastic, reference)
    run = bout.run
    assert [event["gpu"] for event in run.of_kind("spare")] == ["0/1"]
    assert len(run.of_kind("generation")) == 2, "the one who came back changed nothing"
    assert run.steps[-1]["degrees"] == [3, 3, 3]
    assert run.of_kind("recovery")[0]["transfer_bytes"] > 0


def test_state_that_arrives_wrong_is_found_and_another_source_serves(
    lab: Any, elastic: Any, reference: Any
) -> None:
    """One bit turns on the way to one of those who take the units of the lost one."""
    bout = fight(lab, Strike(("0/0",), "nowhere", "damage", STEPS), fails=["0/2@3"])
    check_ends_well(bout, elastic, reference)
    (wrong,) = (event for event in bout.run.of_kind("failed") if event["gpu"] != "0/2")
    assert wrong["gpu"] == "0/0"
    assert "checksum" in wrong["reason"]


def test_state_that_arrives_wrong_everywhere_is_never_used(
    lab: Any, elastic: Any, reference: Any
) -> None:
    """At once, or in the next generation: then the run ends and says why, with the steps it has."""
    bout = fight(lab, Strike(("0/0", "0/1"), "nowhere", "damage", STEPS), fails=["0/2@3"])
    run = bout.run
    wrong = [event for event in run.of_kind("failed") if event["gpu"] != "0/2"]
    assert {event["gpu"] for event in wrong} == {"0/0", "0/1"}, story(bout)
    assert all("checksum" in event["reason"] for event in wrong), story(bout)
    elastic.assert_same_training(run, reference, steps=run.last_step())
    if run.status == 0:
        assert run.last_step() == STEPS
    else:
        assert (run.status, run.last_step()) == (3, 2), story(bout)
        assert "checksum" in run.summary["reason"]


def check_ends_well(bout: Bout, elastic: Any, reference: Any) -> None:
    assert bout.run.status == 0, story(bout)
    elastic.assert_same_training(bout.run, reference, steps=STEPS)
    check_samples(bout)


def test_the_clock_of_files_is_that_of_the_log(reference: Any) -> None:
    """What `check_times` rests on: the step log was written last when its last step was told."""
    written_s = (reference.folder / "steps.jsonl").stat().st_mtime
    told_s = start_of(reference) + reference.steps[-1]["time_s"]
    assert abs(written_s - told_s) <= 0.2


@pytest.mark.parametrize("prior", [[], ["0/2@3"]], ids=["whole", "hurt"])
def test_a_launcher_that_fails_loses_no_more_than_one_that_is_killed(
    lab: Any, elastic: Any, reference: Any, prior: list[str]
) -> None:
    """A fault of its own, and no checkpoint was ever made: the ranks write what they hold."""
    out = lab.out()
    job = job_of(lab, checkpoint={"every": 0, "final": True})
    failing = (*AROUND[:2], "failing_launcher")
    run = lab.train(job, fails=prior, out=out, around=failing)
    assert run.status == 3, run.stderr
    assert "MemoryError: no memory is left" in run.summary["reason"]
    assert run.last_step() == FAULT_STEP - 1
    again = lab.train(job, out=out, options=["--resume"])
    assert again.status == 0, again.stderr
    elastic.assert_same_training(again, reference, steps=STEPS)
    (rescued,) = again.of_kind("rescued")
    assert rescued["step"] >= FAULT_STEP


@pytest.mark.parametrize("victim", ["1/0", "2/2"], ids=["sync rank", "extra rank"])
def test_a_step_that_is_not_finite_is_committed_and_skipped_by_all(lab: Any, victim: str) -> None:
    """One rank finds no number; everybody agrees on it, and nobody's weights change."""
    strike = Strike((victim,), "nowhere", "nan", step=5)
    bout = fight(lab, strike, {"run": {"check_units": True}}, fails=[f"{PRIOR}@2"])
    run = bout.run
    assert run.status == 0, story(bout)
    assert [row["step"] for row in run.steps] == list(range(1, STEPS + 1))
    assert [event["step"] for event in run.of_kind("skip")] == [5]
    assert [isinstance(row["loss"], float) for row in run.steps].count(False) == 1
    assert bout.failed() == {PRIOR}, story(bout)
    check_samples(bout)


def test_a_step_that_is_not_finite_ends_the_run_where_the_job_says_so(lab: Any) -> None:
    strike = Strike(("1/0",), "nowhere", "nan", step=5)
    bout = fight(lab, strike, {"run": {"nonfinite": "stop"}})
    assert bout.run.status == 3, story(bout)
    assert "step 5" in bout.run.summary["reason"]
    assert bout.run.last_step() == 5
