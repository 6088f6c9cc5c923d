"""One failure, several ways to live with it: runs them in turn and prints one table.

In: names of rivals, how often, a scratch folder. Out: a table with median and range of each
figure and its ratio to ours. The runtimes take turns in every round, so that a machine that
gets busier meets all of them.
"""

from __future__ import annotations

import importlib.util
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rivals import our_runs
from rivals.aims import Aim, tell_aims
from rivals.outcome import WINDOW_S, Commit, Outcome, outcome
from rivals.small_job import DEGREE, LIVING, REPLICAS, SEQUENCES, VICTIM, Times, small_job

from nonuniform.config import load_job
from nonuniform.train.session import job_plan

Runner = Callable[[Path, Times], tuple[list[Commit], int]]
OURS = "nonuniform"
RIVALS = ("restart", "torchft")
WIDTH, TRIES = 140, 3


@dataclass(frozen=True)
class Figure:
    """One row of the table."""

    name: str
    value: Callable[[Outcome], float]
    digits: int = 2
    ratio: bool = False


FIGURES = (
    Figure("undisturbed step, s", lambda o: o.step_s, 3),
    Figure("from commit to commit across the failure, s", lambda o: o.gap_s, 3, ratio=True),
    Figure("pause: that less a step afterwards, s", lambda o: o.pause_s, 3, ratio=True),
    Figure("pause without the steps done again, s", lambda o: o.pause_only_s, 3, ratio=True),
    Figure(
        "across the failure, less an undisturbed step, s", lambda o: o.over_usual_s, 3, ratio=True
    ),
    Figure("steps done again", lambda o: o.redone, 0),
    Figure("living GPUs' worth of idling afterwards", lambda o: o.idle_gpus),
    Figure(f"GPU-s lost in {WINDOW_S:.0f} s, living GPUs", lambda o: o.lost_gpu_s, 1, ratio=True),
    Figure(f"GPU-s lost in {WINDOW_S:.0f} s, the dead GPU", lambda o: WINDOW_S, 1),
    Figure("samples missing in each step, %", lambda o: 100 * o.lost_share, 0),
    Figure(f"samples lost in {WINDOW_S:.0f} s (extrapolated)", lambda o: o.lost_samples, 0),
    Figure("step afterwards, s", lambda o: o.step_after_s, 3),
    Figure("measured after the pause, s", lambda o: o.measured_s, 1),
)


PAUSE_OF_TORCHFT, LOST_OF_TORCHFT, TIMES_FASTER = 1.2, 0.5, 8.0


def compare(rivals: Sequence[str], repeat: int, folder: Path) -> int:
    """Prints the table; 0 if the aims are met, else 1."""
    console = Console(width=None if sys.stdout.isatty() else WIDTH, highlight=False)
    _tell_job(console, folder)
    runners = _runners(rivals, folder, console)
    found: dict[str, list[Outcome]] = {name: [] for name in runners}
    for turn in range(repeat):
        for name, runner in runners.items():
            # In every round at another moment of the step: what is under way then differs.
            times = Times(phase=(turn + 0.5) / repeat)
            place = folder / f"{name.split(' (')[0].replace(' ', '-')}-{turn}"
            found[name].append(_measure(runner, place, times, console))
            console.print(f"round {turn + 1} of {repeat}, {name}: {_line(found[name][-1])}")
    console.print(_table(found, repeat))
    console.print(_notes(Times()))
    return tell_aims(console, list(_aims(found)))


def _aims(found: Mapping[str, Sequence[Outcome]]) -> Iterator[Aim]:
    def middle(name: str, value: Callable[[Outcome], float]) -> float:
        return statistics.median(map(value, found[name]))

    if "restart" in found:
        ours, theirs = (middle(name, lambda o: o.pause_only_s) for name in (OURS, "restart"))
        yield Aim("pause as part of a restart's", ours / theirs, 1.0 / TIMES_FASTER)
    if best := next((name for name in found if name.startswith("torchft")), None):
        ours, theirs = (middle(name, lambda o: o.pause_s) for name in (OURS, best))
        yield Aim(f"pause beside {best}", ours / theirs, PAUSE_OF_TORCHFT)
        ours, theirs = (middle(name, lambda o: o.lost_gpu_s) for name in (OURS, best))
        yield Aim(f"GPU-s lost beside {best}", ours / theirs, LOST_OF_TORCHFT)


def _measure(runner: Runner, place: Path, times: Times, console: Console) -> Outcome:
    """A run that went wrong by itself is said so and done again, not counted."""
    for attempt in range(1, TRIES + 1):
        try:
            return outcome(*runner(place / f"try-{attempt}", times))
        except (RuntimeError, TimeoutError, ValueError) as error:
            console.print(f"{place.name}, try {attempt} of {TRIES}: {error}")
    raise SystemExit(f"{place.name}: no run of {TRIES} could be measured")


def _runners(rivals: Sequence[str], folder: Path, console: Console) -> dict[str, Runner]:
    """By column; a rival that cannot run here is said so and left out."""
    runners: dict[str, Runner] = {OURS: our_runs.run_live}
    if "restart" in rivals:
        if our_runs.can_resume():
            runners["restart"] = our_runs.run_restart
        else:
            console.print("restart: left out, `nonuniform train` has no --resume here")
    if "torchft" in rivals:
        if importlib.util.find_spec("torchft"):
            runners |= _torchft_runners(folder, console)
        else:
            console.print("torchft: left out, it is not installed: pip install '.[torchft]'")
    return runners


def _torchft_runners(folder: Path, console: Console) -> dict[str, Runner]:
    """At its best on this machine, and as it comes."""
    from rivals.torchft_run import DEFAULT_MS, lowest_stable, run_with_failure

    best_ms, shown = lowest_stable(folder, Times().steps)
    for line in shown:
        console.print(f"torchft, heartbeat timeout {line}")

    def at(timeout_ms: int) -> Runner:
        return lambda place, times: run_with_failure(place, times, timeout_ms)

    runners = {f"torchft {best_ms} ms": at(best_ms)}
    if best_ms != DEFAULT_MS:
        runners[f"torchft {DEFAULT_MS} ms (default)"] = at(DEFAULT_MS)
    return runners


def _table(found: dict[str, list[Outcome]], repeat: int) -> Table:
    title = f"one GPU of {LIVING + 1} dies and stays away: median [range] of {repeat}"
    table = Table(title=escape(title))
    table.add_column("")
    for name in found:
        table.add_column(name, justify="right")
        if name != OURS:
            table.add_column(": ours", justify="right")
    for figure in FIGURES:
        cells = []
        ours = statistics.median(map(figure.value, found[OURS]))
        for name, outcomes in found.items():
            values = [figure.value(one) for one in outcomes]
            cells.append(_cell(values, figure.digits))
            if name != OURS:
                cells.append(_ratio(statistics.median(values), ours) if figure.ratio else "")
        table.add_row(figure.name, *cells)
    return table


def _cell(values: Sequence[float], digits: int) -> str:
    middle = f"{statistics.median(values):.{digits}f}"
    low, high = f"{min(values):.{digits}f}", f"{max(values):.{digits}f}"
    return middle if low == high else f"{middle} [{low}-{high}]"


def _ratio(value: float, ours: float) -> str:
    return f"{value / ours:.1f}x" if ours > 0 and value > 0 else "-"


def _line(one: Outcome) -> str:
    return f"pause {one.pause_s:.3f} s, step {one.step_s:.3f} s, {one.redone} steps done again"


def _tell_job(console: Console, folder: Path) -> None:
    path = folder / "JOB.toml"
    path.write_text(small_job(Times().steps), encoding="utf-8")
    plan = job_plan(load_job(path))
    parameters = sum(tensor.elements for tensor in plan.tensors)
    console.print(
        f"{parameters:,} parameters, {REPLICAS} replicas of degree {DEGREE}, "
        f"{SEQUENCES} sequences a step, AdamW in float32; "
        f"GPU {VICTIM} is killed (SIGKILL) in step {Times().kill_after + 1}"
    )


def _notes(times: Times) -> str:
    return f"""\
pause: from the last commit of the old membership to the first commit of the next that is new
  progress, less a step of those who are left, who do it again; seen from outside, the same way for
  all. Less an undisturbed step it flatters who has given up half of the processes: the others then
  have these cores to themselves. Restart: a checkpoint every {times.checkpoint_every} steps, so the
  steps since the last one count into the pause.
GPU-s lost: pause x {LIVING} living GPUs + the rest of {WINDOW_S:.0f} s x the idling.
  Counted, not timed, since all processes share this machine's cores: a GPU without a replica idles
  wholly, one whose replica has less to do for each GPU than the slowest in part (shares are whole
  sequences).
samples lost: what steps lack of the full batch, at the pace of the measured window, extrapolated to
  {WINDOW_S:.0f} s. It depends on the number of replicas: with R equal ones torchft loses 1/R.
torchft: one Manager for each rank; a replica (degree {DEGREE}) runs the same code as ours; the rest
  of it is killed as soon as one process is gone; a real agent needs longer."""
