"""The reasons add up to the run's time, whatever happened; and each gets what it should."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nonuniform.report.run_goodput import REASONS, Moment, account, deal

PARTS = (0.2, 0.1, 0.3, 1.1)
KINDS = (
    "step", "validation", "generation", "failed", "recovery", "joined", "resumed", "fallback",
    "skip", "saving", "finished", "ended", "stalled", "drained", "unheard-of",
)  # fmt: skip
seconds = st.floats(0, 1e6, allow_nan=False)
moments = st.lists(
    st.builds(
        Moment,
        time_s=seconds,
        kind=st.sampled_from(KINDS),
        step=st.integers(0, 50),
        parts=st.tuples(seconds, seconds, seconds, seconds),
        steps_lost=st.integers(0, 5),
    ),
    max_size=40,
)


@given(moments, seconds)
def test_the_reasons_add_up_to_the_time_of_the_run(found: list[Moment], end_s: float) -> None:
    goodput = account(found, end_s)
    assert set(goodput.seconds) == set(REASONS)
    assert all(value >= 0 for value in goodput.seconds.values())
    assert math.isclose(goodput.total_s, end_s, rel_tol=1e-9, abs_tol=1e-6)


@given(st.lists(st.floats(-10, 1e3)), st.floats(0, 1e3))
def test_what_is_dealt_is_all_there_is(wishes: list[float], length_s: float) -> None:
    dealt = deal(length_s, [("a", wish) for wish in wishes], "rest")
    assert math.isclose(math.fsum(value for _, value in dealt), length_s, abs_tol=1e-6)
    assert all(value >= 0 for _, value in dealt)


def steps(first: int, last: int, start_s: float, every_s: float = 1.0) -> list[Moment]:
    return [
        Moment(start_s + every_s * (number + 1), "step", step)
        for number, step in enumerate(range(first, last + 1))
    ]


def told(found: list[Moment], end_s: float) -> dict[str, Any]:
    return {
        reason: pytest.approx(value, abs=1e-9)
        for reason, value in account(found, end_s).seconds.items()
        if value > 1e-9
    }


def test_a_quiet_run_starts_steps_and_saves() -> None:
    found = [Moment(4.0, "generation"), *steps(1, 5, 5.0), Moment(10.1, "saving", 5)]
    found += [Moment(11.0, "checkpoint", 5), Moment(11.5, "finished", 5)]
    # The first step came 2 s after the generation, and a step takes 1 s.
    assert told(found, 11.5) == {"starting": 5.0, "useful": 5.0, "saving": 1.5}


def test_a_loss_is_dealt_to_its_parts_and_the_dropped_work() -> None:
    found = [Moment(0.0, "generation"), *steps(1, 3, 0.0)]
    # 0.6 s into step 4 the GPU dies; noticed after 0.2 s; committed 1.7 s after the loss.
    committed_s = 3.0 + 0.6 + sum(PARTS)
    found += [
        Moment(3.8, "failed", 4),
        Moment(3.9, "generation", 3),
        Moment(committed_s, "step", 4),
    ]
    found += [Moment(committed_s + 0.01, "recovery", 4, PARTS)]
    found += steps(5, 6, committed_s)
    assert told(found, committed_s + 2) == {
        "detect": 0.2, "regroup": 0.1, "transfer": 0.3, "redone": 0.6, "useful": 5 + 1.1,
    }  # fmt: skip


def test_waiting_for_a_hung_process_is_standing_still() -> None:
    found = [Moment(0.0, "generation"), *steps(1, 3, 0.0), Moment(33.0, "failed", 4)]
    found += [Moment(33.1, "generation", 3), Moment(34.5, "step", 4)]
    found += [Moment(34.5, "recovery", 4, (0.0, 0.1, 0.3, 1.1))]
    assert told(found, 34.5) == {
        "useful": 4.1, "regroup": 0.1, "transfer": 0.3, "redone": 1.0, "stalled": 29.0,
    }  # fmt: skip


def test_steps_that_a_fallback_takes_back_were_done_for_nothing() -> None:
    # Steps 1..4 were committed; a fallback to 2 takes 3 and 4 out of the log.
    found = [Moment(0.0, "generation"), *steps(1, 2, 0.0), Moment(4.5, "failed", 5)]
    found += [Moment(3.2, "validation", 3), Moment(4.6, "fallback", 2, steps_lost=2)]
    found += [Moment(4.7, "generation", 2), *steps(3, 4, 5.0)]
    found += [Moment(6.0, "recovery", 3, (0.0, 0.2, 0.3, 1.0))]
    assert told(found, 7.0) == {"useful": 4.0, "regroup": 0.2, "transfer": 0.3, "redone": 2.5}


def test_a_recovery_that_was_taken_back_is_not_charged_to_the_step_before() -> None:
    # Step 6 is committed after a loss, and 7; then all of it is dropped.
    found = [Moment(0.0, "generation"), *steps(1, 5, 0.0), Moment(5.5, "failed", 6)]
    found += [Moment(6.45, "recovery", 6, PARTS), Moment(8.0, "failed", 8)]
    lost = [Moment(8.1, "fallback", 5, steps_lost=2), Moment(8.2, "generation", 5)]
    lost += [Moment(9.3, "step", 6), Moment(9.31, "recovery", 6, (0.0, 0.1, 0.1, 1.0))]
    assert told([*found, *lost, *steps(7, 9, 9.3)], 12.3) == {
        "useful": 9.0, "regroup": 0.1, "transfer": 0.1, "redone": 3.1,
    }  # fmt: skip
    killed = [Moment(9.0, "resumed", 5, steps_lost=3), Moment(11.0, "generation", 5)]
    killed += steps(6, 8, 11.0)
    assert told([*found, *killed], 14.0) == {"useful": 8.0, "redone": 4.0, "starting": 2.0}


def test_a_skip_or_a_join_that_was_taken_back_is_none() -> None:
    found = [Moment(0.0, "generation"), *steps(1, 2, 0.0), Moment(3.0, "skip", 3)]
    found += [Moment(3.5, "joined", 3, PARTS), Moment(4.6, "fallback", 2, steps_lost=2)]
    found += [Moment(4.7, "generation", 2), *steps(3, 4, 5.0)]
    assert told(found, 7.0) == {"useful": 4.0, "redone": 3.0}
    again = [*found, Moment(6.0, "skip", 3)]
    assert told(again, 7.0) == {"useful": 3.0, "skipped": 1.0, "redone": 3.0}


def test_a_recovery_by_a_checkpoint_stays_with_the_commit_that_ended_it() -> None:
    # Noticed at step 6, ended at step 3; a later return to step 4 takes nothing of it back.
    found = [Moment(0.0, "generation"), *steps(1, 2, 0.0), Moment(5.0, "failed", 6)]
    found += [Moment(5.1, "fallback", 2, steps_lost=3), Moment(6.5, "step", 3)]
    found += [Moment(6.5, "recovery", 6, (0.0, 0.2, 0.3, 1.0)), *steps(4, 4, 6.5)]
    found += [Moment(9.0, "fallback", 4, steps_lost=1), *steps(5, 6, 9.5)]
    assert told(found, 11.5) == {
        "useful": 6.0, "regroup": 0.2, "transfer": 0.3, "redone": 3.0 + 2.0,
    }  # fmt: skip


def test_a_resumed_run_did_the_steps_beyond_its_checkpoint_for_nothing() -> None:
    found = [Moment(0.0, "generation"), *steps(1, 2, 0.0), Moment(6.0, "resumed", 2, steps_lost=3)]
    found += [Moment(9.0, "generation", 2), *steps(3, 4, 9.0)]
    assert told(found, 11.0) == {"useful": 4.0, "redone": 4.0, "starting": 3.0}


def test_a_pause_that_no_event_explains_is_told_as_one() -> None:
    found = [Moment(0.0, "generation"), *steps(1, 5, 0.0), *steps(6, 7, 60.0)]
    assert told(found, 62.0) == {"useful": 7.0, "stalled": 55.0}


def test_skips_and_validations_are_no_useful_steps() -> None:
    found = [Moment(0.0, "generation"), *steps(1, 4, 0.0), Moment(4.0, "skip", 4)]
    found += [Moment(4.5, "validation", 4)]
    assert told(found, 4.5) == {"useful": 3.0, "skipped": 1.0, "validation": 0.5}


def test_a_run_without_a_step_was_only_starting() -> None:
    assert told([Moment(3.0, "started")], 7.0) == {"starting": 7.0}
    assert told([Moment(3.0, "failed"), Moment(5.0, "ended")], 7.0) == {
        "starting": 5.0, "saving": 2.0,
    }  # fmt: skip


def test_what_comes_after_the_last_commit_is_open_while_the_run_goes_on() -> None:
    assert told([Moment(0.0, "generation"), *steps(1, 3, 0.0)], 3.75) == {
        "useful": 3.0,
        "open": 0.75,
    }
