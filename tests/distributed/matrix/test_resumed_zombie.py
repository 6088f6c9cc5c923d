"""A process that was given up, lives on and wakes up later: it changes nothing and goes by itself.

As on a machine that was cut off and comes back: its process was stopped, the launcher gave it up,
and the launcher's SIGKILL never reached it.
"""

from __future__ import annotations

import contextlib
import time
from typing import Any

import psutil
import pytest
from means.bouts import (
    EVERY,
    HANG_S,
    STEPS,
    STRIKE_STEP,
    WITHOUT_FENCE,
    fight,
    resume_process,
    story,
)
from means.strikes import Strike, strike_folder

VICTIM = "2/1"
GONE_S = 30.0  # it looks for an outcome that is forgotten for 2 hang_timeout_s + 10


@pytest.mark.parametrize(
    "phase", ["backward", "all-reduce", "before vote", "vote", "optimizer", "checkpoint"]
)
def test_a_zombie_writes_into_no_later_generation(
    lab: Any, elastic: Any, reference: Any, phase: str
) -> None:
    left: list[float] = []

    def during(live: Any) -> None:
        (given_up,) = live.wait_events("failed")
        live.wait_events("recovery")
        live.wait_step(STRIKE_STEP + 3)
        resume_process(given_up["pid"])
        left.append(seconds_until_gone(given_up["pid"]))
        (strike_folder(live.folder) / "go").touch()

    strike = Strike((VICTIM,), phase, "stop", STRIKE_STEP, hold_step=STRIKE_STEP + 3, hold="go")
    changes = {"run": {"hang_timeout_s": HANG_S}, "checkpoint": {"every": EVERY}}
    bout = fight(lab, strike, changes, during=during, around=WITHOUT_FENCE)
    run = bout.run
    assert run.status == 0, story(bout)
    elastic.assert_same_training(run, reference, steps=STEPS)
    assert bout.failed() == {VICTIM}, story(bout)
    assert run.of_kind("stalled") == [], story(bout)
    assert left[0] < GONE_S, f"it never ended by itself\n{story(bout)}"
    log = (run.folder / "workers" / f"gpu-{VICTIM.replace('/', '-')}.log").read_text()
    assert "goes on without this process" in log, story(bout)
    assert {event["step"] for event in run.of_kind("checkpoint")} >= {EVERY, 3 * EVERY}


def seconds_until_gone(pid: int) -> float:
    start_s = time.monotonic()
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        while process.status() != psutil.STATUS_ZOMBIE and time.monotonic() - start_s < GONE_S:
            time.sleep(0.02)
    return time.monotonic() - start_s
