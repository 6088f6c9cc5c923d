"""How long a process that hangs holds up the others: from SIGSTOP to the next commit.

    python bench/hangs.py [--stops 6] [--hang 3] [--out DIR] [--check]

Runs the small job of bench/recovery.py with [run] hang_timeout_s = HANG, stops the processes of
different GPUs one after the other, at different moments of a step, and lets each come back before
the next is stopped. --check: status 1 where a stop took longer than HANG + 1 s to survive.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rivals.aims import Aim, tell_aims
from rivals.our_runs import ended, pid_of, training, until_step, write_job
from rivals.small_job import Times, small_job
from rivals.watching import Row, Tail

VICTIMS = ("1/2", "0/0", "1/0", "0/3", "1/3", "0/1")
LIMIT_S = 60.0
APART = 10  # steps between a return and the next stop
SLACK_S = 1.0


def measure(folder: Path, stops: int, hang_s: float) -> list[float]:
    """Seconds from each stop to the next commit, seen from outside."""
    rest = "[health]\nquarantine_s = 0.0\n[checkpoint]\nfinal = false\n"
    more = f"hang_timeout_s = {hang_s:g}\n{rest}"
    out, took_s = folder / "run", []
    with training(write_job(folder, small_job(10**6, more=more)), out) as process:
        steps, step = until_step(folder, process, APART), APART
        events = Tail(out / "events.jsonl")
        for number in range(stops):
            gpu = VICTIMS[number % len(VICTIMS)]
            Times(phase=(number + 0.5) / stops).wait_into_step(steps.rows)
            pid = pid_of(out / "events.jsonl", gpu)
            stopped_s = time.monotonic()
            os.kill(pid, signal.SIGSTOP)
            took_s.append(_next_commit_s(steps, process) - stopped_s)
            with (out / "health.jsonl").open("a") as file:
                file.write(json.dumps({"kind": "returned", "gpu": gpu}) + "\n")
            back = number + 1
            events.until(lambda rows: _joined(rows) >= back, lambda: ended(process), LIMIT_S)  # noqa: B023
            step = steps.rows[-1]["step"] + APART
            steps.until(lambda rows: rows[-1]["step"] >= step, lambda: ended(process), LIMIT_S)  # noqa: B023
    return took_s


def _next_commit_s(steps: Tail, process: subprocess.Popen[bytes]) -> float:
    """When the first step of the next generation was seen."""
    steps.read()
    before = steps.rows[-1]["generation"]
    steps.until(lambda rows: rows[-1]["generation"] > before, lambda: ended(process), LIMIT_S)
    return float(next(row["seen_s"] for row in steps.rows if row["generation"] > before))


def _joined(rows: list[Row]) -> int:
    return sum(row["kind"] == "joined" for row in rows)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--stops", type=int, default=6)
    parser.add_argument("--hang", type=float, default=3.0, help="hang_timeout_s")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.out or Path(scratch)
        took_s = measure(folder, arguments.stops, arguments.hang)
    console = Console(highlight=False)
    console.print(
        f"{len(took_s)} processes stopped, hang_timeout_s = {arguments.hang:g}; to the next commit "
        f"{statistics.median(took_s):.2f} s [{min(took_s):.2f} - {max(took_s):.2f}]"
    )
    aim = Aim("the longest, less hang_timeout_s, in s", max(took_s) - arguments.hang, SLACK_S)
    status = tell_aims(console, [aim])
    return status if arguments.check else 0


if __name__ == "__main__":
    sys.exit(main())
