"""However a run is ended, it ends at once, closes its books and leaves no process behind."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from random import Random
from typing import Any

import psutil
import pytest

BOUND_S = 10.0
FAIL = "0/1@6"


def at_start_up(live: Any, draw: Random) -> None:
    """The books are open; the processes are being started."""
    live.wait("the books", (live.folder / "events.jsonl").exists)
    time.sleep(draw.uniform(0.0, 0.5))


def in_the_middle(live: Any, draw: Random) -> None:
    live.wait_step(draw.randint(2, 4))
    time.sleep(draw.uniform(0.0, 0.1))


def during_a_regroup(live: Any, draw: Random) -> None:
    live.wait_events("failed")


Moment = Callable[[Any, Random], None]
MOMENTS = [at_start_up, in_the_middle, during_a_regroup]


def name(value: Any) -> str:
    return value.__name__ if callable(value) else str(value)


def check_books(run: Any, elastic: Any, number: signal.Signals) -> None:
    """The summary is there and agrees with the logs, and the person reads one line."""
    assert run.status == 3, run.stderr
    assert run.stderr.splitlines() == [f"nonuniform: {run.summary['reason']}"]
    assert run.summary["reason"] == f"interrupted by {number.name} after step {run.last_step()}"
    assert (run.summary["status"], run.summary["steps"]) == ("failed", run.last_step())
    assert run.events[-1]["kind"] == "ended"
    assert [row["step"] for row in run.steps] == list(range(1, run.last_step() + 1))


def interrupt(lab: Any, launch: Any, elastic: Any, moment: Moment, draw: Random) -> None:
    """Ctrl-C reaches every process of the group, as in a terminal."""
    command = launch(lab.job(run={"steps": 500}), fails=[FAIL])
    moment(command.live, draw)
    bound_s = bound(command, moment)
    sent_s = time.monotonic()
    os.killpg(command.process.pid, signal.SIGINT)
    run = command.wait(bound_s)
    assert command.left_behind(bound_s - (time.monotonic() - sent_s)) == []
    check_books(run, elastic, signal.SIGINT)


def bound(command: Any, moment: Moment) -> float:
    """At the start the imports are waited for, which take as long as those that went before."""
    return BOUND_S + (command.age_s() if moment is at_start_up else 0.0)


@pytest.mark.parametrize("moment", [at_start_up, during_a_regroup], ids=name)
def test_interrupt(lab: Any, launch: Any, elastic: Any, moment: Moment, draw: Random) -> None:
    interrupt(lab, launch, elastic, moment, draw)


def terminate(lab: Any, elastic: Any, moment: Moment, draw: Random) -> None:
    """SIGTERM reaches the launcher alone; here it leads the runs of other tests too."""
    ended_s = [0.0]

    def during(live: Any) -> None:
        moment(live, draw)
        os.kill(live.launcher, signal.SIGTERM)
        ended_s[0] = time.monotonic() + BOUND_S

    run = lab.train(lab.job(run={"steps": 500}), fails=[FAIL], during=during)
    check_books(run, elastic, signal.SIGTERM)
    check_gone(run)
    assert time.monotonic() < ended_s[0]


def check_gone(run: Any) -> None:
    pids = [pid for found in run.pids().values() for pid in found]
    assert [pid for pid in pids if psutil.pid_exists(pid)] == []


@pytest.mark.parametrize("moment", MOMENTS, ids=name)
def test_terminate(lab: Any, elastic: Any, moment: Moment, draw: Random) -> None:
    terminate(lab, elastic, moment, draw)


def test_terminate_while_a_survivor_hangs(lab: Any, elastic: Any) -> None:
    """The survivors are waited for, one of them does not answer: the person must not wait too."""
    sent_s = [0.0]

    def during(live: Any) -> None:
        live.wait_step(3)
        os.kill(live.pids()["1/1"][0], signal.SIGSTOP)
        live.kill("0/1")
        live.wait_events("failed")
        time.sleep(0.2)
        os.kill(live.launcher, signal.SIGTERM)
        sent_s[0] = time.monotonic()

    run = lab.train(lab.job(run={"steps": 500}), during=during)
    took_s = time.monotonic() - sent_s[0]
    check_gone(run)
    assert took_s < BOUND_S, f"{took_s:.1f} s: {run.summary['reason']}"
    check_books(run, elastic, signal.SIGTERM)


def kill_launcher(lab: Any, launch: Any, moment: Moment, draw: Random) -> None:
    """Nobody is left who could tell the others: they must notice by themselves."""
    command = launch(lab.job(run={"steps": 500}), fails=[FAIL])
    moment(command.live, draw)
    bound_s = bound(command, moment)
    os.kill(command.process.pid, signal.SIGKILL)
    assert command.left_behind(bound_s) == []


def test_kill_the_launcher(lab: Any, launch: Any, draw: Random) -> None:
    kill_launcher(lab, launch, in_the_middle, draw)


# The rest of the table of signals and moments.


@pytest.mark.soak
@pytest.mark.parametrize("moment", [in_the_middle], ids=name)
def test_interrupt_at_other_moments(
    lab: Any, launch: Any, elastic: Any, moment: Moment, draw: Random
) -> None:
    interrupt(lab, launch, elastic, moment, draw)


@pytest.mark.soak
@pytest.mark.parametrize("moment", [at_start_up, during_a_regroup], ids=name)
def test_kill_the_launcher_at_other_moments(
    lab: Any, launch: Any, moment: Moment, draw: Random
) -> None:
    kill_launcher(lab, launch, moment, draw)


@pytest.mark.soak
@pytest.mark.parametrize("moment", MOMENTS, ids=name)
def test_terminate_the_command(
    lab: Any, launch: Any, elastic: Any, moment: Moment, draw: Random
) -> None:
    command = launch(lab.job(run={"steps": 500}), fails=[FAIL])
    moment(command.live, draw)
    bound_s = bound(command, moment)
    sent_s = time.monotonic()
    command.process.terminate()
    run = command.wait(bound_s)
    assert command.left_behind(bound_s - (time.monotonic() - sent_s)) == []
    check_books(run, elastic, signal.SIGTERM)
