"""How long a simulation takes: a year of a large cluster, with and without a history, and growth.

    python bench/simulate.py [--repeat 3] [--jobs 2] [--seeds 100]

Failures as published for Llama 3, one GPU each; replicas of 8 domains. Medians of the repeats.
"wall" is what one waits for; "cpu" is what all processes together computed, a better measure where
the machine does other things too. "first" is the wall time of the first repeat, which starts the
processes. They stay for the next ones, and so do the states that they have met; what runs in this
process meets all its states anew each time, except for growth.
"""

from __future__ import annotations

import argparse
import re
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

from nonuniform.cluster.fleet import Fleet
from nonuniform.cluster.sources.generate import generate
from nonuniform.cluster.sources.rates import Cause
from nonuniform.cluster.sources.repair import fixed
from nonuniform.placement.job import TrainingJob
from nonuniform.placement.policy import PolicyOptions
from nonuniform.sim.book import book
from nonuniform.sim.engine import Policy
from nonuniform.sim.monte_carlo import Source, run

YEAR_H = 365 * 24.0
RATE_PER_GPU_DAY = 419 / 54 / 16384
GPUS, LARGE_GPUS, DOMAIN = 32_768, 131_072, 32
JOB = TrainingJob(DOMAIN, stages=8, sequences_per_replica=8)
KINDS = ("uniform", "dp-drop", "ntp", "ntp-pw")
COSTS: dict[str, Any] = {
    "detect_s": 20.0,
    "regroup_s": 10.0,
    "transfer_s": 30.0,
    "restart_s": 600.0,
    "checkpoint_every_s": 3600.0,
}


@dataclass(frozen=True)
class Load:
    """One workload; `at_most_s` is the aim, 0 for none."""

    name: str
    fleet: Fleet
    source: Source
    policies: Mapping[str, Policy]
    seeds: int
    jobs: int
    at_most_s: float = 0.0


@dataclass(frozen=True)
class Took:
    wall_s: float
    cpu_s: float


def failures(fleet: Fleet, rate_per_gpu_day: float = RATE_PER_GPU_DAY) -> Source:
    hardware = Cause("hardware", 0.78 * rate_per_gpu_day, fixed(120.0))
    software = Cause("software", 0.22 * rate_per_gpu_day, fixed(3.0))
    return partial(generate, fleet, (hardware, software), YEAR_H)


def policies(**options: Any) -> dict[str, Policy]:
    return {kind: (JOB, PolicyOptions(kind, **options)) for kind in KINDS}  # type: ignore[arg-type]


def loads(seeds: int, jobs: int) -> list[Load]:
    fleet, large = Fleet(GPUS, DOMAIN), Fleet(LARGE_GPUS, DOMAIN)
    drawn = failures(fleet)
    late = policies(**COSTS, repack="next-checkpoint")
    home = policies(**COSTS, repack="never")
    return [
        Load("no history", fleet, drawn, policies(), seeds, jobs, 3.0),
        Load("costs, repacked at once", fleet, drawn, policies(**COSTS), seeds, jobs, 60.0),
        Load("costs, repacked at a checkpoint", fleet, drawn, late, seeds, jobs, 60.0),
        Load("costs, replicas stay in place", fleet, drawn, home, seeds, jobs, 60.0),
        Load("four times the GPUs, one seed", large, failures(large), policies(), 1, 1, 0.3),
    ]


def growth() -> list[Load]:
    """One seed each: eight times the GPUs with as many failures, and with eight times as many."""
    fleet, large = Fleet(GPUS, DOMAIN), Fleet(8 * GPUS, DOMAIN)
    few = failures(large, RATE_PER_GPU_DAY / 8)
    return [
        Load(f"{GPUS} GPUs", fleet, failures(fleet), policies(), 1, 1),
        Load(f"{8 * GPUS} GPUs, as many failures", large, few, policies(), 1, 1),
        Load(f"{8 * GPUS} GPUs, as high a rate", large, failures(large), policies(), 1, 1),
    ]


def measure(load: Load, *, cold: bool) -> Took:
    if cold:
        book.cache_clear()
    before_s, began_s = _cpu_s(), time.perf_counter()
    run(load.fleet, load.source, load.policies, range(load.seeds), load.jobs)
    return Took(time.perf_counter() - began_s, _cpu_s() - before_s)


def table(title: str, loads: Sequence[Load], repeat: int, *, cold: bool) -> Table:
    shown = Table("workload", "first s", "wall s", "cpu s", "aim s", title=title)
    for load in loads:
        took = [measure(load, cold=cold) for _ in range(repeat)]
        aim = f"{load.at_most_s:g}" if load.at_most_s else ""
        first, wall, cpu = took[0].wall_s, _median(took, _wall), _median(took, _cpu)
        shown.add_row(load.name, f"{first:.2f}", f"{wall:.3f}", f"{cpu:.3f}", aim)
    return shown


def _median(took: Sequence[Took], of: Callable[[Took], float]) -> float:
    return statistics.median(of(one) for one in took)


def _wall(took: Took) -> float:
    return took.wall_s


def _cpu(took: Took) -> float:
    return took.cpu_s


def _processes() -> list[psutil.Process]:
    me = psutil.Process()
    return [me, *me.children(recursive=True)]


def _cpu_s() -> float:
    times = [process.cpu_times() for process in _processes()]
    return sum(t.user + t.system for t in times)


def peak_mb() -> float:
    """The peaks of all processes, added up: no less than what was used at any one time."""
    peak_kb = 0
    for process in _processes():
        status = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
        found = re.search(r"VmHWM:\s+(\d+) kB", status)
        peak_kb += int(found[1]) if found else 0
    return peak_kb / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=100)
    given = parser.parse_args()
    console = Console()
    title = f"a year, 4 policies, {given.seeds} seeds, {given.jobs} jobs, {GPUS} GPUs"
    console.print(table(title, loads(given.seeds, given.jobs), given.repeat, cold=True))
    console.print(f"memory at most {peak_mb():.0f} MB, all processes (aim 500 MB)")
    console.print(table("growth, one seed, 4 policies", growth(), given.repeat, cold=False))


if __name__ == "__main__":
    main()
