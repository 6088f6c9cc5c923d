"""Where a run begins: at step 0, or after the newest checkpoint of the run in the folder.

In: the job and the folder of its checkpoints. Out: the position, the checkpoint to read, what to
tell, and lines of the step log that a launcher which died could not write any more. DESIGN
"Generations": what ranks wrote when their launcher was gone counts like a checkpoint, if it is
whole. Knows nothing of processes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nonuniform.errors import BadInput
from nonuniform.layout.cuts import ModelPlan
from nonuniform.protocol.record import LoggedStep, Position
from nonuniform.train.checkpoint.identity import Identity
from nonuniform.train.checkpoint.rescue import (
    INCOMPLETE,
    Rescued,
    adopt_rescued,
    drop_rescued,
    find_rescued,
    rescued_identity,
    set_aside,
)
from nonuniform.train.checkpoint.shelf import RESCUE, Shelf

START = Position(0, 0)


@dataclass(frozen=True)
class Beginning:
    """`load`: the name of a checkpoint, empty for none; `notes`: (kind, reason) to tell."""

    position: Position = START
    load: str = ""
    notes: tuple[tuple[str, str], ...] = ()
    steps: Mapping[int, LoggedStep] = field(default_factory=dict)


def find_beginning(shelf: Shelf, identity: Identity, plan: ModelPlan) -> Beginning:
    """The newest state that can be read. BadInput, and nothing is touched, if it is not that of
    this job, or if there are checkpoints and none can be read."""
    rescuer = rescued_identity(shelf.folder)
    if rescuer is not None:
        _check_identity(shelf.folder / RESCUE, rescuer, identity)
    found, rejected = shelf.newest()
    if found is not None:
        _check_identity(found.path, found.identity, identity)
    rescued = find_rescued(shelf.folder, plan)
    if found is None and rescued is None and rejected:
        raise BadInput(
            f"--resume: {shelf.folder}: none of {len(rejected)} checkpoints can be read, "
            f"{rejected[0][0]}: {rejected[0][1]}; --overwrite begins anew"
        )
    shelf.sweep()
    notes = [("checkpoint_rejected", f"{name}: {reason}") for name, reason in rejected]
    steps: Mapping[int, LoggedStep] = {}
    if rescued is not None and rescued.step > (found.step if found else 0):
        steps = _steps_of(rescued)
        found = adopt_rescued(shelf, rescued, _validated(rescued), identity, plan)
        text = f"the launcher was lost: its ranks had written step {found.step} themselves"
        notes.append(("rescued", text))
    elif rescued is not None:
        drop_rescued(shelf.folder)
    elif set_aside(shelf.folder):
        notes.append(("rescue_incomplete", f"some ranks wrote nothing: kept in {INCOMPLETE}"))
    if found is None:
        return Beginning(notes=(*notes, ("resumed", "no checkpoint: from the beginning")))
    notes.append(("resumed", f"going on after step {found.step} from checkpoint {found.path.name}"))
    position = Position(found.step, found.validated)
    return Beginning(position, found.path.name, tuple(notes), steps)


def _check_identity(where: Path, found: Identity, identity: Identity) -> None:
    complaint = found.complaint(identity)
    if complaint is not None:
        raise BadInput(f"--resume: {where}: {complaint}")


def _validated(rescued: Rescued) -> int:
    """By generation: before a return to an older checkpoint the run may have been further."""
    rows = [row for row in _rows(rescued.extras) if row["vote"]["step"] <= rescued.step]
    newest = max((row["vote"]["generation"] for row in rows), default=0)
    rows = [row for row in rows if row["vote"]["generation"] == newest]
    return max((int(row["validated"]) for row in rows), default=0)


def _steps_of(rescued: Rescued) -> dict[int, LoggedStep]:
    """The steps up to the rescued one, as any of the ranks remembers them."""
    found = {}
    for row in _rows(rescued.extras):
        known = LoggedStep.from_json(row)
        if known.vote.step <= rescued.step:
            found[known.vote.step] = known
    return found


def _rows(extras: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """By generation: a step that was dropped and done again is that of its last vote."""
    rows = [row for extra in extras for row in extra["steps"]]
    return sorted(rows, key=lambda row: (row["vote"]["step"], row["vote"]["generation"]))
