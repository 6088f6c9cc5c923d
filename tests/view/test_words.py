"""Numbers and events in words."""

from __future__ import annotations

import pytest

from nonuniform.view import words


@pytest.mark.parametrize(
    ("time_s", "expected"),
    [
        (0.0, "0 ms"),
        (0.0004, "0.4 ms"),
        (0.004, "4 ms"),
        (0.0999, "100 ms"),
        (0.41, "0.41 s"),
        (9.994, "9.99 s"),
        (9.999, "10.0 s"),
        (59.97, "1 min 00 s"),
        (123.4, "2 min 03 s"),
    ],
)
def test_a_duration_has_two_or_three_digits(time_s: float, expected: str) -> None:
    assert words.duration(time_s) == expected


def test_clock_counts_minutes_then_hours() -> None:
    assert [words.clock(t) for t in (-1.0, 9.9, 75, 3723)] == ["0:00", "0:09", "1:15", "1:02:03"]


def test_sizes_are_powers_of_1024_and_say_so() -> None:
    sizes = [words.data_size(n) for n in (0, 1023, 1_229, 3 * 2**19, 3.4 * 2**30)]
    assert sizes == ["0 bytes", "1023 bytes", "1.2 KiB", "1.5 MiB", "3.4 GiB"]


def test_gpus_are_listed_like_a_person_would() -> None:
    assert words.gpu_names([]) == "a GPU"
    assert words.gpu_names(["1/2"]) == "GPU 1/2"
    assert words.gpu_names(["0/1", "1/2", "1/3"]) == "GPUs 0/1, 1/2 and 1/3"


@pytest.mark.parametrize(
    ("reason", "verb"),
    [
        ("killed by signal 9", "died"),
        ("process exited with 1", "died"),
        ("hung: no heartbeat for 30 s", "hung"),
        ("drained by the operator", "was drained"),
        ("row remap failure", "was lost"),
        ("", "was lost"),
    ],
)
def test_the_verb_says_no_more_than_the_reason(reason: str, verb: str) -> None:
    assert words.loss_verb(reason) == verb


def test_a_timing_the_event_does_not_tell_is_left_out() -> None:
    assert words.with_timings("done", {}) == "done"
    told = words.with_timings("done", {"regroup_s": 0.08, "transfer_bytes": 0, "redo_s": 0.2})
    assert told == "done; regrouped in 80 ms, next step committed after 0.28 s in all"


def test_the_pause_is_the_whole_where_it_is_told() -> None:
    parts = {"detect_s": 0.1, "regroup_s": 0.2, "transfer_s": None}
    assert words.pause_s(parts) == pytest.approx(0.3)
    assert words.pause_s({**parts, "total_s": 0.5}) == 0.5


@pytest.mark.parametrize(
    ("alive", "end"),
    [
        (0, "is dissolved: none of its GPUs is left"),
        (1, "is dissolved: below degree 3, its last GPU waits as a spare"),
        (2, "is dissolved: below degree 3, its 2 GPUs wait as spares"),
        (3, "goes on at degree 3 of 4"),
        (4, "stays at degree 4"),
    ],
)
def test_what_became_of_a_replica(alive: int, end: str) -> None:
    assert words.replica_after_loss(1, alive, 4, 3) == f"replica 1 {end}"


def test_other_events_carry_their_reason() -> None:
    assert words.other_event({"kind": "skip", "step": 7, "reason": "loss is nan"}) == (
        "step 7 was committed as a skip: loss is nan"
    )
    assert words.other_event({"kind": "grain", "reason": "7+5 costs 3%"}) == (
        "batch shares: 7+5 costs 3%"
    )
    assert words.other_event({"kind": "unit_mismatch", "reason": "ffn 3"}) == (
        "units do not match: ffn 3"
    )
    assert words.other_event({"kind": "something_new"}) == "something new"
