"""One run in which one blow is dealt, and what must be true of it afterwards.

In: a strike, what else happens in the run. Out: the run, checked. Every wait has a bound. Knows
nothing of how the blow is dealt.
"""

from __future__ import annotations

import json
import math
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from means.cells import PRIOR, Cell
from means.strikes import MEMORY_CGROUPS, SAMPLES, Strike, mark_of, strike_folder

STEPS = 12
BRIEF_STEPS = 9  # enough where nothing has to be written or to come back after the blow
STRIKE_STEP = 5
PRIOR_STEP = 2
RETURN_STEP = 4
EVERY = 3  # checkpoints, validations
HANG_S = 3.0
START_S = 12.0  # nine processes that start at once on two busy cores need some of it
CALM_S = 30.0  # where nobody hangs nobody may be given up because the machine is busy
BOUND_S = 120.0
SLACK_S = 1.0
RECOVERIES = 5.0
SLACK_MOST_S = 10.0
AROUND = (str(Path(__file__).parents[1]), "means.around", "striking")
WITHOUT_FENCE = (*AROUND[:2], "striking_without_fence")

JOB: dict[str, dict[str, Any]] = {
    "model": {"layers": 2, "hidden": 48, "heads": 12, "kv_heads": 4, "ffn": 128},
    "parallel": {"replicas": 3, "degree": 3},
    "batch": {"sequences": 9, "length": 16},
    "run": {"steps": STEPS, "hang_timeout_s": CALM_S, "val_every": EVERY, "val_sequences": 9},
}


@dataclass(frozen=True)
class Bout:
    """`run` is over; `strike_folder` holds the marks."""

    run: Any
    strike: Strike

    @property
    def marks(self) -> Path:
        return strike_folder(self.run.folder)

    def struck_s(self, started_s: float) -> float:
        """When the last victim was struck, on the clock of the run's files."""
        times = [(self.marks / mark_of(gpu)).stat().st_mtime for gpu in self.strike.victims]
        return max(times) - started_s

    def failed(self) -> set[str]:
        return {event["gpu"] for event in self.run.of_kind("failed")}


def job_of(lab: Any, **changes: Mapping[str, Any]) -> Path:
    sections = set(JOB) | set(changes)
    merged = {name: {**JOB.get(name, {}), **changes.get(name, {})} for name in sections}
    return Path(lab.job(**merged))


def fight(
    lab: Any,
    strike: Strike,
    changes: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    fails: Sequence[str] = (),
    returns: Sequence[str] = (),
    during: Callable[[Any], None] | None = None,
    around: Sequence[str] = AROUND,
    bound_s: float = BOUND_S,
) -> Bout:
    """A run to its end, with the strike."""
    out = lab.out()
    strike.write(strike_folder(out))
    job = job_of(lab, **(changes or {}))
    try:
        run = lab.train(
            job,
            fails=fails,
            returns=returns,
            during=during,
            out=out,
            around=around,
            bound_s=bound_s,
        )
    finally:
        _tidy(strike_folder(out))
    return Bout(run, strike)


def _tidy(folder: Path) -> None:
    """Memory groups that victims made; empty once their process is gone."""
    for note in folder.glob("cgroup-*"):
        group = Path(note.read_text())
        if group.parent == MEMORY_CGROUPS and group.is_dir():
            group.rmdir()


# --- cells


def fight_cell(lab: Any, cell: Cell) -> Bout:
    strike = Strike(cell.gpus, cell.phase, cell.way, STRIKE_STEP, other=cell.other)
    changes: dict[str, dict[str, Any]] = {"run": {"steps": steps_of(cell)}}
    returns: list[str] = []
    fails = [f"{PRIOR}@{PRIOR_STEP}"]
    if cell.other:
        fails.append(f"{cell.other}@{STRIKE_STEP}")
    if cell.phase == "return":
        returns = [f"{PRIOR}@{RETURN_STEP}"]
        strike = replace(strike, joiner=PRIOR, hold_step=STRIKE_STEP, hold="warm")
    if cell.phase == "checkpoint":
        changes["checkpoint"] = {"every": EVERY}
    if cell.way == "stop":
        changes["run"]["hang_timeout_s"] = HANG_S
        if cell.phase == "start":
            changes["run"]["start_timeout_s"] = START_S
    return fight(lab, strike, changes, fails=fails, returns=returns)


def steps_of(cell: Cell) -> int:
    return STEPS if cell.phase in ("checkpoint", "return") else BRIEF_STEPS


def check_cell(bout: Bout, cell: Cell, elastic: Any, reference: Any) -> None:
    run = bout.run
    assert run.status == 0, f"{run.stderr}\n{story(bout)}"
    elastic.assert_same_training(run, reference, steps=steps_of(cell))
    assert_same_validations(run, reference, elastic.TOLERANCE, steps_of(cell))
    struck = {gpu for gpu in cell.gpus if (bout.marks / mark_of(gpu)).exists()}
    assert struck == set(cell.gpus), story(bout)
    check_samples(bout)
    check_who_went(bout, cell)
    check_pids(bout, cell)
    if cell.phase == "checkpoint":
        check_checkpoints(bout, cell)
    assert run.of_kind("stalled") == [], story(bout)
    if cell.way == "stop":
        check_times(bout, START_S if cell.phase == "start" else HANG_S)


def check_samples(bout: Bout) -> None:
    """What the replicas really trained on, in the generation that committed a step, is what the log
    says: as many times as it says."""
    trained: dict[tuple[int, int], dict[int, list[int]]] = {}
    for path in bout.marks.glob(f"{SAMPLES}-*"):
        for line in path.read_text().splitlines():
            generation, step, replica, ids = json.loads(line)
            by_replica = trained.setdefault((generation, step), {})
            assert by_replica.setdefault(replica, ids) == ids, "ranks of one replica differ"
    assert bout.run.steps
    for row in bout.run.steps:
        parts = trained[row["generation"], row["step"]]
        assert sorted(i for ids in parts.values() for i in ids) == sorted(row["sample_ids"])


def check_who_went(bout: Bout, cell: Cell) -> None:
    """Only the victims, and those whose loss was ordered."""
    ordered = {PRIOR} | ({cell.other} if cell.other else set())
    victims, failed = set(cell.gpus), bout.failed()
    run = bout.run
    if cell.way == "drain":
        assert failed == ordered, story(bout)
        assert {event["gpu"] for event in run.of_kind("drained")} == victims, story(bout)
        return
    if cell.phase == "checkpoint" and cell.way == "raise":
        assert failed == ordered, story(bout)  # a part that is not written costs no GPU
        return
    if cell.way == "raise" and cell.phase in ("reshard", "all-reduce"):
        # In a thread beside the work: where another victim's was heard first, the generation ended
        # before this one's came up, and nothing of it counts any more.
        assert ordered < failed <= ordered | victims, story(bout)
        return
    assert failed == ordered | victims, story(bout)


def check_pids(bout: Bout, cell: Cell) -> None:
    """Nobody was started anew but the GPU that was to return."""
    again = {gpu for gpu, pids in bout.run.pids().items() if len(pids) > 1}
    assert again == ({PRIOR} if cell.phase == "return" else set()), story(bout)


def check_checkpoints(bout: Bout, cell: Cell) -> None:
    """The one that was hurt is no checkpoint, and the next one is."""
    run = bout.run
    done = [event["step"] for event in run.of_kind("checkpoint")]
    failed = [event["step"] for event in run.of_kind("checkpoint_failed")]
    hurt = 2 * EVERY
    if cell.way == "drain":
        assert done == list(range(EVERY, STEPS + 1, EVERY)), story(bout)
    else:
        assert hurt in failed, story(bout)
        # On a busy machine a part may take longer than the steps to the next one.
        assert {3 * EVERY, STEPS} & set(done), story(bout)


def check_times(bout: Bout, limit_s: float) -> None:
    """A stopped process is found and survived in time. What a recovery costs on this machine now is
    known from the loss that was ordered: a busy machine gets that much more."""
    struck_s = bout.struck_s(start_of(bout.run))
    recoveries = bout.run.of_kind("recovery")
    after = next(event for event in recoveries if event["time_s"] > struck_s)
    cost_s = next(event["total_s"] for event in recoveries if event is not after)
    allowed_s = min(SLACK_MOST_S, max(SLACK_S, RECOVERIES * cost_s))
    took_s = after["time_s"] - struck_s
    print(f"struck and survived in {took_s:.2f} s, an ordered loss in {cost_s:.2f} s")  # noqa: T201
    assert took_s <= limit_s + allowed_s


def start_of(run: Any) -> float:
    """The moment from which `time_s` counts, on the clock of files: the summary says when it was
    written."""
    summary = run.folder / "summary.json"
    return float(summary.stat().st_mtime - run.summary["time_s"])


def assert_same_validations(run: Any, reference: Any, tolerance: float, steps: int) -> None:
    ours = run.of_kind("validation")
    theirs = [event for event in reference.of_kind("validation") if event["step"] <= steps]
    assert [event["step"] for event in ours] == [event["step"] for event in theirs]
    for event, expected in zip(ours, theirs, strict=True):
        assert math.isclose(event["loss"], expected["loss"], rel_tol=tolerance), event


def story(bout: Bout) -> str:
    """What a person needs to see why a bout went wrong."""
    run = bout.run
    lines = [f"{bout.strike}", f"summary: {run.summary}"]
    for event in run.events:
        where = f"{event['time_s']:.2f} g{event['generation']} s{event['step']}"
        lines.append(f"{where} {event['kind']} {event['gpu']}: {event['reason']}")
    for log in sorted((run.folder / "workers").glob("*.log")):
        said = log.read_text()[-600:]
        if said:
            lines.append(f"--- {log.name}\n{said}")
    return "\n".join(lines)


def resume_process(pid: int) -> None:
    os.kill(pid, signal.SIGCONT)
