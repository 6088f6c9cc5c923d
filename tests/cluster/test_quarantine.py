"""GPUs that fail again and again wait longer each time."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nonuniform.cluster.quarantine import FlapOptions, Quarantine

OPTIONS = FlapOptions(flaps=2, window_s=3600.0, first_s=60.0, max_s=600.0)


def after(times: list[float], options: FlapOptions = OPTIONS, gpu: str = "0/1") -> Quarantine:
    quarantine = Quarantine(options)
    for time_s in times:
        quarantine = quarantine.failed(gpu, time_s)
    return quarantine


def test_the_wait_doubles_with_each_failure_above_the_limit_up_to_the_longest() -> None:
    quarantine, waits = Quarantine(OPTIONS), []
    for index in range(8):
        now_s = 100.0 * index
        quarantine = quarantine.failed("0/1", now_s)
        end_s = quarantine.until("0/1", now_s)
        waits.append(None if end_s is None else end_s - now_s)
    assert waits == [None, None, 60.0, 120.0, 240.0, 480.0, 600.0, 600.0]


def test_a_quarantine_ends_at_its_moment_and_concerns_one_gpu() -> None:
    quarantine = after([0.0, 10.0, 20.0])
    assert quarantine.until("0/1", 20.0) == quarantine.until("0/1", 79.9) == 80.0
    assert quarantine.until("0/1", 80.0) is None
    assert quarantine.until("0/2", 20.0) is None
    assert quarantine.reason("0/1", 80.0) == quarantine.reason("0/2", 20.0) == ""
    assert quarantine.reason("0/1", 50.0) == (
        "GPU 0/1 failed 3 times within 3600 s (flaps = 2): it may come back in 30 s"
    )
    assert "failed 7 or more times" in after([float(i) for i in range(12)]).reason("0/1", 11.0)


def test_failures_farther_apart_than_the_window_never_add_up() -> None:
    quarantine = after([3600.0 * index for index in range(20)])
    assert quarantine.until("0/1", 3600.0 * 19) is None
    assert quarantine.failures == (("0/1", 3600.0 * 19),)


def test_a_quarantine_longer_than_the_window_is_served_to_the_end() -> None:
    options = FlapOptions(flaps=0, window_s=10.0, first_s=100.0, max_s=1000.0)
    quarantine = after([0.0], options).failed("1/0", 50.0)
    assert quarantine.until("0/1", 99.0) == 100.0
    assert quarantine.until("1/0", 149.0) == 150.0
    assert quarantine.failed("1/1", 100.0).until("0/1", 100.0) is None


def test_nobody_waits_where_the_first_wait_is_nothing() -> None:
    for flaps in (0, 2):
        options = FlapOptions(flaps, 3600.0, 0.0, 600.0)
        assert after([float(i) for i in range(50)], options).until("0/1", 49.0) is None


def test_extreme_numbers_do_not_overflow() -> None:
    options = FlapOptions(flaps=0, window_s=1e9, first_s=1e-300, max_s=1e300)
    quarantine = Quarantine(options, tuple(("0/1", float(i)) for i in range(2200)))
    assert quarantine.until("0/1", 0.0) == 1e300
    assert Quarantine(options, quarantine.failures[:1500]).until("0/1", 1499.0) is not None
    assert quarantine.until("0/1", 2199.0) == 1e300


@st.composite
def histories(draw: st.DrawFn) -> tuple[FlapOptions, list[tuple[str, float]]]:
    options = FlapOptions(
        flaps=draw(st.integers(0, 3)),
        window_s=draw(st.sampled_from([1.0, 20.0, 100.0])),
        first_s=draw(st.sampled_from([0.0, 1.0, 7.0, 60.0])),
        max_s=draw(st.sampled_from([0.0, 1.0, 28.0, 500.0])),
    )
    gaps = draw(st.lists(st.floats(0.0, 60.0), min_size=1, max_size=30))
    gpus = draw(st.lists(st.sampled_from(["0/0", "0/1", "1/0"]), min_size=30, max_size=30))
    now_s, failures = 0.0, []
    for gap, gpu in zip(gaps, gpus, strict=False):
        now_s += gap
        failures.append((gpu, now_s))
    return options, failures


@settings(max_examples=200, deadline=None)
@given(histories(), st.floats(0.0, 600.0))
def test_what_is_forgotten_makes_no_difference(
    history: tuple[FlapOptions, list[tuple[str, float]]], later_s: float
) -> None:
    """The rule, from the whole history, against the value that forgets."""
    options, failures = history
    quarantine = Quarantine(options)
    for gpu, time_s in failures:
        quarantine = quarantine.failed(gpu, time_s)
    now_s = failures[-1][1] + later_s
    for gpu in ("0/0", "0/1", "1/0"):
        times = [time_s for name, time_s in failures if name == gpu]
        expected = None
        if times:
            count = sum(time_s > times[-1] - options.window_s for time_s in times)
            if count > options.flaps and options.first_s:
                wait_s = min(options.first_s * 2 ** (count - options.flaps - 1), options.max_s)
                expected = times[-1] + wait_s if times[-1] + wait_s > now_s else None
        assert quarantine.until(gpu, now_s) == (
            None if expected is None else pytest.approx(expected)
        )
        assert bool(quarantine.reason(gpu, now_s)) == (expected is not None)
    each = max(sum(name == gpu for name, _ in quarantine.failures) for gpu, _ in failures)
    assert each <= options.most_counted


def test_memory_is_bounded_by_what_can_still_count() -> None:
    quarantine = Quarantine(OPTIONS)
    for index in range(500):
        quarantine = quarantine.failed(f"0/{index % 20}", 10.0 * index)
    alive = {gpu for gpu, _ in quarantine.failures}
    assert len(alive) == 20
    assert len(quarantine.failures) == 20 * OPTIONS.most_counted
    assert quarantine.failed("1/0", 9000.0).failures == (("1/0", 9000.0),)
