"""Who hangs: the silent, the stuck, and never one that waits for another."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from nonuniform.protocol.vital import START, Beat, Limits, Sign, hanging, standstill

LIMITS = Limits(hang_s=10.0, start_s=60.0)
NOW_S = 1000.0


def sign(silent_s: float = 0.0, age_s: float = 0.0, waiting: bool = False) -> Sign:
    return Sign(NOW_S - silent_s, Beat(7, "backward", waiting, age_s))


def complaint(one: Sign) -> str | None:
    return hanging({"0/1": one}, LIMITS, NOW_S).get("0/1")


def test_one_that_says_nothing_any_more_hangs() -> None:
    assert complaint(sign(silent_s=10.0)) is None
    assert complaint(sign(silent_s=10.5)) == (
        "no sign of life for 10.5 s (hang_timeout_s = 10), last at backward"
    )


def test_one_that_fell_silent_while_it_waited_hangs_too() -> None:
    said = complaint(sign(silent_s=11.0, waiting=True))
    assert said is not None
    assert said.startswith("no sign of life for 11.0 s")


def test_one_that_is_busy_with_one_thing_for_too_long_hangs() -> None:
    assert complaint(sign(age_s=10.0)) is None
    assert complaint(sign(age_s=10.5)) == "busy with backward for 10.5 s (hang_timeout_s = 10)"


def test_the_time_since_the_last_beat_counts_as_busy() -> None:
    assert complaint(sign(silent_s=4.0, age_s=6.0)) is None
    assert complaint(sign(silent_s=4.5, age_s=6.0)) == (
        "busy with backward for 10.5 s (hang_timeout_s = 10)"
    )


def test_one_that_waits_for_others_is_never_to_blame() -> None:
    assert complaint(sign(silent_s=1.0, age_s=1e6, waiting=True)) is None


def test_a_start_has_a_limit_of_its_own() -> None:
    assert complaint(Sign(NOW_S - 60.0)) is None
    assert complaint(Sign(NOW_S - 60.5)) == "did not start within start_timeout_s = 60"


def test_where_somebody_waits_for_the_end_silence_alone_has_a_shorter_bound() -> None:
    ending = Limits(hang_s=10.0, start_s=60.0, silent_s=2.0)
    signs = {
        "0/0": sign(silent_s=2.0),
        "0/1": sign(silent_s=2.5),
        "0/2": sign(silent_s=2.5, waiting=True),
        "1/0": sign(silent_s=1.0, age_s=9.0),
        "1/1": sign(silent_s=1.5, age_s=9.0),
        "1/2": Sign(NOW_S - 60.0),
    }
    found = hanging(signs, ending, NOW_S)
    assert list(found) == ["0/1", "0/2", "1/1"]
    assert found["0/1"].startswith("no sign of life for 2.5 s")
    assert found["1/1"].startswith("busy with backward for 10.5 s")


def test_one_that_has_beaten_and_still_starts_has_the_limit_of_a_start() -> None:
    """Its imports and its first contact with the device take longer than a hang may last."""
    starting = Sign(NOW_S, Beat(7, START, False, 60.0))
    assert complaint(starting) is None
    late = Sign(NOW_S - 0.5, Beat(7, START, False, 60.0))
    assert complaint(late) == "did not start within start_timeout_s = 60"
    silent = Sign(NOW_S - 10.5, Beat(7, START, False, 1.0))
    assert complaint(silent) == "no sign of life for 10.5 s (hang_timeout_s = 10), last at start"


def test_all_that_hang_are_found_at_once_and_no_others() -> None:
    signs = {
        "1/0": sign(silent_s=20.0),
        "0/0": sign(age_s=20.0),
        "0/1": sign(age_s=20.0, waiting=True),
        "1/1": sign(),
        "2/0": Sign(NOW_S - 61.0),
        "2/1": Sign(NOW_S - 59.0),
    }
    assert list(hanging(signs, LIMITS, NOW_S)) == ["0/0", "1/0", "2/0"]


def test_all_that_wait_for_each_other_for_too_long_stand_still() -> None:
    stuck = sign(silent_s=0.5, age_s=10.0, waiting=True)
    assert standstill({"0/0": stuck, "0/1": stuck}, LIMITS, NOW_S)
    assert not hanging({"0/0": stuck, "0/1": stuck}, LIMITS, NOW_S)


def test_it_is_no_standstill_while_one_works_starts_or_has_just_begun_to_wait() -> None:
    stuck = sign(age_s=11.0, waiting=True)
    for other in (sign(age_s=9.0), sign(age_s=9.0, waiting=True), Sign(NOW_S - 50.0)):
        assert not standstill({"0/0": stuck, "0/1": other}, LIMITS, NOW_S)
    assert not standstill({}, LIMITS, NOW_S), "nobody is there"


def test_what_was_heard_long_ago_shows_no_standstill() -> None:
    """One that was heard of half a limit ago may be stopped: that is not waiting."""
    stuck = sign(age_s=11.0, waiting=True)
    for silent_s, still in ((4.9, True), (5.0, False), (9.0, False)):
        other = sign(silent_s=silent_s, age_s=11.0, waiting=True)
        assert standstill({"0/0": stuck, "0/1": other}, LIMITS, NOW_S) is still


signs_of_life = st.builds(
    Sign,
    st.floats(NOW_S - 200.0, NOW_S),
    st.none() | st.builds(Beat, st.integers(1), st.just("x"), st.booleans(), st.floats(0, 200)),
)


@settings(deadline=None)  # other processes take the time
@given(signs=st.dictionaries(st.sampled_from(["0/0", "0/1", "1/0", "1/1"]), signs_of_life))
def test_whoever_is_given_up_is_still_to_be_given_up_later(signs: dict[str, Sign]) -> None:
    """As long as it says nothing new; and one that beat just now and waits never is."""
    now = hanging(signs, LIMITS, NOW_S)
    assert now.keys() <= hanging(signs, LIMITS, NOW_S + 5.0).keys()
    assert now.keys() <= signs.keys()
    fresh = {gpu: Sign(NOW_S, one.beat) for gpu, one in signs.items()}
    for gpu in hanging(fresh, LIMITS, NOW_S):
        beat = fresh[gpu].beat
        assert beat is not None
        assert not beat.waiting
