"""The learning rate at the corners of the schedule."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nonuniform.errors import BadInput
from nonuniform.train.schedule import LrSchedule, ScheduleKind, learning_rate

KINDS: list[ScheduleKind] = ["cosine", "linear", "constant"]


@pytest.mark.parametrize("kind", KINDS)
def test_warm_up_is_linear_and_ends_at_the_peak(kind: ScheduleKind) -> None:
    options = LrSchedule(peak=0.8, warmup=4, total=20, kind=kind, floor=0.1)
    assert [learning_rate(step, options) for step in (1, 2, 3, 4)] == pytest.approx(
        [0.2, 0.4, 0.6, 0.8]
    )


@pytest.mark.parametrize(
    ("kind", "middle", "end"),
    [("cosine", 0.45, 0.1), ("linear", 0.45, 0.1), ("constant", 0.8, 0.8)],
)
def test_middle_end_and_after(kind: ScheduleKind, middle: float, end: float) -> None:
    options = LrSchedule(peak=0.8, warmup=4, total=20, kind=kind, floor=0.1)
    assert learning_rate(12, options) == pytest.approx(middle)
    assert learning_rate(20, options) == end
    assert learning_rate(10**9, options) == end


def test_cosine_is_a_cosine() -> None:
    options = LrSchedule(peak=1.0, warmup=0, total=100)
    rates = [learning_rate(step, options) for step in (25, 50, 75)]
    assert rates == pytest.approx([(1 + math.sqrt(0.5)) / 2, 0.5, (1 - math.sqrt(0.5)) / 2])


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_shorter_than_its_warm_up_stays_on_the_ramp(kind: ScheduleKind) -> None:
    options = LrSchedule(peak=1.0, warmup=10, total=5, kind=kind)
    assert learning_rate(5, options) == 0.5


@given(
    st.sampled_from(KINDS),
    st.integers(0, 50),
    st.integers(1, 100),
    st.floats(0, 1),
    st.floats(1e-6, 10),
)
def test_rates_stay_between_floor_and_peak_and_never_rise_after_warm_up(
    kind: ScheduleKind, warmup: int, total: int, share: float, peak: float
) -> None:
    options = LrSchedule(peak, warmup, total, kind, peak * share)
    rates = [learning_rate(step, options) for step in range(max(1, warmup), total + 3)]
    slack = 1e-12 * peak
    assert all(options.floor - slack <= rate <= peak + slack for rate in rates)
    assert all(later <= earlier + slack for earlier, later in pairwise(rates))


def test_bad_options_name_the_numbers() -> None:
    with pytest.raises(BadInput, match=r'"step".*cosine, linear, constant'):
        LrSchedule(1.0, 0, 1, kind="step")  # type: ignore[arg-type]
    with pytest.raises(BadInput, match=r"floor 2\.0 .* peak 1\.0"):
        LrSchedule(1.0, 0, 1, floor=2.0)
    with pytest.raises(BadInput, match="peak nan"):
        LrSchedule(math.nan, 0, 1)
    with pytest.raises(BadInput, match="warmup of -1 steps in 3"):
        LrSchedule(1.0, -1, 3)
    with pytest.raises(BadInput, match="warmup of 0 steps in 0"):
        LrSchedule(1.0, 0, 0)
