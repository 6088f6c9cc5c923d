"""`nonuniform plan`: from arguments to a folder with the answer.

In: what the command line says. Out: summary.json, tables. DESIGN "Outside contract".
Everything is read before anything is replaced; summary.json closes every plan, also a failed one.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nonuniform import __version__
from nonuniform.errors import BadInput
from nonuniform.placement.policy import Batch
from nonuniform.planner.folder import PlanFolder
from nonuniform.planner.inputs import understand
from nonuniform.planner.measured import of_sacct, of_steps
from nonuniform.planner.prices import Exchange, read_prices
from nonuniform.planner.summary import Effort, whole_answer
from nonuniform.planner.tables import tables_of
from nonuniform.planner.understood import Understood, fact, sha256
from nonuniform.whole_file import as_told, plain

SEEDS = 16
Progress = Callable[[str], None]


@dataclass(frozen=True)
class PlanArgs:
    """A scenario, or jobs with a cluster and failures. `command`: as it was typed."""

    scenario: Path | None = None
    jobs: tuple[Path, ...] = ()
    cluster: str | None = None
    gpus: int | None = None
    log: Path | None = None
    log_gpus: int | None = None
    failures: str | None = None
    prices: Path | None = None
    exchange: Exchange = field(default_factory=Exchange)
    measured: tuple[Path, ...] = ()
    sacct: Path | None = None
    batch: Batch = "fixed"
    seeds: int = SEEDS
    seed: int = 1
    processes: int = 1
    skip_bad_rows: bool = False
    overwrite: bool = False
    command: str = "nonuniform plan"


def plan(args: PlanArgs, out: Path, progress: Progress | None = None) -> dict[str, Any]:
    """The summary as written. Raises BadInput before anything is replaced, RunFailed after."""
    if args.seeds < 2:
        raise BadInput(f"--seeds {args.seeds}: at least 2, since one history has no interval")
    if args.processes != -1 and args.processes < 1:
        raise BadInput(f"--jobs {args.processes}: must be 1 or more, or -1 for one on each core")
    folder = PlanFolder.check(out, args.overwrite)
    understood = understand(args)
    prices = read_prices(args.prices, args.exchange, understood.prices, understood.gpu)
    created = datetime.date.today()
    head = _head(args, understood, created)
    started_s = time.monotonic()
    folder.make()
    effort = Effort(
        range(args.seed, args.seed + args.seeds), args.processes, args.batch,
        progress or (lambda _: None),
    )  # fmt: skip
    try:
        found = whole_answer(understood, prices, effort, created)
        summary: dict[str, Any] = plain({**head, "status": "done", **found})
        summary["time_s"] = time.monotonic() - started_s
        for name, rows in tables_of(summary).items():
            folder.write_table(name, rows)
    except BaseException as error:
        if isinstance(error, BadInput) and folder.has_summary:
            raise  # what was there stays
        failure = as_told(error, folder.path)
        reason = str(failure) or "interrupted"
        folder.close({**head, "status": "failed", "reason": reason,
                      "time_s": time.monotonic() - started_s})  # fmt: skip
        if failure is error:
            raise
        raise failure from error
    folder.close(summary)
    return summary


def _head(args: PlanArgs, understood: Understood, created: datetime.date) -> dict[str, Any]:
    return {
        "kind": "plan",
        "version": __version__,
        "created": created.isoformat(),
        "command": args.command,
        "seeds": args.seeds,
        "example": understood.example,
        "inputs": [*understood.inputs, *_price_input(args)],
        "facts": [*understood.facts, *_own_facts(args)],
        "unknown": list(understood.unknown),
        "measured": [
            *(of_steps(path).as_dict() for path in args.measured),
            *(each.as_dict() for each in (of_sacct(args.sacct) if args.sacct else [])),
        ],
    }


def _price_input(args: PlanArgs) -> Sequence[dict[str, Any]]:
    if args.prices is None:
        return []
    return [{"what": "prices", "name": args.prices.name, "format": "toml",
             "sha256": sha256(args.prices)}]  # fmt: skip


def _own_facts(args: PlanArgs) -> list[dict[str, Any]]:
    batch = {
        "fixed": "the batch of a step stays whole, as `nonuniform train` keeps it",
        "shrink": "a step may have a smaller batch",
    }
    own = [
        fact("plan", "batch", batch[args.batch], True),
        fact("plan", "histories", f"{args.seeds}, seeds {args.seed} to "
             f"{args.seed + args.seeds - 1}; all policies see the same", True),
        fact("plan", "spares", "are what a single job leaves of its cluster; more come out of its "
             "own GPUs", True),
    ]  # fmt: skip
    if args.prices is None:
        own.append(fact("prices", "all", "as shipped, in money.prices", True))
    return own
