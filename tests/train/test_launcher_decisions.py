"""The launcher's decisions, with threads for workers: each step once, whoever dies at whatever
moment, and a reason for whatever happens."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist
from standins.workers import Ghost, GhostSpawner, Killed, Script

from nonuniform.config import (
    BatchConfig,
    DataConfig,
    JobConfig,
    ModelConfig,
    ParallelConfig,
    RunConfig,
    ScheduledEvent,
)
from nonuniform.errors import RunFailed
from nonuniform.train import launcher as launcher_module
from nonuniform.train.chronicle import Chronicle
from nonuniform.train.data import Corpus, WindowOptions, Windows
from nonuniform.train.interrupt import Interrupt
from nonuniform.train.journal import RunFolder
from nonuniform.train.launcher import Launcher
from nonuniform.train.membership import Board
from nonuniform.train.roster import JobSetup
from nonuniform.train.session import job_plan
from nonuniform.view.observer import NullObserver

STEPS = 5


def nothing(ghost: Ghost, place: str) -> None:
    """A script by which all goes well."""


def job_of(**run: Any) -> JobConfig:
    return JobConfig(
        ModelConfig(layers=1, hidden=8, heads=4, kv_heads=2, vocab=256),
        ParallelConfig(2, 3, 2),
        BatchConfig(6, 4),
        RunConfig(**{"steps": STEPS, "hang_timeout_s": 10.0, "log_sample_ids": True, **run}),
        DataConfig(holdout=0.1),
    )


class Run:
    """A launcher and what came of it."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self._monkeypatch = monkeypatch
        self.seconds = 0.0

    def __call__(
        self, script: Script = nothing, schedule: tuple[ScheduledEvent, ...] = (), **run: Any
    ) -> Launcher:
        (self.folder / "text").write_bytes(bytes(range(256)) * 8)
        job = job_of(**run)
        corpus = Corpus.open(["text"], self.folder)
        windows = Windows(corpus, WindowOptions(4, 6, 1, 0.1))
        setup = JobSetup(job, job_plan(job), corpus, windows, 0, self.folder, "cpu")
        store = dist.HashStore()
        self.spawner = GhostSpawner(store, script)
        self._monkeypatch.setattr(launcher_module, "END_PATIENCE_S", 1.0)
        chronicle = Chronicle(RunFolder.create(self.folder / "out"), NullObserver(), 2)
        launcher = Launcher(setup, Board(store), chronicle, schedule, Interrupt(), self.spawner)
        start = time.monotonic()
        try:
            launcher.run()
        finally:
            self.seconds = time.monotonic() - start
            chronicle.close("test", "over")
        return launcher

    def rows(self, name: str) -> list[dict[str, Any]]:
        text = (self.folder / "out" / f"{name}.jsonl").read_text()
        return [json.loads(line) for line in text.splitlines()]

    def events(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.rows("events") if event["kind"] == kind]

    def check_steps(self, steps: int = STEPS) -> None:
        """Each step once, with the samples and the loss it has without any failure."""
        rows = self.rows("steps")
        assert [row["step"] for row in rows] == list(range(1, steps + 1))
        for row in rows:
            assert row["loss"] == pytest.approx(1 / row["step"])
            assert len(set(row["sample_ids"])) == 6
        samples = [sample for row in rows for sample in row["sample_ids"]]
        assert len(set(samples)) == len(samples)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    return Run(tmp_path, monkeypatch)


def once(action: Callable[[Ghost], None], gpu: str, place: str) -> Script:
    """Do something when this GPU first comes to this place."""
    done = threading.Event()

    def script(ghost: Ghost, here: str) -> None:
        if (ghost.gpu, here) == (gpu, place) and not done.is_set():
            done.set()
            action(ghost)

    return script


def die(ghost: Ghost) -> None:
    ghost.life.kill()
    raise Killed


def both(*scripts: Script) -> Script:
    def script(ghost: Ghost, place: str) -> None:
        for one in scripts:
            one(ghost, place)

    return script


def test_a_run_without_failures(run: Run) -> None:
    launcher = run(val_every=2)
    run.check_steps()
    assert {row["generation"] for row in run.rows("steps")} == {1}
    assert [event["step"] for event in run.events("validation")] == [2, 4, 5]
    assert run.events("recovery") == run.events("failed") == []
    assert launcher.position.step == STEPS
    assert run.seconds < 10.0


@pytest.mark.parametrize("place", ["settle 1", "train 1", "train 3", "ready 3", "voted 3"])
@pytest.mark.parametrize("gpu", ["0/2", "1/0"])
def test_a_death_at_any_moment_costs_no_step(run: Run, place: str, gpu: str) -> None:
    run(once(die, gpu, place))
    run.check_steps()
    (failed,) = run.events("failed")
    assert failed["gpu"] == gpu
    assert "SIGKILL" in failed["reason"]
    (recovery,) = run.events("recovery")
    assert recovery["gpu"] == gpu
    assert recovery["generation"] == 2
    degrees = [row["degrees"] for row in run.rows("steps")]
    assert degrees[-1] == ([2, 3] if gpu == "0/2" else [3, 2])


def test_what_all_that_live_had_voted_for_is_committed(run: Run) -> None:
    """One has all it needs and so have the others, but it dies before it can vote."""

    def script(ghost: Ghost, place: str) -> None:
        if place == "ready 3" and ghost.gpu == "0/1" and ghost.generation == 1:
            for other in ("0/0", "0/2", "1/0", "1/1", "1/2"):
                ghost.wait(f"g1/train3/vote/{other}")
            die(ghost)

    run(script)
    run.check_steps()
    assert [row["generation"] for row in run.rows("steps")] == [1, 1, 1, 2, 2]


def test_a_death_after_the_last_commit_needs_no_recovery(run: Run) -> None:
    def script(ghost: Ghost, place: str) -> None:
        if (ghost.gpu, place) == ("0/1", f"voted {STEPS}"):
            ghost.wait(f"g1/train{STEPS}/outcome")
            die(ghost)

    run(script)
    run.check_steps()
    assert run.events("recovery") == []


def test_a_step_that_somebody_alive_had_not_voted_for_is_done_again(run: Run) -> None:
    def script(ghost: Ghost, place: str) -> None:
        if place == "ready 3" and ghost.generation == 1:
            if ghost.gpu == "0/1":
                die(ghost)
            if ghost.gpu == "1/1":
                ghost.wait("g1/over")

    run(script)
    run.check_steps()
    assert [row["generation"] for row in run.rows("steps")] == [1, 1, 2, 2, 2]


def test_more_may_die_while_the_others_are_heard(run: Run) -> None:
    run(both(once(die, "0/1", "train 2"), once(die, "1/2", "report 1")))
    run.check_steps()
    assert {event["gpu"] for event in run.events("failed")} == {"0/1", "1/2"}
    (recovery,) = run.events("recovery")
    assert "0/1, 1/2 failed" in recovery["reason"]
    assert run.rows("steps")[-1]["degrees"] == [2, 2]


def test_deaths_while_the_next_generation_settles_make_another(run: Run) -> None:
    run(both(once(die, "0/1", "train 2"), once(die, "1/2", "settle 2")))
    run.check_steps()
    assert run.rows("steps")[-1]["generation"] == 3
    (recovery,) = run.events("recovery")
    assert "0/1, 1/2 failed" in recovery["reason"]


def test_a_replica_that_is_too_small_is_dissolved(run: Run) -> None:
    run(both(once(die, "0/1", "train 2"), once(die, "0/2", "train 4")))
    run.check_steps()
    last = run.rows("steps")[-1]
    assert (last["degrees"], last["batch_shares"]) == ([0, 3], [0, 6])


def test_when_no_replica_is_left_the_run_ends_with_the_reason(run: Run) -> None:
    deaths = [once(die, f"{r}/{i}", "train 2") for r in (0, 1) for i in (0, 1)]
    with pytest.raises(RunFailed, match="no replica is left"):
        run(both(*deaths))
    run.check_steps(steps=1)


def test_scripted_losses_and_returns(run: Run) -> None:
    def script(ghost: Ghost, place: str) -> None:
        if ghost.gpu == "1/1" and place.startswith("train"):
            time.sleep(0.02)  # else all is over before the one that returns is ready

    schedule = (ScheduledEvent("failed", "0/1", 3), ScheduledEvent("returned", "0/1", 4))
    run(script, schedule, steps=20)
    run.check_steps(20)
    (failed,), (returned,), (joined,) = (run.events(k) for k in ("failed", "returned", "joined"))
    assert failed["gpu"] == returned["gpu"] == joined["gpu"] == "0/1"
    assert failed["step"] >= 3
    (recovery,) = run.events("recovery")
    assert recovery["detect_s"] >= 0.0
    rows = run.rows("steps")
    assert rows[0]["degrees"] == rows[-1]["degrees"] == [3, 3]
    assert [2, 3] in [row["degrees"] for row in rows]
    assert rows[-1]["generation"] == 3


def test_an_ordered_blow_for_one_that_is_dead_already_does_not_wait_for_its_return(
    run: Run,
) -> None:
    death = once(die, "0/1", "train 2")

    def script(ghost: Ghost, place: str) -> None:
        death(ghost, place)
        if ghost.gpu == "1/1" and place.startswith("train"):
            time.sleep(0.01)

    schedule = (ScheduledEvent("failed", "0/1", 4), ScheduledEvent("returned", "0/1", 6))
    run(script, schedule, steps=20)
    run.check_steps(20)
    assert len(run.events("failed")) == len(run.events("joined")) == 1
    assert run.rows("steps")[-1]["degrees"] == [3, 3]


def test_one_that_dies_while_it_warms_up_hurts_nobody(run: Run) -> None:
    def script(ghost: Ghost, place: str) -> None:
        if ghost.gpu == "1/1" and place.startswith("train"):
            time.sleep(0.01)
        if ghost.gpu == "0/1" and ghost.orders.life == 2:
            die(ghost)

    schedule = (ScheduledEvent("failed", "0/1", 2), ScheduledEvent("returned", "0/1", 3))
    run(script, schedule, steps=15)
    run.check_steps(15)
    assert [event["gpu"] for event in run.events("failed")] == ["0/1", "0/1"]
    assert run.events("joined") == []
    assert run.rows("steps")[-1]["generation"] == 2


def raise_an_error(ghost: Ghost) -> None:
    raise MemoryError("no room")


def test_an_exception_costs_its_gpu_and_is_told(run: Run) -> None:
    run(once(raise_an_error, "1/0", "train 3"))
    run.check_steps()
    (failed,) = run.events("failed")
    assert failed["reason"] == "MemoryError: no room"


def test_exceptions_of_two_ranks_in_one_generation_are_one_failure(run: Run) -> None:
    """The same fault in the same samples shows on all ranks of a replica at once."""
    together = threading.Barrier(2, timeout=5.0)

    def script(ghost: Ghost, place: str) -> None:
        if place == "train 3" and ghost.generation == 1 and ghost.gpu in ("0/0", "1/1"):
            together.wait()
            raise_an_error(ghost)

    run(script)
    run.check_steps()
    assert len(run.events("failed")) == 2


def test_a_step_that_fails_by_an_exception_again_ends_the_run_with_its_samples(run: Run) -> None:
    def script(ghost: Ghost, place: str) -> None:
        if place == "train 3" and (ghost.generation, ghost.gpu) in ((1, "0/0"), (2, "1/1")):
            raise_an_error(ghost)

    with pytest.raises(RunFailed, match="step 3 failed by an exception") as error:
        run(script)
    run.check_steps(steps=2)
    ids = str(error.value).split("samples: ")[1].split(", ")
    assert len(set(ids)) == 6


def test_a_run_that_stands_still_ends_by_itself(run: Run) -> None:
    hang = once(lambda ghost: ghost.wait("never"), "0/0", "train 3")
    with pytest.raises(RunFailed, match=r"hang_timeout_s = 1\) after step 2"):
        run(hang, hang_timeout_s=1.0)
    assert 1.0 <= run.seconds < 10.0


def test_a_survivor_that_never_gives_up_ends_the_run(run: Run) -> None:
    hang = once(lambda ghost: ghost.wait("never"), "0/0", "train 3")
    with pytest.raises(RunFailed, match=r"0/0 did not give up generation 1"):
        run(both(hang, once(die, "1/1", "train 3")), hang_timeout_s=1.0)
    assert run.seconds < 10.0


def test_at_the_end_nobody_is_left(run: Run) -> None:
    run(once(die, "0/2", "train 2"))
    assert all(ghost.life.exitcode is not None for ghost in run.spawner.started)
    assert run.seconds < 10.0
