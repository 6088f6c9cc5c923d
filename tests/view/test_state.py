"""The state behind the view: one story per incident, and a size that does not grow."""

from __future__ import annotations

import dataclasses
from types import ModuleType
from typing import Any

import pytest

from nonuniform.view.state import (
    CURVE_BINS,
    MARKS,
    RECENT_STEPS,
    STORIES,
    RunState,
    after_end,
    after_event,
    after_start,
    after_step,
    tokens_per_s,
)

FOLD = {
    "on_start": after_start,
    "on_step": after_step,
    "on_event": after_event,
    "on_end": after_end,
}
TIMINGS = {"detect_s": 0.004, "regroup_s": 0.08, "transfer_s": 0.03, "redo_s": 0.3}


def fold(calls: list[tuple[str, dict[str, Any]]], state: RunState | None = None) -> RunState:
    state = state or RunState()
    for name, record in calls:
        state = FOLD[name](state, record)
    return state


def start(replicas: int = 2, degree: int = 4, min_degree: int = 2, steps: int = 60) -> RunState:
    info = {"replicas": replicas, "degree": degree, "min_degree": min_degree, "steps": steps}
    return after_start(RunState(), info)


def event(kind: str, gpu: str | None, step: int, **more: Any) -> tuple[str, dict[str, Any]]:
    record = {"kind": kind, "gpu": gpu, "step": step, "time_s": float(step), "reason": "", **more}
    return "on_event", record


def test_a_failure_and_its_recovery_are_one_story() -> None:
    reason = "killed by signal 9"
    before = fold([event("failed", "1/2", 21, reason=reason)], start())
    assert before.recovering
    assert before.stories[-1].text == (
        "GPU 1/2 died at step 21 (killed by signal 9); the others regroup ..."
    )
    after = fold([event("recovery", "1/2", 21, transfer_bytes=1_258_291, **TIMINGS)], before)
    assert not after.recovering
    assert [story.text for story in after.stories] == [
        "GPU 1/2 died at step 21: replica 1 goes on at degree 3 of 4; noticed in 4 ms, regrouped "
        "in 80 ms, moved 1.2 MiB in 30 ms, next step committed after 0.41 s in all"
    ]


def test_losses_answered_by_one_recovery_are_told_together() -> None:
    state = fold(
        [
            event("failed", "1/2", 21),
            event("failed", "1/3", 21),
            event("recovery", "1/2", 21, **TIMINGS),
        ],
        start(),
    )
    assert len(state.stories) == 1
    assert state.stories[0].text.startswith(
        "GPUs 1/2 and 1/3 were lost at step 21: replica 1 goes on at degree 2 of 4"
    )


def test_below_the_smallest_degree_the_rest_are_spares() -> None:
    lost = [event("failed", f"1/{index}", 9) for index in range(3)]
    state = fold([*lost, event("recovery", "1/0", 9, **TIMINGS)], start())
    assert "replica 1 is dissolved: below degree 2, its last GPU waits" in state.stories[0].text
    assert (dissolved().degree_now(1), dissolved().working(1)) == (0, 1)


def dissolved() -> RunState:
    lost = [event("failed", f"1/{index}", 9) for index in (0, 1, 2)]
    step = ("on_step", {"step": 9, "loss": 3.0, "degrees": [4, 0], "batch_shares": [12, 0]})
    return fold([*lost, step, event("recovery", "1/0", 9, **TIMINGS)], start())


def test_a_spare_that_dies_stops_nobody() -> None:
    state = fold([event("failed", "1/3", 12, reason="killed by signal 9")], dissolved())
    assert not state.recovering
    assert state.stories[-1].text == (
        "GPU 1/3 died at step 12 (killed by signal 9), it was not at work"
    )


def test_a_gpu_that_dies_while_it_warms_up_stops_nobody() -> None:
    calls = [event("failed", "1/2", 9), event("recovery", "1/2", 9, **TIMINGS)]
    calls += [event("returned", "1/2", 12), event("failed", "1/2", 13)]
    state = fold(calls, start())
    assert not state.recovering
    assert state.down == {"1/2"}
    assert state.warming == set()


def test_a_loss_that_no_recovery_answers_is_not_waited_for() -> None:
    state = fold([event("failed", "1/2", 9)], start())
    for step in (9, 10):  # the step may still be committed, the next comes before its recovery
        state = after_step(state, {"step": step, "loss": 3.0})
        assert state.recovering
    state = after_step(state, {"step": 11, "loss": 3.0})
    assert not state.recovering
    assert state.stories[0].text == "GPU 1/2 was lost at step 9"


def test_fewer_degrees_than_replicas_are_survived() -> None:
    state = after_step(start(replicas=3), {"step": 1, "loss": 3.0, "degrees": [4]})
    assert [state.degree_now(replica) for replica in range(3)] == [4, 4, 4]


def test_the_whole_pause_is_what_the_event_says_it_is() -> None:
    calls = [event("failed", "1/2", 9), event("recovery", "1/2", 9, total_s=0.52, **TIMINGS)]
    assert fold(calls, start()).stories[0].text.endswith("next step committed after 0.52 s in all")


def test_what_happens_in_every_generation_is_no_story() -> None:
    calls = [event("started", "0/0", 0, reason="process 7 started", generation=1)]
    calls += [event("generation", None, 0, reason="all GPUs healthy", generation=1)]
    calls += [event("finished", None, 60, reason="all 60 steps committed")]
    state = fold(calls, start())
    assert state.stories == ()
    assert state.generation == 1


def test_an_order_that_could_not_be_carried_out_is_told() -> None:
    state = fold([event("order", "1/2", 7, reason="nothing to kill: it had failed")], start())
    assert state.stories[0].text == "order for GPU 1/2: nothing to kill: it had failed"


def test_a_run_that_could_not_go_on_says_why_at_the_end() -> None:
    state = after_step(start(), {"step": 7, "loss": 3.0, "time_s": 4.0})
    summary = {"status": "failed", "reason": "no replica is left", "time_s": 5.0}
    state = fold([event("ended", None, 7, reason="no replica is left"), ("on_end", summary)], state)
    assert [(s.time_s, s.text) for s in state.stories] == [
        (5.0, "stopped after step 7: no replica is left")
    ]


def test_a_join_is_told_with_what_it_cost() -> None:
    cost = {"regroup_s": 0.06, "transfer_s": 0.02, "redo_s": 0.0, "transfer_bytes": 512_000}
    calls = [event("failed", "1/2", 9), event("recovery", "1/2", 9, **TIMINGS)]
    calls += [event("returned", "1/2", 20), event("joined", "1/2", 26, detect_s=None, **cost)]
    state = fold(calls, start())
    assert [story.text for story in state.stories[1:]] == [
        "GPU 1/2 came back at step 20 and warms up beside the run",
        "GPU 1/2 joined at step 26: replica 1 is at full degree 4 again; regrouped in 60 ms, "
        "moved 500.0 KiB in 20 ms, next step committed after 80 ms in all",
    ]


def test_a_spare_that_joins_a_dissolved_replica_says_so() -> None:
    state = fold([event("joined", "1/0", 30)], start(min_degree=4))
    assert "replica 1 is at full degree 4 again" in state.stories[0].text
    state = fold([event("failed", "1/1", 9), event("joined", "1/0", 30)], start(min_degree=4))
    assert "replica 1 stays dissolved, below degree 4" in state.stories[-1].text


def test_a_lost_gpu_counts_at_once_and_a_warm_one_only_when_it_joined() -> None:
    state = fold([event("failed", "1/2", 9)], start())
    assert (state.working(1), state.degree_now(1)) == (3, 3)
    state = fold([event("returned", "1/2", 9)], state)
    assert state.working(1) == 3
    state = fold([event("joined", "1/2", 12)], state)
    assert state.working(1) == 4


def test_an_unanswered_recovery_and_unknown_kinds_are_still_told() -> None:
    state = fold([event("recovery", None, 5, regroup_s=0.05), event("grain", None, 5)], start())
    assert [story.text for story in state.stories] == [
        "the run regrouped at step 5; regrouped in 50 ms, next step committed after 50 ms in all",
        "batch shares were cut anew",
    ]


def test_validation_is_a_figure_and_not_a_story() -> None:
    state = fold([event("validation", None, 20, loss=3.2)], start())
    assert state.validation == (20, 3.2)
    assert state.stories == ()


def test_tokens_go_by_share_and_include_pauses() -> None:
    state = start()
    for step, time_s in ((1, 1.0), (2, 2.0), (3, 5.0)):
        record = {"step": step, "loss": 3.0, "tokens": 1200, "batch_shares": [8, 4]}
        state = after_step(state, {**record, "time_s": time_s})
    assert tokens_per_s(state) == (400.0, 200.0)


def test_loss_that_is_not_a_number_leaves_the_curve_alone() -> None:
    state = after_step(start(), {"step": 1, "loss": None})
    assert set(state.losses()) == {None}


def test_the_state_of_a_long_run_stays_small(rehearsal: ModuleType) -> None:
    steps = 4 * CURVE_BINS
    incidents = [rehearsal.Incident("failed", "1/2", s) for s in range(2, steps, 3)]
    plan = rehearsal.Rehearsal(steps=steps, incidents=incidents, val_every=0)
    state = fold(plan.calls())
    assert len(state.curve) == CURVE_BINS
    assert len(state.recent) == RECENT_STEPS
    assert len(state.stories) == STORIES
    assert len(state.marks) == MARKS
    assert state.samples == steps * plan.sequences


def test_states_are_frozen(rehearsal: ModuleType) -> None:
    state = fold(rehearsal.Rehearsal().calls())
    with pytest.raises(dataclasses.FrozenInstanceError):
        state.step = 3  # type: ignore[misc]


NOTHING = dict.fromkeys(
    ("gpu", "replica", "step", "generation", *TIMINGS, "transfer_bytes", "loss")
)
KINDS = (
    "started failed recovery returned joined generation order grain validation skip finished ended "
    "unit_mismatch"
)


@pytest.mark.parametrize("kind", KINDS.split())
def test_events_that_tell_nothing_but_their_kind_are_survived(kind: str) -> None:
    record = {**NOTHING, "kind": kind, "time_s": 1.0, "reason": ""}
    state = after_event(after_step(start(), {"step": 7, "loss": 3.0}), record)
    assert all(story.step == 7 for story in state.stories)
    assert "None" not in "".join(story.text for story in state.stories)
