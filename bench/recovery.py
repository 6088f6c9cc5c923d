"""How long a failure stops the training, part by part, and what others lose by the same failure.

    python bench/recovery.py [--failures 5] [--small] [--out DIR] [--check]
    python bench/recovery.py --against restart,torchft [--repeat 3] [--out DIR] [--check]

The first form runs the demo's job (--small: one of 0.3 M parameters) once; kills the processes of
different GPUs one after the other (SIGKILL), lets each come back before the next goes, and prints
what events.jsonl says. The second form compares runtimes on the small job when a GPU stays away:
this one, the job restarted from its last checkpoint, and torchft (pip install '.[torchft]').
All processes share this machine's cores, so read the parts against each other and against the step
time of the same run. What the figures shall be is printed below them; --check: status 1 where one
is not.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rivals.aims import Aim, tell_aims
from rivals.compare import RIVALS, compare
from rivals.small_job import small_job

from nonuniform.config import load_job, parse_schedule
from nonuniform.demo.job import job_toml
from nonuniform.train.run import train

VICTIMS = ("1/3", "0/0", "1/1", "0/2", "1/0", "0/3", "1/2", "0/1")
FIRST, APART, BACK = 6, 16, 6  # steps: first loss, between losses, from loss to return
PARTS = ("detect_s", "regroup_s", "transfer_s", "redo_s", "total_s")
LOSS_S, LONGEST_S, RETURN_S = 0.25, 2.0, 0.3  # aims, for the small job
STOPPED = ("detect_s", "regroup_s", "transfer_s")  # until the ranks work again

Event = dict[str, Any]


def run(out: Path, failures: int, small: bool) -> None:
    out.mkdir(parents=True, exist_ok=True)
    at = [(VICTIMS[i % len(VICTIMS)], FIRST + APART * i) for i in range(failures)]
    steps = FIRST + APART * failures
    # A GPU that fails again and again must come back at once here.
    text = (small_job(steps) if small else job_toml()) + "\n[health]\nquarantine_s = 0.0\n"
    (out / "JOB.toml").write_text(text, encoding="utf-8")
    job = load_job(out / "JOB.toml", {"run.steps": steps, "run.val_every": 0})
    fails = [f"gpu={gpu}@step={step}" for gpu, step in at]
    returns = [f"gpu={gpu}@step={step + BACK}" for gpu, step in at]
    train(job, out / "run", parse_schedule(fails, returns, job), overwrite=True)


def rows(path: Path) -> list[Event]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def tell(out: Path, failures: int) -> int:
    """Prints the table; 0 if the aims are met, else 1."""
    events, steps = rows(out / "run" / "events.jsonl"), rows(out / "run" / "steps.jsonl")
    found = {kind: [e for e in events if e["kind"] == kind] for kind in ("recovery", "joined")}
    console = Console()
    console.print(_table(found))
    counts = {kind: len(found[kind]) for kind in found}
    if set(counts.values()) != {failures}:
        console.print(f"NOT all as ordered: {failures} losses and returns, but {counts}")
    changed = {event["step"] for event in events if event["kind"] in found}
    pairs = itertools.pairwise(steps)
    plain = [b["time_s"] - a["time_s"] for a, b in pairs if b["step"] not in changed]
    console.print(f"an undisturbed step of the same run: {_cell(plain)} s")
    console.print(_pids(events))
    stops = {kind: [_stopped_s(event) for event in found[kind]] for kind in found}
    if not all(stops.values()):
        return 1
    aims = [
        Aim("a loss, detect + regroup + transfer, median s", median(stops["recovery"]), LOSS_S),
        Aim("the longest of them, s", max(stops["recovery"]), LONGEST_S),
        Aim("a return, median s", median(stops["joined"]), RETURN_S),
    ]
    return tell_aims(console, aims)


def _table(found: dict[str, list[Event]]) -> Table:
    table = Table(title=escape("seconds: median [smallest - largest]"))
    for column in ("", "a GPU lost", "a GPU back"):
        table.add_column(column, justify="left" if not column else "right")
    measures: list[tuple[str, Callable[[Event], float | None]]] = [
        (part.removesuffix("_s"), lambda event, part=part: event[part])  # type: ignore[misc]
        for part in PARTS
    ]
    measures.append(("detect + regroup + transfer", _stopped_s))
    measures.append(("MiB moved", lambda event: float(event["transfer_bytes"]) / 2**20))
    for name, measure in measures:
        values = [[measure(event) for event in events] for events in found.values()]
        table.add_row(name, *(_cell([v for v in column if v is not None]) for column in values))
    return table


def _stopped_s(event: Event) -> float:
    """Nobody has to notice a return, so it has no `detect_s`."""
    return sum(event[part] or 0.0 for part in STOPPED)


def _cell(values: list[float]) -> str:
    if not values:
        return "-"
    return f"{median(values):.3f} [{min(values):.3f} - {max(values):.3f}]"


def _pids(events: list[Event]) -> str:
    """Whether any process but the killed ones was replaced."""
    started = [e for e in events if e["kind"] in ("started", "returned")]
    killed = {e["pid"] for e in events if e["kind"] == "failed"}
    pids: dict[str, list[int]] = {}
    for event in started:
        pids.setdefault(event["gpu"], []).append(event["pid"])
    replaced = {pid for lives in pids.values() for pid in lives[:-1]}
    kept = sum(1 for lives in pids.values() if len(lives) == 1)
    verdict = "all of them killed on order" if replaced <= killed else "NOT all killed on order"
    return f"{len(replaced)} processes were replaced, {verdict}; {kept} GPUs kept theirs throughout"


@contextlib.contextmanager
def _folder(wanted: Path | None) -> Iterator[Path]:
    if wanted is None:
        with tempfile.TemporaryDirectory() as scratch:
            yield Path(scratch)
    else:
        wanted.mkdir(parents=True, exist_ok=True)
        yield wanted


def _rivals(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    unknown = sorted(set(names) - set(RIVALS))
    if unknown:
        raise argparse.ArgumentTypeError(
            f"{', '.join(unknown)}: expected some of {', '.join(RIVALS)}"
        )
    return names


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--failures", type=int, default=5)
    parser.add_argument("--small", action="store_true", help="the job of 0.3 M parameters")
    parser.add_argument("--against", type=_rivals, metavar="RIVAL,...", help=", ".join(RIVALS))
    parser.add_argument("--repeat", type=int, default=3, help="failures of each runtime")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--check", action="store_true", help="status 1 where an aim is not met")
    arguments = parser.parse_args()
    with _folder(arguments.out) as out:
        if arguments.against and any(out.iterdir()):
            parser.error(f"--out {out}: must be empty")
        if arguments.against:
            status = compare(arguments.against, arguments.repeat, out)
        else:
            run(out, arguments.failures, arguments.small)
            status = tell(out, arguments.failures)
    return status if arguments.check else 0


if __name__ == "__main__":
    sys.exit(main())
