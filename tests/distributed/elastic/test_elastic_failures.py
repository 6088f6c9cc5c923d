"""GPUs are lost while a run goes on, and come back; the curve is that of the uninterrupted run."""

from __future__ import annotations

import time
from random import Random
from typing import Any

import psutil
import pytest

GPUS = ("0/0", "0/1", "0/2", "1/0", "1/1", "1/2")
TIMES = ("detect_s", "regroup_s", "transfer_s", "redo_s")
SILENCE_S = 20.0  # hang_timeout_s is 30: nobody may have waited for that
VALIDATING = {"val_every": 1, "val_sequences": 24}


class Witness:
    """Looks again and again at which processes of a run are alive."""

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._seen: dict[int, psutil.Process] = {}
        self.missed: set[int] = set()
        self.looks = 0

    def __call__(self, live: Any) -> None:
        while live.summary is None:
            for pids in live.pids().values():
                for pid in pids:
                    self._look_up(pid)
            gone = {pid for pid, process in self._seen.items() if not process.is_running()}
            if live.last_step() < self._steps:  # else they may have ended because all is done
                self.missed |= gone
                self.looks += 1
            time.sleep(0.05)

    def _look_up(self, pid: int) -> None:
        if pid not in self._seen and pid not in self.missed:
            try:
                self._seen[pid] = psutil.Process(pid)
            except psutil.NoSuchProcess:
                self.missed.add(pid)


def degrees(run: Any) -> list[list[int]]:
    return [row["degrees"] for row in run.steps]


@pytest.mark.parametrize("lost", [["0/2"], ["1/0"], ["0/1", "1/2"]], ids="+".join)
def test_lost_gpus_come_back_and_the_curve_stays(
    lab: Any, elastic: Any, reference: Any, draw: Random, lost: list[str]
) -> None:
    """The last label, another label, and two labels at one step, one in each replica."""
    fail = draw.randint(3, 9)
    back = fail + draw.randint(3, 5)
    print(f"lost at step {fail}, back at step {back}")  # noqa: T201
    witness = Witness(elastic.STEPS)
    run = lab.train(
        lab.job(parallel={"min_degree": 2}),
        fails=[f"{gpu}@{fail}" for gpu in lost],
        returns=[f"{gpu}@{back}" for gpu in lost],
        during=witness,
    )
    assert run.status == 0, run.stderr
    elastic.assert_same_training(run, reference)
    check_degrees(run, elastic, lost)
    check_processes(run, lost, witness)
    check_recoveries(run, lost, fail)
    assert run.summary["status"] == "done"
    assert run.summary["failures"] == run.summary["returns"] == len(lost)


def check_degrees(run: Any, elastic: Any, lost: list[str]) -> None:
    """Down and up again; two that come back may join one after the other."""
    seen = elastic.runs_of(degrees(run))
    hurt = [3 - sum(gpu[0] == str(replica) for gpu in lost) for replica in (0, 1)]
    assert seen[0] == seen[-1] == [3, 3]
    assert hurt in seen
    totals = [sum(row) for row in seen]
    lowest = totals.index(sum(hurt))
    assert totals[: lowest + 1] == sorted(totals[: lowest + 1], reverse=True)
    assert totals[lowest:] == sorted(totals[lowest:])


def check_processes(run: Any, lost: list[str], witness: Witness) -> None:
    """Only the processes that were killed are gone, and only their GPUs got another."""
    pids = run.pids()
    assert {gpu: len(found) for gpu, found in pids.items()} == {
        gpu: 2 if gpu in lost else 1 for gpu in GPUS
    }
    assert {event["gpu"]: event["pid"] for event in run.of_kind("failed")} == {
        gpu: pids[gpu][0] for gpu in lost
    }
    assert witness.looks > 0
    assert witness.missed <= {pids[gpu][0] for gpu in lost}


def check_recoveries(run: Any, lost: list[str], fail: int) -> None:
    recoveries = run.of_kind("recovery")
    assert {event["gpu"] for event in recoveries} <= set(lost)
    assert next(event["step"] for event in recoveries) == fail
    for event in recoveries:
        assert {name: event[name] >= 0 for name in TIMES} == dict.fromkeys(TIMES, True)
        assert event["transfer_bytes"] > 0
    assert all(event["transfer_bytes"] > 0 for event in run.of_kind("joined"))
    check_told(run, lost, joined=lost)


def test_failures_during_validation(lab: Any, elastic: Any, reference: Any, draw: Random) -> None:
    """Killed from outside, right after the step that is being validated was written down."""
    victims = draw.sample(GPUS, 3)
    steps = sorted(draw.sample(range(2, elastic.STEPS - 6, 4), 3))
    print(f"{victims} killed after the steps {steps}")  # noqa: T201

    def during(live: Any) -> None:
        for number, (gpu, step) in enumerate(zip(victims, steps, strict=True)):
            live.wait_step(step)
            time.sleep(draw.uniform(0.0, 0.01))
            live.kill(gpu)
            live.wait_events("recovery", number + 1)

    run = lab.train(lab.job(run=VALIDATING), during=during)
    assert run.status == 0, run.stderr
    elastic.assert_same_training(run, reference)
    assert [event["gpu"] for event in run.of_kind("failed")] == victims
    validating = [e for e in run.of_kind("recovery") if "validat" in work_lost(run, e)]
    assert validating, "no failure fell into a validation"
    check_validations(run, reference, elastic)


def work_lost(run: Any, recovery: dict[str, Any]) -> str:
    """What was done again: the step was committed already if it was its validation."""
    (published,) = [
        event
        for event in run.of_kind("generation")
        if event["generation"] == recovery["generation"]
    ]
    return "validation" if recovery["step"] == published["step"] else "training"


def check_validations(run: Any, reference: Any, elastic: Any) -> None:
    """Each exactly once, in order, with the loss of the uninterrupted run."""
    ours, theirs = run.of_kind("validation"), reference.of_kind("validation")
    assert [event["step"] for event in ours] == list(range(1, elastic.STEPS + 1))
    for event, expected in zip(ours, theirs, strict=True):
        assert event["tokens"] == expected["tokens"]
        assert event["loss"] == pytest.approx(expected["loss"], rel=elastic.TOLERANCE)


def test_three_kills_at_any_moment(lab: Any, elastic: Any, reference: Any, draw: Random) -> None:
    """From outside, also while the survivors still regroup. One replica dies bit by bit."""
    victims = draw.sample(GPUS[:3], 3)
    pauses = [draw.uniform(0.0, 0.4) for _ in victims]
    print(f"{victims} killed after pauses of {pauses} s")  # noqa: T201

    def during(live: Any) -> None:
        live.wait_step(draw.randint(1, 10))
        for gpu, pause_s in zip(victims, pauses, strict=True):
            time.sleep(pause_s)
            live.kill(gpu)

    run = lab.train(lab.job(), during=during)
    assert run.status == 0, run.stderr
    elastic.assert_same_training(run, reference)
    assert sorted(event["gpu"] for event in run.of_kind("failed")) == sorted(victims)
    assert degrees(run)[-1] == [0, 3]
    assert run.steps[-1]["batch_shares"] == [0, 6]
    assert {gpu: len(pids) for gpu, pids in run.pids().items()} == dict.fromkeys(GPUS, 1)


def test_kills_while_groups_form(lab: Any, elastic: Any, reference: Any, draw: Random) -> None:
    """The next one dies just after each new generation was published: groups are half connected,
    units half way. The other replica holds everything all the time."""
    storm(lab, elastic, reference, draw)


@pytest.mark.soak
@pytest.mark.parametrize("number", range(8))
def test_many_kills_while_groups_form(
    lab: Any, elastic: Any, reference: Any, draw: Random, number: int
) -> None:
    storm(lab, elastic, reference, draw)


def storm(lab: Any, elastic: Any, reference: Any, draw: Random) -> None:
    replica = draw.randint(0, 1)
    victims = draw.sample([f"{replica}/{index}" for index in range(4)], 4)
    pauses = [draw.uniform(0.0, 0.1) for _ in victims]
    print(f"{victims} killed after pauses of {pauses} s")  # noqa: T201

    def during(live: Any) -> None:
        live.wait_step(draw.randint(1, 5))
        for number, (gpu, pause_s) in enumerate(zip(victims, pauses, strict=True)):
            if number:
                live.wait_events("failed", number)
                live.wait("a generation", lambda: live.events[-1]["kind"] != "failed")
            time.sleep(pause_s)
            live.kill(gpu)

    run = lab.train(lab.job(parallel={"degree": 4}), during=during)
    assert run.status == 0, run.stderr
    elastic.assert_same_training(run, reference)
    assert [event["gpu"] for event in run.of_kind("failed")] == victims
    assert degrees(run)[-1] == ([0, 4] if replica == 0 else [4, 0])
    check_told(run, lost=victims, joined=[])
    assert max(run.gaps_s()) < SILENCE_S


def test_a_gpu_dies_while_another_joins(
    lab: Any, elastic: Any, reference: Any, draw: Random
) -> None:
    """After the generation with the joining GPU was published, before its first step."""
    fail = draw.randint(2, 6)

    def during(live: Any) -> None:
        live.wait_events("generation", 3)
        time.sleep(draw.uniform(0.0, 0.05))
        live.kill("0/2")

    run = lab.train(lab.job(), fails=[f"0/1@{fail}"], returns=[f"0/1@{fail + 2}"], during=during)
    assert run.status == 0, run.stderr
    elastic.assert_same_training(run, reference)
    assert degrees(run)[-1] == [2, 3]
    check_told(run, lost=["0/1", "0/2"], joined=["0/1"])
    assert run.summary["returns"] == 1


def check_told(run: Any, lost: list[str], joined: list[str]) -> None:
    """Every loss is in the reason of a recovery, every return has an event, each once."""
    reasons = [event["reason"].partition(" failed")[0] for event in run.of_kind("recovery")]
    assert sorted(", ".join(reasons).split(", ")) == sorted(lost)
    assert sorted(event["gpu"] for event in run.of_kind("joined")) == sorted(joined)


def test_a_replica_below_min_degree_is_dissolved_and_rebuilt(
    lab: Any, elastic: Any, reference: Any, draw: Random
) -> None:
    gpu, fail = draw.choice(GPUS), draw.randint(3, 9)
    witness = Witness(elastic.STEPS)
    run = lab.train(
        lab.job(parallel={"min_degree": 3}),
        fails=[f"{gpu}@{fail}"],
        returns=[f"{gpu}@{fail + 6}"],
        during=witness,
    )
    assert run.status == 0, run.stderr
    elastic.assert_same_training(run, reference)
    alone, shares = ([0, 3], [0, 6]) if gpu[0] == "0" else ([3, 0], [6, 0])
    assert elastic.runs_of(degrees(run)) == [[3, 3], alone, [3, 3]]
    assert all(row["batch_shares"] == shares for row in run.steps if row["degrees"] == alone)
    (joined,) = run.of_kind("joined")
    assert joined["gpu"] == gpu
    assert joined["transfer_bytes"] > run.of_kind("recovery")[0]["transfer_bytes"] == 0
    check_processes(run, [gpu], witness)


def check_failed_run(run: Any, elastic: Any, *words: str) -> None:
    """Status 3, one line, the same reason in the books, no process left."""
    assert run.status == 3, run.stderr
    assert run.summary["status"] == "failed"
    (line,) = run.stderr.splitlines()
    assert line == f"nonuniform: {run.summary['reason']}"
    for word in words:
        assert word in line
    assert run.summary["steps"] == run.last_step()
    alive = [pid for pids in run.pids().values() for pid in pids if psutil.pid_exists(pid)]
    assert alive == []


def test_no_replica_left_ends_the_run(lab: Any, elastic: Any, reference: Any, draw: Random) -> None:
    first, second = draw.sample(range(3, elastic.STEPS), 2)
    job = lab.job(parallel={"min_degree": 3, "borrow": False})
    run = lab.train(job, fails=[f"0/2@{first}", f"1/0@{second}"])
    check_failed_run(run, elastic, "no replica is left", "min_degree is 3", "2, 2")
    elastic.assert_same_training(run, reference, steps=max(first, second) - 1)


def test_units_that_nobody_holds_end_the_run(
    lab: Any, elastic: Any, reference: Any, draw: Random
) -> None:
    """The only replica loses a GPU: nobody else has its units, and there is no checkpoint."""
    fail = draw.randint(2, 10)
    job = lab.job(parallel={"replicas": 1, "degree": 2})
    run = lab.train(job, fails=[f"0/{draw.randint(0, 1)}@{fail}"])
    check_failed_run(run, elastic, "units", "no checkpoint", f"after step {fail - 1}")
    elastic.assert_same_training(run, reference, steps=fail - 1)
