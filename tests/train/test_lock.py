"""One run at a time in a folder, for as long as any process of it lives."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nonuniform.errors import BadInput
from nonuniform.train.lock import LOCK_FILE, RunLock

SOON_S = 20.0
HOLDER = """
import sys, time
from pathlib import Path
from nonuniform.train.lock import RunLock
lock = RunLock(Path(sys.argv[1]))
lock.share()
print("held", flush=True)
time.sleep(60)
"""


@contextmanager
def holder(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lock as a process of the run."""
    command = [sys.executable, "-c", HOLDER, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


def test_a_second_run_is_refused_with_the_name_of_the_folder(tmp_path: Path) -> None:
    with RunLock(tmp_path) as first, RunLock(tmp_path) as second:
        first.take(0.0)
        start = time.monotonic()
        with pytest.raises(BadInput) as error:
            second.take(0.2)
        assert 0.2 <= time.monotonic() - start < 5.0
        assert str(error.value) == f"--out {tmp_path}: another run is at work there"
    assert [path.name for path in tmp_path.iterdir()] == [LOCK_FILE]


def test_runs_in_different_folders_and_one_after_the_other_do_not_meet(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    with RunLock(tmp_path) as first, RunLock(other) as second:
        first.take(0.0)
        second.take(0.0)
    with RunLock(tmp_path) as again:
        again.take(0.0)


def test_a_process_that_is_left_over_keeps_a_new_run_out_until_it_ends(tmp_path: Path) -> None:
    """The launcher is gone, and a rank still writes what it holds."""
    launcher = RunLock(tmp_path)
    launcher.take(0.0)
    with holder(tmp_path) as rank:
        launcher.__exit__()
        with RunLock(tmp_path) as resumed:
            with pytest.raises(BadInput, match="another run is at work there"):
                resumed.take(0.2)
            rank.kill()
            start = time.monotonic()
            resumed.take(SOON_S)
            assert time.monotonic() - start < SOON_S / 2


def test_one_that_waits_gets_it_when_the_last_process_ends(tmp_path: Path) -> None:
    with holder(tmp_path) as one, holder(tmp_path) as other, RunLock(tmp_path) as resumed:
        one.kill()
        one.wait(SOON_S)
        with pytest.raises(BadInput):
            resumed.take(0.2)
        other.kill()
        resumed.take(SOON_S)


def test_once_it_is_taken_processes_of_the_run_may_hold_it_too(tmp_path: Path) -> None:
    with RunLock(tmp_path) as launcher, RunLock(tmp_path) as other:
        launcher.take(0.0)
        with holder(tmp_path), holder(tmp_path), pytest.raises(BadInput):
            other.take(0.0)
