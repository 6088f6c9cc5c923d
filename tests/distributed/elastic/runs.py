"""Real runs for the tests of this folder: started, watched while they run, and ended for sure.

In: a job as nested tables, the flags of `nonuniform train`. Out: exit status and the files of the
run. Every wait has a bound, and only processes that were started from here are ended.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import psutil

T = TypeVar("T")
Row = dict[str, Any]

STEPS = 30
TOLERANCE = 1e-10
WAIT_S = 60.0
RUN_S = 120.0
POLL_S = 0.003
HOST = Path(__file__).with_name("host.py")
TEXT = "the loss of a rank leaves units to the others, and back they come at the next step "


def write_text(path: Path, count: int = 12_000, seed: int = 7) -> Path:
    """A text that a small model learns something of within a few steps."""
    draw = random.Random(seed)
    words = TEXT.split()
    path.write_text(" ".join(draw.choice(words) for _ in range(count)), encoding="ascii")
    return path


def write_job(path: Path, text: Path, changes: Mapping[str, Mapping[str, Any]]) -> Path:
    """The tiny job of these tests, with some keys replaced."""
    job: dict[str, dict[str, Any]] = {
        "model": {"layers": 2, "hidden": 48, "heads": 12, "kv_heads": 4, "ffn": 128},
        "data": {"text": [str(text)]},
        "parallel": {"replicas": 2, "degree": 3, "min_degree": 1},
        "batch": {"sequences": 6, "length": 32},
        "run": {
            "steps": STEPS,
            "dtype": "float64",
            "log_sample_ids": True,
            "hang_timeout_s": 30,
        },
        # A rate that does not depend on where the run ends: runs of any length have one curve.
        "optimizer": {"schedule": "constant"},
        "checkpoint": {"final": False},
        "health": {"quarantine_s": 0.0},
    }
    for section, values in changes.items():
        job.setdefault(section, {}).update(values)
    path.write_text("".join(_section(name, values) for name, values in job.items()))
    return path


def _section(name: str, values: Mapping[str, Any]) -> str:
    lines = [f"{key} = {json.dumps(value)}" for key, value in values.items()]
    return f"[{name}]\n" + "\n".join(lines) + "\n"


def train_arguments(
    job: Path, out: Path, fails: Sequence[str] = (), returns: Sequence[str] = ()
) -> list[str]:
    """What follows `nonuniform` on the command line; an event is written "R/I@step"."""
    arguments = ["train", str(job), "--out", str(out), "--quiet"]
    for flag, events in (("--fail", fails), ("--return", returns)):
        for event in events:
            gpu, step = event.split("@")
            arguments += [flag, f"gpu={gpu}@step={step}"]
    return arguments


@dataclass(frozen=True)
class Records:
    """The output folder of a run, read anew at every look, also while the run goes on."""

    folder: Path

    @property
    def steps(self) -> list[Row]:
        return _rows(self.folder / "steps.jsonl")

    @property
    def events(self) -> list[Row]:
        return _rows(self.folder / "events.jsonl")

    @property
    def summary(self) -> Row | None:
        path = self.folder / "summary.json"
        return json.loads(path.read_text()) if path.exists() else None

    def of_kind(self, *kinds: str) -> list[Row]:
        return [event for event in self.events if event["kind"] in kinds]

    def pids(self) -> dict[str, list[int]]:
        """GPU -> its processes, one after the other."""
        found: dict[str, list[int]] = {}
        for event in self.of_kind("started", "returned"):
            found.setdefault(event["gpu"], []).append(event["pid"])
        return found

    def gaps_s(self) -> list[float]:
        """The times between one event or step and the next."""
        moments = sorted(row["time_s"] for row in [*self.steps, *self.events])
        return [later - earlier for earlier, later in itertools.pairwise(moments)]

    def last_step(self) -> int:
        return len(self.steps)


@dataclass(frozen=True)
class Finished(Records):
    """A run that has ended; `stderr` is what its person reads."""

    status: int
    stderr: str


@dataclass(frozen=True)
class Live(Records):
    """A run under way; `launcher` is the process that leads it."""

    launcher: int

    def wait(self, what: str, look: Callable[[], T | None], bound_s: float = WAIT_S) -> T:
        """Look until there is something to see; an error if the run ends before."""
        limit_s = time.monotonic() + bound_s
        while time.monotonic() < limit_s:
            over = self.summary
            if found := look():
                return found
            assert over is None, f"the run ended before there was {what}: {over}"
            time.sleep(POLL_S)
        raise AssertionError(f"no {what} within {bound_s:g} s; {self.tail()}")

    def wait_step(self, step: int) -> None:
        self.wait(f"step {step}", lambda: self.last_step() >= step)

    def wait_events(self, kind: str, count: int = 1) -> list[Row]:
        def look() -> list[Row] | None:
            found = self.of_kind(kind)
            return found if len(found) >= count else None

        return self.wait(f"{kind} event number {count}", look)

    def kill(self, gpu: str) -> None:
        """SIGKILL from outside, of which the run is not told."""
        os.kill(self.pids()[gpu][-1], signal.SIGKILL)

    def tail(self) -> str:
        logs = sorted((self.folder / "workers").glob("*.log"))
        said = "".join(f"\n{log.name}: {log.read_text()[-500:]}" for log in logs)
        return f"last events: {self.events[-3:]}{said}"


During = Callable[[Live], None]


class Host:
    """One process that runs the command line over and over; started anew when it was lost."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._process: subprocess.Popen[str] | None = None

    def command(
        self,
        arguments: Sequence[str],
        folder: Path,
        during: During | None = None,
        bound_s: float = RUN_S,
        around: Sequence[str] | None = None,
    ) -> Finished:
        """Run one command; `during` is called beside it, `around` is what host.py says."""
        process = self._alive()
        assert process.stdin is not None
        request = {"arguments": list(arguments), "around": around}
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        answered = False
        try:
            if during is not None:
                during(Live(folder, process.pid))
            answer = self._answer(process, bound_s)
            answered = True
        finally:
            if not answered:
                self.close()
        return Finished(folder, answer["status"], answer["stderr"])

    def _alive(self) -> subprocess.Popen[str]:
        if self._process is None or self._process.poll() is not None:
            with self._log.open("a") as log:
                self._process = subprocess.Popen(
                    [sys.executable, str(HOST)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                    start_new_session=True,
                )
        return self._process

    def _answer(self, process: subprocess.Popen[str], bound_s: float) -> Row:
        assert process.stdout is not None
        ready, _, _ = select.select([process.stdout], [], [], bound_s)
        line = process.stdout.readline() if ready else ""
        assert line, f"no answer within {bound_s:g} s: {self._log.read_text()[-2000:]}"
        return dict(json.loads(line))

    def close(self) -> None:
        if self._process is not None:
            end_session(self._process)
            self._process = None


class Command:
    """`nonuniform` as a person starts it: a process, a session and a process group of its own."""

    def __init__(self, arguments: Sequence[str], folder: Path, errors: Path) -> None:
        self._errors = errors
        with errors.open("w") as log:
            self.process = subprocess.Popen(
                [*console_script(), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,
            )
        self.live = Live(folder, self.process.pid)
        self._started_s = time.monotonic()

    def age_s(self) -> float:
        return time.monotonic() - self._started_s

    def wait(self, bound_s: float = RUN_S) -> Finished:
        status = self.process.wait(bound_s)
        return Finished(self.live.folder, status, self._errors.read_text())

    def left_behind(self, bound_s: float) -> list[str]:
        """What still runs of all that the command started, after at most `bound_s`."""
        limit_s = time.monotonic() + bound_s
        while left := session_members(self.process.pid):
            if time.monotonic() > limit_s:
                break
            time.sleep(0.02)
        return [f"{process.pid} {process.name()}" for process in left]

    def close(self) -> None:
        end_session(self.process)


def console_script() -> list[str]:
    script = Path(sys.executable).with_name("nonuniform")
    if script.exists():
        return [str(script)]
    return [sys.executable, "-c", "from nonuniform.cli import main; main()"]


def session_members(leader: int) -> list[psutil.Process]:
    """All living processes of a session, also those whose parent is gone; no zombies."""
    found = []
    for process in psutil.process_iter(["status"]):
        try:
            member = os.getsid(process.pid) == leader
        except (ProcessLookupError, PermissionError):
            continue
        if member and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(process)
    return found


def end_session(leader: subprocess.Popen[Any]) -> None:
    """Kill what is left of a session that this process has started, and wait for it."""
    limit_s = time.monotonic() + 10.0
    while left := session_members(leader.pid):
        for process in left:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        if time.monotonic() > limit_s:
            break
        time.sleep(0.02)
    leader.wait(10.0)


def assert_same_training(
    run: Records, reference: Records, steps: int = STEPS, tolerance: float = TOLERANCE
) -> None:
    """Each step once and in order, on the same samples, with the same numbers up to rounding."""
    ours, theirs = run.steps, reference.steps[:steps]
    assert [row["step"] for row in ours] == list(range(1, steps + 1))
    for row, expected in zip(ours, theirs, strict=True):
        where = f"step {row['step']}, generation {row['generation']}"
        assert row["sample_ids"] == expected["sample_ids"], where
        assert row["tokens"] == expected["tokens"], where
        assert sum(row["batch_shares"]) == row["samples"] == len(row["sample_ids"]), where
        for key in ("loss", "grad_norm"):
            error = abs(row[key] - expected[key]) / max(1.0, abs(expected[key]))
            assert error <= tolerance, f"{where}: {key} {row[key]!r}, expected {expected[key]!r}"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def runs_of(values: Sequence[T]) -> list[T]:
    """The values without repetitions next to each other."""
    return [value for index, value in enumerate(values) if not index or values[index - 1] != value]


def _rows(path: Path) -> list[Row]:
    """The complete lines of a log; the last one may be half written."""
    if not path.exists():
        return []
    whole = path.read_text(encoding="utf-8").rpartition("\n")[0]
    return [json.loads(line) for line in whole.splitlines()]
