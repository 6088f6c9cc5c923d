"""What ranks write by themselves when nobody is left to tell them who writes what.

In: a rank's snapshots, and whatever else must not be lost. Out: files in `rescue/` that each stand
for themselves, found again later and made a checkpoint of. DESIGN "Generations": the launcher is
gone, the state is not. Units may come several times, and one of each is taken. Ranks may be a step
apart; the newest step of which all units are there counts.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from nonuniform.errors import RunFailed
from nonuniform.layout.cuts import ModelPlan
from nonuniform.train.checkpoint.durable import crc32_of, replace_file, sealed, unsealed
from nonuniform.train.checkpoint.identity import Identity
from nonuniform.train.checkpoint.manifest import check_cover
from nonuniform.train.checkpoint.part import Part, Snapshot, file_stem, write_part
from nonuniform.train.checkpoint.shelf import RESCUE, Checkpoint, Shelf

INCOMPLETE = "rescue-incomplete"


class Rescued(NamedTuple):
    """`parts` are cut down to what is used of them; `extras` belong to them one by one."""

    step: int
    parts: list[Part]
    extras: list[dict[str, Any]]


def write_rescue(folder: Path, snapshot: Snapshot, gpu: str, extra: Mapping[str, Any]) -> None:
    """Write one rank's part; it counts once its description is there, which comes last.

    OSError if the disk does not take it; then nothing of it is left.
    """
    rescue = folder / RESCUE
    rescue.mkdir(parents=True, exist_ok=True)
    description = rescue / f"{file_stem(snapshot.step, gpu)}.json"
    description.unlink(missing_ok=True)
    part = write_part(snapshot, rescue, gpu, by_unit=True)
    try:
        replace_file(description, sealed({"part": part.to_json(), "extra": dict(extra)}))
    except BaseException:
        for file in part.files:
            with suppress(OSError):
                (rescue / file.name).unlink(missing_ok=True)
        raise


def find_rescued(folder: Path, plan: ModelPlan) -> Rescued | None:
    """The newest step that is complete over the ranks. Damaged parts count as not there."""
    by_step: dict[int, list[tuple[Part, dict[str, Any]]]] = {}
    for part, extra in _descriptions(folder / RESCUE):
        by_step.setdefault(part.step, []).append((part, extra))
    for step in sorted(by_step, reverse=True):
        whole = [found for found in by_step[step] if _is_whole(folder / RESCUE, found[0])]
        chosen = _choose(whole)
        parts = [part for part, _ in chosen]
        try:
            check_cover(plan, parts)
        except RunFailed:
            continue
        return Rescued(step, parts, [extra for _, extra in chosen])
    return None


def rescued_identity(folder: Path) -> Identity | None:
    """Of the job whose ranks have rescued something, complete or not."""
    for _, extra in _descriptions(folder / RESCUE):
        with suppress(ValueError, LookupError, TypeError):
            return Identity.from_json(extra["identity"])
    return None


def set_aside(folder: Path) -> bool:
    """Put what is not complete where nobody takes it for a rescue, and nobody loses it either;
    whether there was anything."""
    if not (folder / RESCUE).exists():
        return False
    shutil.rmtree(folder / INCOMPLETE, ignore_errors=True)
    os.rename(folder / RESCUE, folder / INCOMPLETE)
    return True


def adopt_rescued(
    shelf: Shelf, found: Rescued, validated: int, identity: Identity, plan: ModelPlan
) -> Checkpoint:
    """Make a checkpoint of what `find_rescued` found in the shelf's folder, and clear the rest.

    The files get a second name first, so until the checkpoint is published the rescue is whole.
    For a rescue that is newer than `shelf.newest()`: checkpoints of later steps are removed.
    """
    target = shelf.open_part_folder(found.step)
    for part in found.parts:
        for file in part.files:
            _link_or_copy(shelf.folder / RESCUE / file.name, target / file.name)
    checkpoint = shelf.complete(found.step, validated, identity, found.parts, plan)
    drop_rescued(shelf.folder)
    return checkpoint


def drop_rescued(folder: Path) -> None:
    """Remove everything that ranks have rescued."""
    shutil.rmtree(folder / RESCUE, ignore_errors=True)


def _descriptions(rescue: Path) -> Iterator[tuple[Part, dict[str, Any]]]:
    """By name, so that the choice among equal parts is always the same."""
    for path in sorted(rescue.glob("step-*.json")):
        with suppress(OSError, ValueError, LookupError):
            content = unsealed(path.read_bytes())
            yield Part.from_json(content["part"]), content["extra"]


def _is_whole(rescue: Path, part: Part) -> bool:
    try:
        return all(
            (rescue / file.name).stat().st_size == file.bytes
            and crc32_of(rescue / file.name) == file.crc32
            for file in part.files
        )
    except OSError:
        return False


def _choose(
    found: Sequence[tuple[Part, dict[str, Any]]],
) -> list[tuple[Part, dict[str, Any]]]:
    """Every box from the first part that has it, the largest parts first: few files are used."""
    taken: set[tuple[str, tuple[int, ...]]] = set()
    chosen = []
    for part, extra in sorted(found, key=lambda entry: -len(entry[0].items)):
        items = tuple(item for item in part.items if (item.fqn, item.offsets) not in taken)
        taken |= {(item.fqn, item.offsets) for item in items}
        if items:
            chosen.append((replace(part, items=items), extra))
    return chosen


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # a file system without hard links
        shutil.copyfile(source, target)
        with open(target, "rb") as file:
            os.fsync(file.fileno())
