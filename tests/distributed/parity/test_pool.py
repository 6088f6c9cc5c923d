"""The pool itself: a process that fails ends the run at once, and the next run starts afresh."""

from __future__ import annotations

import time

import pytest
from loopback.pool import Pool, SeatFailed


def test_every_seat_runs_and_answers_in_order(pool: Pool) -> None:
    assert pool.run(getattr, ["index"] * 3) == [0, 1, 2]


def test_a_failure_is_told_at_once_and_the_pool_goes_on(pool: Pool) -> None:
    start_s = time.monotonic()
    with pytest.raises(SeatFailed, match=r"seat 1: (.|\n)*AttributeError"):
        pool.run(getattr, ["index", "of no such name", "index"])
    assert time.monotonic() - start_s < 30.0
    assert pool.run(getattr, ["index"] * 2) == [0, 1]
