"""How long a failure stops the training: kill to the next committed step, part by part.

    python bench/recovery.py [--failures 5] [--out DIR]

Runs the demo's job once; kills the processes of different GPUs one after the other (SIGKILL), lets
each come back before the next goes, and prints what events.jsonl says. All processes share this
machine's cores, so read the parts against each other and against the step time of the same run.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from nonuniform.config import load_job, parse_schedule
from nonuniform.demo.job import job_toml
from nonuniform.train.run import train

VICTIMS = ("1/3", "0/0", "1/1", "0/2", "1/0", "0/3", "1/2", "0/1")
FIRST, APART, BACK = 6, 16, 6  # steps: first loss, between losses, from loss to return
PARTS = ("detect_s", "regroup_s", "transfer_s", "redo_s", "total_s")


def run(out: Path, failures: int) -> None:
    out.mkdir(parents=True, exist_ok=True)
    (out / "JOB.toml").write_text(job_toml(), encoding="utf-8")
    at = [(VICTIMS[i % len(VICTIMS)], FIRST + APART * i) for i in range(failures)]
    steps = FIRST + APART * failures
    job = load_job(out / "JOB.toml", {"run.steps": steps, "run.val_every": 0})
    fails = [f"gpu={gpu}@step={step}" for gpu, step in at]
    returns = [f"gpu={gpu}@step={step + BACK}" for gpu, step in at]
    train(job, out / "run", parse_schedule(fails, returns, job), overwrite=True)


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def tell(out: Path) -> None:
    events, steps = rows(out / "run" / "events.jsonl"), rows(out / "run" / "steps.jsonl")
    found = {kind: [e for e in events if e["kind"] == kind] for kind in ("recovery", "joined")}
    table = Table(title="seconds: median [smallest - largest]")
    for column in ("", "a GPU lost", "a GPU back"):
        table.add_column(column, justify="left" if not column else "right")
    for part in PARTS:
        cells = [_cell([e[part] for e in found[k] if e[part] is not None]) for k in found]
        table.add_row(part.removesuffix("_s"), *cells)
    moved = [_cell([e["transfer_bytes"] / 2**20 for e in found[k]]) for k in found]
    table.add_row("MiB moved", *moved)
    console = Console()
    console.print(table)
    changed = {event["step"] for event in events if event["kind"] in found}
    pairs = itertools.pairwise(steps)
    plain = [b["time_s"] - a["time_s"] for a, b in pairs if b["step"] not in changed]
    console.print(f"an undisturbed step of the same run: {_cell(plain)} s")
    console.print(_pids(events))


def _cell(values: list[float]) -> str:
    if not values:
        return "-"
    return f"{statistics.median(values):.3f} [{min(values):.3f} - {max(values):.3f}]"


def _pids(events: list[dict[str, Any]]) -> str:
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


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--failures", type=int, default=5)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        out = arguments.out or Path(scratch)
        run(out, arguments.failures)
        tell(out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
