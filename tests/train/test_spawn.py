"""Processes: started, their end seen at once, their words in their log, none left over."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from nonuniform.train.roster import how_it_ended
from nonuniform.train.spawn import ForkedProcess, Spawner, end_all, wait_any

SOON_S = 20.0  # the first one waits for the server's imports


class Nursery:
    """Starts processes that run a piece of code, and ends them all."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.spawner = Spawner(["nonuniform.train.membership"])
        self.started: list[ForkedProcess] = []

    def start(self, gpu: str, code: str, life: int = 1) -> ForkedProcess:
        process = self.spawner.start(gpu, life, self.log(gpu), exec, code)
        self.started.append(process)
        return process

    def log(self, gpu: str) -> Path:
        return self.folder / f"{gpu.replace('/', '-')}.log"


@pytest.fixture
def nursery(tmp_path: Path) -> Iterator[Nursery]:
    nursery = Nursery(tmp_path)
    yield nursery
    end_all(nursery.started, SOON_S)


SLEEP = "import time; time.sleep(60)"
COUNT_LINES = """
import time
for _ in range(1200):
    print("here", flush=True)
    time.sleep(0.05)
"""


def test_an_end_is_seen_at_once_with_its_status(nursery: Nursery) -> None:
    asleep = nursery.start("0/0", SLEEP)
    ended = nursery.start("0/1", "import os; os._exit(7)")
    assert wait_any([asleep, ended], SOON_S) == [ended]
    assert ended.exit_status() == 7
    assert how_it_ended(ended) == f"process {ended.pid} ended (exit status 7)"
    assert asleep.exit_status() is None
    assert (asleep.gpu, asleep.life) == ("0/0", 1)
    assert wait_any([asleep], 0.01) == []


def test_a_blow_is_dealt_without_waiting_and_noticed(nursery: Nursery) -> None:
    processes = [nursery.start(f"0/{i}", SLEEP) for i in range(3)]
    start = time.monotonic()
    processes[1].kill()
    assert wait_any(processes, SOON_S) == [processes[1]]
    assert time.monotonic() - start < SOON_S / 4
    assert processes[1].exit_status() == -signal.SIGKILL
    assert "SIGKILL" in how_it_ended(processes[1])
    processes[1].kill()  # a second blow finds nobody: no error
    assert wait_any([processes[0], processes[2]], 0.01) == []


def test_several_ends_are_told_together_and_again(nursery: Nursery) -> None:
    processes = [nursery.start(f"0/{i}", SLEEP) for i in range(3)]
    for process in processes[:2]:
        process.kill()
    limit = time.monotonic() + SOON_S
    found: set[str] = set()
    while len(found) < 2 and time.monotonic() < limit:
        found |= {process.gpu for process in wait_any(processes, SOON_S)}
    assert found == {"0/0", "0/1"}
    assert {process.gpu for process in wait_any(processes, 0.0)} == found


def test_waiting_for_nobody_lasts_as_long_as_told() -> None:
    start = time.monotonic()
    assert wait_any([], 0.05) == []
    assert 0.04 <= time.monotonic() - start < 5.0


def test_what_a_process_prints_is_in_its_log_life_after_life(nursery: Nursery) -> None:
    code = """
import os, sys
print("to stdout of", {0})
print("to stderr", file=sys.stderr)
os.system("echo from a child")
"""
    for life in (1, 2):
        process = nursery.start("1/0", code.replace("{0}", str(life)), life)
        assert wait_any([process], SOON_S) == [process]
        assert process.exit_status() == 0
    lines = nursery.log("1/0").read_text().splitlines()
    for line in ("to stdout of 1", "to stdout of 2"):
        assert lines.count(line) == 1
    assert lines.count("to stderr") == lines.count("from a child") == 2


def test_an_exception_is_in_the_log_and_a_status(nursery: Nursery) -> None:
    process = nursery.start("1/0", "raise ValueError('out of sorts')")
    assert wait_any([process], SOON_S) == [process]
    assert process.exit_status() == 1
    assert "ValueError: out of sorts" in nursery.log("1/0").read_text()


def test_signals_that_are_the_launchers_to_answer_end_no_process(nursery: Nursery) -> None:
    """A terminal that closes and a batch system signal everybody: the last checkpoint needs them
    alive."""
    process = nursery.start("1/0", COUNT_LINES)
    _wait_for_line(nursery.log("1/0"), 1)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(process.pid, number)
    seen = len(_text(nursery.log("1/0")).splitlines())
    assert wait_any([process], 0.2) == []
    _wait_for_line(nursery.log("1/0"), seen + 2)  # it works on, not only lives
    process.kill()
    assert wait_any([process], SOON_S) == [process]
    assert process.exit_status() == -signal.SIGKILL


LAUNCHER = """
import sys, time
from pathlib import Path
from nonuniform.train.spawn import Spawner
spawner = Spawner(["nonuniform.train.lock"])
process = spawner.start("0/0", 1, Path(sys.argv[1]), exec, sys.argv[2])
print(process.pid, flush=True)
time.sleep(60)
"""


def test_a_process_ends_with_its_launcher(tmp_path: Path) -> None:
    log = tmp_path / "0-0.log"
    command = [sys.executable, "-c", LAUNCHER, str(log), COUNT_LINES]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as launcher:
        assert launcher.stdout is not None
        pid = int(launcher.stdout.readline())
        _wait_for_line(log, 1)
        os.kill(pid, signal.SIGTERM)
        launcher.kill()
    limit = time.monotonic() + SOON_S
    while _lives(pid) and time.monotonic() < limit:
        time.sleep(0.01)
    assert not _lives(pid)


def test_ending_all_leaves_none(nursery: Nursery) -> None:
    stopped = nursery.start("0/0", SLEEP)
    processes = [stopped, nursery.start("0/1", SLEEP), nursery.start("0/2", "pass")]
    os.kill(stopped.pid, signal.SIGSTOP)  # one that hangs ends all the same
    end_all(processes, SOON_S)
    assert all(process.exit_status() is not None for process in processes)
    assert not [process.pid for process in processes if _lives(process.pid)]
    end_all(processes, SOON_S)
    end_all([], SOON_S)


def test_signals_without_a_name_have_a_number() -> None:
    class Ended:
        exitcode = -40

    process = ForkedProcess("0/0", 1, 123, Ended())
    assert how_it_ended(process) == "process 123 ended (signal 40)"


def _wait_for_line(path: Path, count: int) -> None:
    limit = time.monotonic() + SOON_S
    while len(_text(path).splitlines()) < count and time.monotonic() < limit:
        time.sleep(0.01)
    assert len(_text(path).splitlines()) >= count


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def _lives(pid: int) -> Any:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
