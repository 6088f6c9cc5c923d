"""What else may happen to a run, with threads for workers: hangs, drains, spares, a person who ends
it, a checkpoint that cannot be written or that everybody goes back to."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable

import pytest
from standins.ghost_runs import STEPS, Run, both, die, once, slowly
from standins.workers import Ghost

from nonuniform.config import CheckpointConfig, HealthConfig, ScheduledEvent
from nonuniform.errors import RunFailed
from nonuniform.protocol.commit import Work
from nonuniform.protocol.events import Found
from nonuniform.protocol.outcome import COMMIT
from nonuniform.protocol.record import Position
from nonuniform.train.launcher import Launcher
from nonuniform.train.worker import FENCED

HANG_S = 0.8


def fall_silent(ghost: Ghost) -> None:
    """As a process that was stopped, or whose machine was cut off."""
    ghost.board.beat(ghost.gpu, ghost.orders.life, ghost.progress.beat())
    ghost.silent = True
    ghost.work_forever()


# --- hangs


@pytest.mark.parametrize("place", ["settle 1", "train 3", "ready 3", "put 3"])
def test_one_that_falls_silent_is_given_up_and_the_run_goes_on(run: Run, place: str) -> None:
    run(once(fall_silent, "0/0", place), hang_timeout_s=HANG_S)
    run.check_steps()
    (failed,) = run.events("failed")
    assert (failed["gpu"], failed["fenced"]) == ("0/0", True)
    assert "no sign of life for " in failed["reason"]
    assert f"(hang_timeout_s = {HANG_S:g}), last at {place}: given up" in failed["reason"]
    (recovery,) = run.events("recovery")
    assert recovery["gpu"] == "0/0"
    assert run.rows("steps")[-1]["degrees"] == [2, 3]
    assert HANG_S <= run.seconds < HANG_S + 10.0


def test_every_outcome_that_the_launcher_asks_for_is_told_with_its_reason(run: Run) -> None:
    run(once(die, "1/1", "train 3"))
    run.check_steps()
    (told,) = run.events("outcome")
    assert (told["step"], told["generation"]) == (3, 1)
    assert told["reason"].startswith("step 3: abort: 1/1 died and 0/0, 0/1, 0/2, 1/0")
    assert told["reason"].endswith(" had not voted")


def test_one_whose_vote_was_there_is_not_needed_for_the_outcome(run: Run) -> None:
    """All have voted, and the one that would say so dies."""

    def die_last(ghost: Ghost) -> None:
        for gpu in ("0/0", "0/1", "0/2", "1/0", "1/2"):
            ghost.wait(f"g1/train3/vote/{gpu}")
        die(ghost)

    run(once(die_last, "1/1", "put 3"))
    run.check_steps()
    reasons = [event["reason"] for event in run.events("outcome")]
    assert reasons[0] == "step 3: commit: all 5 living members voted, 1/1 died"
    assert [reason[:13] for reason in reasons[1:]] == ["step 4: abort"]  # it was under way already


def test_one_that_is_stuck_in_its_own_work_is_given_up_though_it_gives_signs_of_life(
    run: Run,
) -> None:
    run(once(Ghost.work_forever, "1/1", "train 3"), hang_timeout_s=HANG_S)
    run.check_steps()
    (failed,) = run.events("failed")
    assert (failed["gpu"], failed["fenced"]) == ("1/1", True)
    assert failed["reason"].startswith("busy with train 3 for ")


def test_a_survivor_that_never_gives_up_is_given_up_itself(run: Run) -> None:
    """It hangs in a step while another one dies: the regroup waits for its report, but not long."""
    script = both(once(fall_silent, "0/0", "train 3"), once(die, "1/1", "train 3"))
    run(script, hang_timeout_s=HANG_S)
    run.check_steps()
    assert {event["gpu"] for event in run.events("failed")} == {"0/0", "1/1"}
    (recovery,) = run.events("recovery")
    assert recovery["generation"] == 2
    assert run.rows("steps")[-1]["degrees"] == [2, 2]


def test_one_that_hangs_before_it_reports_is_given_up(run: Run) -> None:
    script = both(once(Ghost.work_forever, "0/0", "report 1"), once(die, "1/1", "train 3"))
    run(script, hang_timeout_s=HANG_S)
    run.check_steps()
    reasons = {event["gpu"]: event["reason"] for event in run.events("failed")}
    assert reasons["0/0"].startswith("busy with report 1 for ")
    assert run.rows("steps")[-1]["degrees"] == [2, 2]


def test_one_that_does_not_start_is_given_up_after_a_limit_of_its_own(run: Run) -> None:
    """A start may take longer than a hang may last."""

    def script(ghost: Ghost, place: str) -> None:
        if (ghost.gpu, place) == ("0/1", "start"):
            time.sleep(2 * HANG_S)
            assert not ghost.life.blow.is_set()
            ghost.work_forever()

    run(script, hang_timeout_s=HANG_S, start_timeout_s=3 * HANG_S)
    run.check_steps()
    (failed,) = run.events("failed")
    assert failed["gpu"] == "0/1"
    assert failed["reason"] == f"did not start within start_timeout_s = {3 * HANG_S:g}: given up"
    assert run.seconds >= 3 * HANG_S


def test_one_that_was_given_up_and_wakes_up_changes_nothing_and_ends_by_itself(run: Run) -> None:
    """Its votes and its word for the outcome are of a generation that is over."""

    def sleep_through_it(ghost: Ghost) -> None:
        ghost.life.deaf, ghost.silent = True, True
        ghost.wait("g2/record")
        record = ghost.board.wait_record(1, 1.0)
        work = Work("train", 3)
        ghost.board.put_vote(ghost._vote(record, work))
        ghost.board.count_vote(1, work)
        ghost.board.decide(1, work, COMMIT)

    run(once(sleep_through_it, "0/0", "train 3"), hang_timeout_s=HANG_S)
    run.check_steps()
    assert run.generations() == [1, 1, 2, 2, 2]
    limit = time.monotonic() + 30.0
    while run.ghosts[0].ended is None and time.monotonic() < limit:
        time.sleep(0.01)
    assert run.ghosts[0].ended == FENCED
    assert [ghost.ended for ghost in run.ghosts[1:]] == [0] * 5


def test_those_that_wait_for_one_that_hangs_are_not_blamed(run: Run) -> None:
    run(once(fall_silent, "0/0", "train 3"), hang_timeout_s=HANG_S)
    assert [event["gpu"] for event in run.events("failed")] == ["0/0"]


def test_when_all_wait_for_each_other_the_same_gpus_try_again(run: Run) -> None:
    """No collective is lost for ever: nobody is to blame, and nobody is given up."""

    def script(ghost: Ghost, place: str) -> None:
        if place == "train 3" and ghost.generation == 1:
            ghost.wait("g1/over")

    run(script, hang_timeout_s=HANG_S)
    run.check_steps()
    assert run.generations() == [1, 1, 2, 2, 2]
    (stalled,) = run.events("stalled")
    assert f"hang_timeout_s = {HANG_S:g} after step 2" in stalled["reason"]
    assert run.events("failed") == []
    assert {tuple(row["degrees"]) for row in run.rows("steps")} == {(3, 3)}


def test_when_they_stand_still_again_the_run_ends(run: Run) -> None:
    def script(ghost: Ghost, place: str) -> None:
        if place == "train 3":
            ghost.wait(f"g{ghost.generation}/over")

    with pytest.raises(RunFailed, match="waits for the others, and again in a new generation"):
        run(script, hang_timeout_s=HANG_S)
    run.check_steps(steps=2)
    assert run.seconds < 10.0


# --- drains and spares


def test_a_drained_gpu_leaves_at_a_commit_and_costs_no_step(run: Run) -> None:
    run(slowly(0.02), (ScheduledEvent("drained", "0/1", 3),), steps=12)
    run.check_steps(12)
    (drained,) = run.events("drained")
    assert (drained["gpu"], drained["reason"]) == ("0/1", "drained as ordered")
    assert run.events("failed") == []
    assert run.rows("steps")[-1]["degrees"] == [2, 3]
    assert run.rows("steps")[-1]["generation"] == 2


def test_a_drained_gpu_may_return(run: Run) -> None:
    schedule = (ScheduledEvent("drained", "0/1", 3), ScheduledEvent("returned", "0/1", 6))
    run(slowly(0.03), schedule, steps=25)
    run.check_steps(25)
    assert [event["gpu"] for event in run.events("joined")] == ["0/1"]
    rows = run.rows("steps")
    assert [2, 3] in [row["degrees"] for row in rows]
    assert rows[-1]["degrees"] == [3, 3]


def test_a_spare_that_was_lost_may_return_in_the_same_generation(run: Run) -> None:
    """The record that it reads first must not be the one that speaks of the process before it."""
    run.spares = 1
    schedule = (ScheduledEvent("failed", "2/0", 2), ScheduledEvent("returned", "2/0", 4))
    loss = once(die, "0/1", "train 15")
    run(both(slowly(0.03), loss), schedule, steps=18)
    run.check_steps(18)
    assert [event["gpu"] for event in run.events("failed")] == ["2/0", "0/1"]
    assert {tuple(row["degrees"]) for row in run.rows("steps")} == {(3, 3)}


@pytest.mark.parametrize("life", [2, 3])
def test_one_that_returns_while_the_others_are_heard_joins(run: Run, life: int) -> None:
    """The generation that is given up knows it by the life before."""
    path = run.folder / "out" / "health.jsonl"

    def bring_back(ghost: Ghost) -> None:
        with path.open("a") as file:
            file.write(json.dumps({"kind": "returned", "gpu": "0/1"}) + "\n")
        time.sleep(0.5)

    script = [once(die, "0/1", "train 2"), once(bring_back, "1/1", "report 1"), slowly(0.04)]
    if life == 3:
        script += [once(die, "0/1", "settle 2"), once(bring_back, "1/1", "report 2")]
    run(both(*script), steps=15)
    run.check_steps(15)
    assert run.rows("steps")[-1]["degrees"] == [3, 3]
    assert len(run.events("failed")) == life - 1


def test_a_spare_takes_the_place_of_a_loss(run: Run) -> None:
    run.spares = 1
    run(once(die, "0/1", "train 3"))
    run.check_steps()
    assert {tuple(row["degrees"]) for row in run.rows("steps")} == {(3, 3)}
    assert run.generations() == [1, 1, 2, 2, 2]
    assert len(run.events("started")) == 7


def test_a_spare_that_is_lost_costs_no_generation(run: Run) -> None:
    run.spares = 1
    run(both(once(die, "2/0", "rest 2"), slowly(0.02)), steps=10)
    run.check_steps(10)
    assert set(run.generations()) == {1}


def test_a_gpu_that_fails_too_often_is_kept_out(run: Run) -> None:
    run.health = HealthConfig(flaps=0, quarantine_s=60.0)
    schedule = (ScheduledEvent("failed", "0/1", 2), ScheduledEvent("returned", "0/1", 4))
    run(slowly(0.02), schedule, steps=12)
    run.check_steps(12)
    (kept_out,) = run.events("quarantined")
    assert "it may come back in " in kept_out["reason"]
    assert run.events("returned") == []


def test_one_that_returns_after_its_quarantine_joins(run: Run) -> None:
    run.health = HealthConfig(flaps=0, quarantine_s=0.3)
    schedule = (ScheduledEvent("failed", "0/1", 2), ScheduledEvent("returned", "0/1", 3))
    run(slowly(0.03), schedule, steps=30)
    run.check_steps(30)
    assert len(run.events("quarantined")) == 1
    assert [event["gpu"] for event in run.events("joined")] == ["0/1"]


def test_what_a_person_appends_to_the_health_file_is_obeyed(run: Run) -> None:
    """Also while the run goes on, and a line that is none is told."""
    path = run.folder / "out" / "health.jsonl"

    def say(ghost: Ghost) -> None:
        rows = [{"kind": "drained", "gpu": "1/2", "reason": "XID 79"}, {"kind": "drained"}]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))

    run(both(once(say, "0/0", "train 3"), slowly(0.04)), steps=25)
    run.check_steps(25)
    (drained,) = run.events("drained")
    assert (drained["gpu"], drained["reason"]) == ("1/2", "XID 79")
    assert run.rows("steps")[-1]["degrees"] == [3, 2]
    (told,) = run.events("order")
    assert told["reason"].startswith('not understood: health.jsonl: {"kind": "drained"}: ')


@pytest.mark.parametrize(("action", "degrees"), [("report", [3, 3]), ("drain", [3, 2])])
def test_a_slow_gpu_is_told_and_drained_if_wanted(
    run: Run, action: str, degrees: list[int]
) -> None:
    run.health = HealthConfig(slow_steps=3, slow_action=action)  # type: ignore[arg-type]

    def script(ghost: Ghost, place: str) -> None:
        ghost.busy_s = 0.4 if ghost.gpu == "1/0" else 0.1

    run(both(script, slowly(0.02)), steps=12)
    run.check_steps(12)
    assert {event["gpu"] for event in run.events("slow")} == {"1/0"}
    assert len(run.events("drained")) == (action == "drain")
    assert run.rows("steps")[-1]["degrees"] == degrees


# --- ends


def test_a_step_that_is_not_finite_ends_the_run_if_so_configured(run: Run) -> None:
    def script(ghost: Ghost, place: str) -> None:
        ghost.finite = place != "ready 3"

    with pytest.raises(RunFailed, match=r"^step 3: loss or gradient not finite"):
        run(both(script, slowly(0.2)), nonfinite="stop")
    run.check_steps(steps=3)


def press(run: Run, times: int) -> Callable[[Ghost], None]:
    def action(ghost: Ghost) -> None:
        for _ in range(times):
            run.interrupt._note(signal.SIGINT, None)

    return action


def test_a_person_ends_the_run_and_no_step_is_torn(run: Run) -> None:
    with pytest.raises(RunFailed, match=r"^interrupted by SIGINT after step \d$") as error:
        run(both(once(press(run, 1), "0/0", "train 3"), slowly(0.05)))
    steps = int(str(error.value)[-1])
    assert 2 <= steps < STEPS
    run.check_steps(steps)
    assert run.left == []


def test_who_asks_twice_is_not_kept_waiting(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nonuniform.train.interrupt.TOGETHER_S", -1.0)  # none come together
    script = both(once(press(run, 2), "0/0", "train 3"), once(Ghost.work_forever, "1/1", "train 3"))
    with pytest.raises(RunFailed, match=r"^interrupted by SIGINT after step 2$"):
        run(script, hang_timeout_s=60.0)
    run.check_steps(steps=2)
    assert run.seconds < 5.0


def test_a_process_that_hangs_does_not_keep_a_person_waiting(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nonuniform.train.listener.ENDING_HANG_S", HANG_S)
    script = both(once(press(run, 1), "0/0", "train 3"), once(fall_silent, "1/1", "train 3"))
    with pytest.raises(RunFailed, match=r"^interrupted by SIGINT after step 2$"):
        run(script, hang_timeout_s=8.0)
    run.check_steps(steps=2)
    assert run.seconds < 5.0


def test_a_last_checkpoint_that_cannot_be_written_is_told_and_the_run_is_done(run: Run) -> None:
    run.checkpoint = CheckpointConfig(final=True)
    run()
    run.check_steps()
    (failed,) = run.events("checkpoint_failed")
    assert failed["reason"].endswith(": no disk")
    assert len(run.events("saving")) == 1
    assert run.events("checkpoint") == []
    assert run.left == []


def test_one_that_dies_while_all_save_makes_the_others_save_again(run: Run) -> None:
    """Replica 1 can still write everything; the loss of a writer ends the saving generation."""
    run.checkpoint = CheckpointConfig(final=True)
    run(once(die, "0/0", "save 2"))
    run.check_steps()
    first, second = run.events("saving")
    assert (first["generation"], second["generation"]) == (2, 3)
    assert run.left == []


def test_a_checkpoint_that_everybody_goes_back_to(run: Run) -> None:
    """All that hold some unit are lost after step 3: steps 2 and 3 are done again."""

    def there_is_one(launcher: Launcher) -> None:
        saver = launcher.crew.saver
        asked: list[float] = []
        found = (Found(Position(1, 0), "step-00000001"), (("step-00000003", "torn"),))
        saver.recall = asked.append  # type: ignore[method-assign,assignment]
        saver.recalled = lambda: found if asked and asked.pop() else None  # type: ignore[method-assign]

    run.before = there_is_one
    run(both(once(die, "0/1", "train 4"), once(die, "1/1", "train 4")))
    run.check_steps()
    (fallback,) = run.events("fallback")
    assert "going on from checkpoint step-00000001, 2 steps are done again" in fallback["reason"]
    assert (fallback["step"], fallback["steps_lost"]) == (1, 2)
    (rejected,) = run.events("checkpoint_rejected")
    assert rejected["reason"] == "step-00000003: torn"
    assert [row["generation"] for row in run.rows("steps")][:1] == [1]
    assert min(run.generations()[1:]) >= 2
