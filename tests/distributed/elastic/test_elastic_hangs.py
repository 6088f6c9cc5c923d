"""A process that stops is found; the run goes on without it and nothing is lost."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import psutil
import pytest

HANG_S = 3.0
SLACK_S = 1.0
STEPS = 20


def stop(live: Any, gpu: str) -> float:
    """SIGSTOP from outside; the moment."""
    os.kill(live.pids()[gpu][-1], signal.SIGSTOP)
    return time.monotonic()


def found_after_s(live: Any, stopped_s: float) -> float:
    live.wait_events("recovery")
    return time.monotonic() - stopped_s


@pytest.mark.parametrize("gpu", ["0/0", "1/2"])
def test_a_stopped_process_is_given_up_and_the_run_goes_on(
    lab: Any, elastic: Any, reference: Any, gpu: str
) -> None:
    took_s = [0.0]

    def during(live: Any) -> None:
        live.wait_step(4)
        took_s[0] = found_after_s(live, stop(live, gpu))

    run = lab.train(lab.job(run={"steps": STEPS, "hang_timeout_s": HANG_S}), during=during)
    assert run.status == 0, run.stderr
    elastic.assert_same_training(run, reference, steps=STEPS)
    (failed,) = run.of_kind("failed")
    assert failed["gpu"] == gpu
    assert failed["fenced"]
    assert "no sign of life" in failed["reason"]
    assert f"hang_timeout_s = {HANG_S:g}" in failed["reason"]
    assert {g: len(p) for g, p in run.pids().items() if g != gpu} == dict.fromkeys(
        [g for g in run.pids() if g != gpu], 1
    )
    print(f"stopped process survived after {took_s[0]:.2f} s")  # noqa: T201
    assert took_s[0] <= HANG_S + SLACK_S * load_factor()
    assert not psutil.pid_exists(failed["pid"])


def load_factor() -> float:
    """A machine that others use too needs longer to recover, not to notice."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def test_a_process_stopped_at_its_start_does_not_hold_the_run_up(
    lab: Any, elastic: Any, reference: Any
) -> None:
    """Before it has said anything: SIGSTOP right after it was started."""

    def during(live: Any) -> None:
        live.wait("processes", lambda: "1/1" in live.pids())
        stop(live, "1/1")

    limits = {"steps": STEPS, "hang_timeout_s": 5.0, "start_timeout_s": 5.0}
    run = lab.train(lab.job(run=limits), during=during)
    assert run.status == 0, run.stderr
    elastic.assert_same_training(run, reference, steps=STEPS)
    (failed,) = run.of_kind("failed")
    assert (failed["gpu"], failed["fenced"]) == ("1/1", True)


def test_a_spare_that_stops_costs_nobody_a_step(lab: Any, elastic: Any, reference: Any) -> None:
    def during(live: Any) -> None:
        live.wait_step(3)
        stop(live, "2/0")
        live.wait_events("failed")

    job = lab.job(parallel={"spares": 1}, run={"steps": 200, "hang_timeout_s": 2.0})
    run = lab.train(job, during=during, options=["--steps", "150"])
    assert run.status == 0, run.stderr
    assert [event["gpu"] for event in run.of_kind("failed")] == ["2/0"]
    assert {row["generation"] for row in run.steps} == {1}
    for row, expected in zip(run.steps, reference.steps, strict=False):
        assert row["sample_ids"] == expected["sample_ids"]
