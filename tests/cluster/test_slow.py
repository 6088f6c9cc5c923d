"""Slow ranks: who is told, who never is, and when."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nonuniform.cluster.slow import Slow, SlowOptions, SlowWatch, Work

OPTIONS = SlowOptions(factor=2.0, steps=5)
FOUR = ("0/0", "0/1", "1/0", "1/1")


def run(
    watch: SlowWatch, steps: int, busy_s: dict[str, float], work: dict[str, Work] | None = None
) -> tuple[SlowWatch, list[Slow]]:
    told: list[Slow] = []
    for _ in range(steps):
        watch = watch.after_step(busy_s, work)
        told += watch.verdicts()
    return watch, told


def even(*gpus: str, **slower: float) -> dict[str, float]:
    """1 s each; `slower`: replica and index without the stroke -> seconds."""
    return {gpu: slower.get("g" + gpu.replace("/", ""), 1.0) for gpu in gpus}


def test_a_slow_gpu_is_told_once_with_its_ratio_after_a_full_window() -> None:
    watch, told = run(SlowWatch(OPTIONS), 4, even(*FOUR, g10=3.0))
    assert told == []
    watch, told = run(watch, 20, even(*FOUR, g10=3.0))
    (slow,) = told
    assert (slow.gpu, slow.ratio) == ("1/0", 3.0)
    assert slow.reason == (
        "GPU 1/0 needs 3.00 times as long for its part of the work as the other 3 "
        "(median of 5 steps, slow_factor = 2)"
    )
    assert watch.slow == {"1/0"}


def test_the_factor_itself_is_not_slow_yet() -> None:
    assert run(SlowWatch(OPTIONS), 9, even(*FOUR, g10=2.0))[1] == []
    assert len(run(SlowWatch(OPTIONS), 9, even(*FOUR, g10=2.01))[1]) == 1


def test_who_was_fast_again_is_told_again_and_who_wavers_is_not() -> None:
    watch, _ = run(SlowWatch(OPTIONS), 9, even(*FOUR, g10=3.0))
    watch, told = run(watch, 9, even(*FOUR, g10=1.9))
    assert (told, watch.slow) == ([], {"1/0"})
    watch, told = run(watch, 9, even(*FOUR, g10=2.5))
    assert told == []
    watch, told = run(watch, 9, even(*FOUR))
    assert (told, watch.slow) == ([], frozenset())
    assert len(run(watch, 9, even(*FOUR, g10=2.5))[1]) == 1


def test_who_leaves_is_forgotten() -> None:
    watch, _ = run(SlowWatch(OPTIONS), 9, even(*FOUR, g10=3.0))
    watch, told = run(watch, 1, even("0/0", "0/1", "1/1"))
    assert (told, watch.slow) == ([], frozenset())
    watch, told = run(watch, 4, even(*FOUR, g10=3.0))
    assert told == []
    assert [slow.gpu for slow in run(watch, 1, even(*FOUR, g10=3.0))[1]] == ["1/0"]


def test_other_work_starts_a_window_anew_for_those_who_have_it() -> None:
    before: dict[str, Work] = dict.fromkeys(FOUR, (2, 6))
    hurt: dict[str, Work] = before | {"1/0": (1, 3)}
    slow_two = even(*FOUR, g10=3.0, g01=3.0)
    watch, told = run(SlowWatch(OPTIONS), 4, slow_two, before)
    watch, told = run(watch, 1, slow_two, hurt)
    assert [slow.gpu for slow in told] == ["0/1"], "whose work is as before"
    watch, told = run(watch, 3, even(*FOUR, g10=3.0), hurt)
    assert told == []
    watch, told = run(watch, 1, even(*FOUR, g10=3.0), hurt)
    assert [slow.gpu for slow in told] == ["1/0"]


def test_one_gpu_is_never_slow_and_of_two_one_must_be_more_than_twice_as_slow() -> None:
    eager = SlowOptions(factor=1.2, steps=3)
    assert run(SlowWatch(eager), 9, even("0/0"))[1] == []
    two = ("0/0", "1/0")
    assert run(SlowWatch(eager), 9, even(*two, g10=1.9))[1] == []
    assert [slow.gpu for slow in run(SlowWatch(eager), 9, even(*two, g10=2.1))[1]] == ["1/0"]
    assert run(SlowWatch(SlowOptions(4.0, 3)), 9, even(*two, g10=3.9))[1] == []
    three = ("0/0", "1/0", "2/0")
    assert [slow.gpu for slow in run(SlowWatch(eager), 9, even(*three, g10=1.3))[1]] == ["1/0"]


def test_several_slow_gpus_are_told_as_long_as_most_are_healthy() -> None:
    gpus = tuple(f"0/{i}" for i in range(5))
    _, told = run(SlowWatch(OPTIONS), 9, even(*gpus, g01=3.0, g03=4.0))
    assert [slow.gpu for slow in told] == ["0/1", "0/3"]
    assert run(SlowWatch(OPTIONS), 9, even(*gpus, g00=3.0, g01=3.0, g03=3.0))[1] == []


def test_gpus_that_need_no_time_at_all_accuse_nobody() -> None:
    busy_s = dict.fromkeys(FOUR, 0.0) | {"1/0": 1.0}
    assert run(SlowWatch(OPTIONS), 9, busy_s)[1] == []


times = st.floats(1.0, 1.4)


@settings(max_examples=150, deadline=None)
@given(st.data(), st.integers(2, 6), st.sampled_from([1, 3, 5, 8]))
def test_outliers_below_half_of_the_window_accuse_nobody(
    data: st.DataObject, gpus: int, steps: int
) -> None:
    """Any GPU, any outlier; the median of a window of w stands (w - 1) // 2 of them."""
    names = [f"0/{index}" for index in range(gpus)]
    watch = SlowWatch(SlowOptions(1.5, steps))
    rows = [{name: data.draw(times) for name in names} for _ in range(steps)]
    for name in names:
        for index in data.draw(st.sets(st.integers(0, steps - 1), max_size=(steps - 1) // 2)):
            rows[index][name] = data.draw(st.floats(0.0, 1e6))
    for row in rows:
        watch = watch.after_step(row)
        assert watch.verdicts() == ()


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.lists(st.floats(0.0, 10.0), min_size=6, max_size=6), min_size=3, max_size=7),
    st.floats(1.1, 3.0),
)
def test_the_rule_by_its_definition(table: list[list[float]], factor: float) -> None:
    names = [f"0/{index}" for index in range(len(table))]
    watch = SlowWatch(SlowOptions(factor, 6))
    for step in range(6):
        watch = watch.after_step({name: row[step] for name, row in zip(names, table, strict=True)})
    medians = [statistics.median(row) for row in table]
    expected = {}
    for index, own in enumerate(medians):
        others = statistics.median(medians[:index] + medians[index + 1 :])
        if others > 0 and own / others > factor:
            expected[names[index]] = own / others
    assert {slow.gpu: slow.ratio for slow in watch.verdicts()} == pytest.approx(expected)


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.lists(st.floats(0.1, 10.0), min_size=4, max_size=4), min_size=3, max_size=25),
    st.permutations([0, 1, 2, 3]),
)
def test_the_order_of_gpus_does_not_matter_and_nobody_is_told_twice_in_a_row(
    steps: list[list[float]], order: list[int]
) -> None:
    one = other = SlowWatch(SlowOptions(1.5, 3))
    slow: set[str] = set()
    for row in steps:
        busy_s = dict(zip(FOUR, row, strict=True))
        one = one.after_step(busy_s)
        other = other.after_step({FOUR[i]: row[i] for i in order})
        assert one == other
        told = {verdict.gpu for verdict in one.verdicts()}
        assert not told & slow
        slow = set(one.slow)
        assert told <= slow
