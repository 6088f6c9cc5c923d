"""The launcher's decisions, with threads for workers: each step once, whoever dies at whatever
moment, and a reason for whatever happens."""

from __future__ import annotations

import threading

import pytest
from standins.ghost_runs import STEPS, Run, both, die, once, slowly
from standins.workers import Ghost

from nonuniform.config import ScheduledEvent
from nonuniform.errors import RunFailed


def test_a_run_without_failures(run: Run) -> None:
    launcher = run(val_every=2)
    run.check_steps()
    assert {row["generation"] for row in run.rows("steps")} == {1}
    assert [event["step"] for event in run.events("validation")] == [2, 4, 5]
    assert run.events("recovery") == run.events("failed") == []
    assert launcher.state.position.step == STEPS
    assert run.seconds < 10.0


@pytest.mark.parametrize("place", ["settle 1", "train 1", "train 3", "ready 3", "put 3", "voted 3"])
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
    assert run.generations() == [1, 1, 1, 2, 2]


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
    assert run.generations() == [1, 1, 2, 2, 2]


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


def test_a_death_that_the_first_step_after_a_recovery_survives_is_another_recovery(
    run: Run,
) -> None:
    def die_when_all_have_voted(ghost: Ghost) -> None:
        for other in ("0/0", "0/2", "1/0", "1/1"):
            ghost.wait(f"g2/train2/vote/{other}")
        die(ghost)

    run(both(once(die, "0/1", "train 2"), once(die_when_all_have_voted, "1/2", "put 2")))
    run.check_steps()
    assert run.generations() == [1, 2, 3, 3, 3]
    first, second = run.events("recovery")
    assert first["reason"].startswith("0/1 failed")
    assert second["reason"].startswith("1/2 failed")
    assert (first["generation"], second["generation"]) == (2, 3)


def test_the_last_voter_may_die_before_it_decides(run: Run) -> None:
    def script(ghost: Ghost, place: str) -> None:
        if place == "decide 3" and ghost.generation == 1:
            die(ghost)  # whoever it is

    run(script)
    run.check_steps()
    assert run.generations() == [1, 1, 1, 2, 2]


def test_a_replica_that_is_too_small_is_dissolved(run: Run) -> None:
    run(both(once(die, "0/1", "train 2"), once(die, "0/2", "train 4")))
    run.check_steps()
    last = run.rows("steps")[-1]
    assert (last["degrees"], last["batch_shares"]) == ([0, 3], [0, 6])


@pytest.mark.parametrize("step", [1, 2])
def test_when_no_replica_is_left_the_run_ends_with_the_reason(run: Run, step: int) -> None:
    gpus = ("0/0", "0/1", "0/2", "1/0", "1/1")
    with pytest.raises(RunFailed, match="no replica is left"):
        run(both(*(once(die, gpu, f"train {step}") for gpu in gpus)))
    run.check_steps(steps=step - 1)


def test_when_nobody_holds_a_unit_any_more_the_run_ends_with_its_name(run: Run) -> None:
    with pytest.raises(RunFailed) as error:
        run(both(*(once(die, gpu, "train 2") for gpu in ("0/1", "1/1"))))
    said = str(error.value)
    assert said.startswith("after step 1 no living GPU holds these units: ")
    assert said.endswith("there is no checkpoint to go on from")
    run.check_steps(steps=1)


def test_scripted_losses_and_returns(run: Run) -> None:
    schedule = (ScheduledEvent("failed", "0/1", 3), ScheduledEvent("returned", "0/1", 4))
    run(slowly(0.02), schedule, steps=20)
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
    script = both(once(die, "0/1", "train 2"), slowly(0.01))
    schedule = (ScheduledEvent("failed", "0/1", 4), ScheduledEvent("returned", "0/1", 6))
    run(script, schedule, steps=20)
    run.check_steps(20)
    assert len(run.events("failed")) == len(run.events("joined")) == 1
    assert run.rows("steps")[-1]["degrees"] == [3, 3]


def test_one_that_dies_while_it_warms_up_hurts_nobody(run: Run) -> None:
    def die_again(ghost: Ghost, place: str) -> None:
        if ghost.gpu == "0/1" and ghost.orders.life == 2:
            die(ghost)

    schedule = (ScheduledEvent("failed", "0/1", 2), ScheduledEvent("returned", "0/1", 3))
    run(both(slowly(0.01), die_again), schedule, steps=15)
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


def test_at_the_end_nobody_is_left(run: Run) -> None:
    run(once(die, "0/2", "train 2"))
    assert run.left == []
    assert sorted(ghost.ended or 0 for ghost in run.ghosts) == [0] * 6
    assert run.seconds < 10.0
