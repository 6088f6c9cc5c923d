"""What the demo says, for a reader who meets nonuniform tensor parallelism for the first time.

In: the records of both runs and their comparison. Out: text and tables on a console.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from nonuniform.demo import job as demo_job
from nonuniform.errors import BadInput
from nonuniform.view import words
from nonuniform.view.compare import Comparison, Row, by_step
from nonuniform.view.observer import Record
from nonuniform.view.records import RunRecords, read_run

SAMPLE_EVERY = 10
AROUND = 1
WIDTH = 100


def introduction(console: Console) -> None:
    gpus = demo_job.REPLICAS * demo_job.DEGREE
    _title(console, "Losing GPUs without losing anything else")
    _paragraph(
        console,
        "Large models are trained by replicas: each is a group of GPUs that holds one copy of the "
        "model, every layer cut into as many pieces as the group has GPUs. When one of these GPUs "
        "dies, its whole replica usually stands still, or the whole job starts again from a "
        "checkpoint. With nonuniform tensor parallelism the hurt replica cuts its copy anew for "
        "the GPUs that are left and goes on with a smaller share of the batch. The others keep "
        "training at full width, the batch of every step stays complete, nobody restarts.",
    )
    _paragraph(
        console,
        f"Here {gpus} processes play {gpus} GPUs: {demo_job.REPLICAS} replicas of "
        f"{demo_job.DEGREE}. GPU 1/2 is number 2 of replica 1. They train a language model of "
        f"{demo_job.parameters():,} parameters for {demo_job.STEPS} steps. "
        f"{_script(demo_job.FAILS, 'is killed')}, {_script(demo_job.RETURNS, 'is back')}. Then "
        "the same job runs undisturbed. If no sample was lost or counted twice and no gradient "
        "went astray, both loss curves are the same but for rounding.",
    )


def chapter(console: Console, name: str, folder: Path) -> None:
    heading = {
        "with-failures": "First run: GPUs are killed and come back",
        "uninterrupted": "Second run: the same job, undisturbed",
    }
    _title(console, heading.get(name, name))
    console.print(Text(f"Files in {folder}", style="dim"), soft_wrap=True)


def stopped(console: Console, folder: Path) -> None:
    """Why a run of the demo could not go on, in its own words."""
    try:
        reason = str(read_run(folder).summary.get("reason") or "")
    except BadInput:
        reason = ""
    why = reason or "it left no reason"
    console.print(Text(f"The run in {folder} could not go on: {why}"), soft_wrap=True)


def losses(console: Console, ours: RunRecords, compared: Comparison) -> None:
    """Some rows of the curve, and every row around an incident."""
    _title(console, "Both loss curves, side by side")
    notes = _notes(ours)
    records = by_step(ours.steps)
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name in ("step", "with failures", "uninterrupted", "difference"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("degrees", no_wrap=True)
    table.add_column("")
    last = None
    for row in compared.rows:
        if not _shown(row.step, notes, compared):
            continue
        if last is not None and row.step > last + 1:
            table.add_row(*["[dim].[/dim]"] * 4)
        last = row.step
        table.add_row(
            str(row.step),
            f"{row.left:.6f}",
            f"{row.right:.6f}",
            _difference(row),
            " ".join(str(degree) for degree in records[row.step].get("degrees", ())),
            "; ".join(notes.get(row.step, ())),
        )
    console.print(table)
    for row in compared.validation:
        console.print(
            f"validation after step {row.step}: {row.left:.6f} and {row.right:.6f}, "
            f"difference {_difference(row)}",
            highlight=False,
        )


def recoveries(console: Console, ours: RunRecords) -> None:
    """How long the run paused each time, part by part."""
    _title(console, "How long training paused")
    rows = [event for event in ours.events if event.get("kind") in ("recovery", "joined")]
    if not rows:
        console.print("The run recorded no recovery.")
        return
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name in ("GPU", "step", "notice", "regroup", "move", "data moved", "redo", "in all"):
        table.add_column(name, justify="right", no_wrap=True)
    for record in rows:
        times = [_time(record, key) for key in words.TIMINGS]
        table.add_row(
            str(record.get("gpu") or "-"),
            "-" if record.get("step") is None else str(record["step"]),
            *times[:3],
            words.data_size(float(record.get("transfer_bytes") or 0)),
            times[3],
            words.duration(words.pause_s(record)),
        )
    console.print(table)
    _paragraph(
        console,
        "notice: until the survivors know; regroup: agree on who works with whom; move: fetch the "
        "pieces of the model that are missing from GPUs that hold a copy; redo: compute the "
        "interrupted step again. A GPU that is back warms up beside the run, so its start-up is "
        "not in here.",
    )


def verdict(console: Console, ours: RunRecords, compared: Comparison, tolerance: float) -> bool:
    """Says in words what the numbers show; True when the curves agree up to rounding."""
    _title(console, "What this shows")
    largest = compared.largest
    if largest is None:
        console.print("The runs have no step in common.")
        return False
    agree = largest.difference <= tolerance and compared.same_steps
    distance = f"{largest.difference:.1e} (step {largest.step}, loss {largest.right:.4f})"
    if agree:
        ids = " (compared by their ids)" if compared.sample_ids_compared else ""
        samples = sum(int(record.get("samples", 0)) for record in ours.steps)
        _point(console, f"The losses of the two runs differ by at most {distance}: rounding.")
        _point(
            console,
            f"All {len(compared.rows)} steps were committed once in both runs, with the same "
            f"{samples:,} samples{ids}.",
        )
    else:
        _point(console, f"The runs do NOT agree; the largest difference is {distance}.")
        for complaint in _complaints(compared):
            _point(console, complaint)
    for line in _lasting(ours):
        _point(console, line)
    return agree


def files(console: Console, out: Path, picture: Path, hint: str | None) -> None:
    _title(console, "Look at it")
    seen = f"picture  {picture}: losses, degrees, distance of the losses"
    console.print(Text(hint or seen), soft_wrap=True)
    console.print(Text(f"job      {out / 'JOB.toml'}"), soft_wrap=True)
    console.print(Text("again    with your own job and your own failures:"), soft_wrap=True)
    flags = f'--fail "{demo_job.FAILS[0].flag}"'
    command = f"nonuniform train {out / 'JOB.toml'} --out DIR {flags}"
    console.print(Text(f"         {command}"), soft_wrap=True)
    _paragraph(
        console,
        "Speed means little here: the processes share the cores of one machine, so a lost one "
        "leaves more for the others. Only the pauses and the losses tell something.",
    )


def _difference(row: Row) -> str:
    return f"{row.difference:.1e}" if row.difference else "0"


def _time(record: Record, key: str) -> str:
    time_s = float(record.get(key) or 0.0)
    return words.duration(time_s) if time_s else "-"


def _script(incidents: Iterable[demo_job.Incident], what: str) -> str:
    return " and ".join(f"GPU {i.gpu} {what} at step {i.step}" for i in incidents)


def _notes(ours: RunRecords) -> dict[int, list[str]]:
    """By step, what to say beside its row."""
    say = {"failed": "lost", "returned": "back, warms up", "joined": "joined"}
    notes: dict[int, list[str]] = {}
    for event in ours.of_kind(*say):
        notes.setdefault(int(event["step"]), []).append(f"{event['gpu']} {say[event['kind']]}")
    return notes


def _shown(step: int, notes: dict[int, Any], compared: Comparison) -> bool:
    ends = (compared.rows[0].step, compared.rows[-1].step)
    near = any(abs(step - noted) <= AROUND for noted in notes)
    return near or step in ends or step % SAMPLE_EVERY == 0


def _complaints(compared: Comparison) -> list[str]:
    cases = (
        (compared.only_left, "steps only the run with failures committed"),
        (compared.only_right, "steps only the uninterrupted run committed"),
        (compared.twice, "steps committed twice"),
        (compared.other_samples, "steps with other samples"),
    )
    return [f"{what}: {', '.join(map(str, steps[:8]))}" for steps, what in cases if steps]


def _lasting(ours: RunRecords) -> list[str]:
    pauses = [words.pause_s(event) for event in ours.events if event.get("kind") == "recovery"]
    lines = []
    if pauses:
        longest = words.duration(max(pauses))
        often = "" if len(pauses) == 1 else f", each of the {len(pauses)} times"
        lines.append(f"After the loss of a GPU the next step came within {longest}{often}.")
    back = {str(event.get("gpu")) for event in ours.of_kind("joined")}
    late = [incident.gpu for incident in demo_job.RETURNS if incident.gpu not in back]
    if late:
        lines.append(f"{words.gpu_names(late)} had not joined yet when the run ended.")
    return lines


def _title(console: Console, text: str) -> None:
    console.print()
    console.print(Text(text, style="bold"))


def _paragraph(console: Console, text: str) -> None:
    console.print(Padding(Text(text), (1, 0, 0, 0)), width=min(WIDTH, console.width))


def _point(console: Console, text: str) -> None:
    grid = Table.grid(padding=(0, 1))
    grid.add_row("-", Text(text))
    console.print(grid, width=min(WIDTH, console.width))
