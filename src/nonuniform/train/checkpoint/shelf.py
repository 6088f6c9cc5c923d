"""The folder of a job's checkpoints: published as a whole, found again, damaged ones passed over.

In: parts that ranks have written into a `part_folder`. Out: `step-00000040/`
and a link `latest` to the newest. DESIGN "Generations" (the last checkpoint). Knows nothing of
ranks or of when a checkpoint is due. One process at a time may write to a shelf.

    step-00000040.g3.part   being written, in generation 3: worthless until renamed, see `sweep`
    step-00000040           whole: manifest, torch's metadata and all files were forced to disk
    step-00000040.replaced  stood where another one of the same step is being put; whole
    step-00000040.gone      being removed

A crash leaves any of these, and all of them are either whole or not taken for a checkpoint.
"""

from __future__ import annotations

import os
import re
import shutil
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from nonuniform.errors import RunFailed
from nonuniform.layout.cuts import ModelPlan
from nonuniform.train.checkpoint.durable import (
    crc32_of,
    replace_link,
    sync_folder,
    unfinished,
    write_file,
)
from nonuniform.train.checkpoint.identity import Identity
from nonuniform.train.checkpoint.manifest import Manifest, check_cover
from nonuniform.train.checkpoint.part import Part, PartFile

__all__ = ["LATEST", "MANIFEST", "TOO_LATE", "Checkpoint", "Identity", "Shelf", "read_manifest"]

LATEST, MANIFEST, METADATA, RESCUE = "latest", "manifest.json", ".metadata", "rescue"
TOO_LATE = "not complete when the run went back to an earlier one"
_PART, _REPLACED, _GONE = ".part", ".replaced", ".gone"
_NAME = re.compile(r"step-([0-9]{8,18})((?:\.g[0-9]+)?(?:\.[a-z]+)?)")


@dataclass(frozen=True)
class Checkpoint:
    """A published checkpoint; `path` is its folder."""

    path: Path
    manifest: Manifest

    @property
    def step(self) -> int:
        return self.manifest.step

    @property
    def validated(self) -> int:
        return self.manifest.validated

    @property
    def identity(self) -> Identity:
        return self.manifest.identity


def read_manifest(folder: Path) -> Manifest:
    """ValueError or OSError where it is not as it was written; looks at no other file."""
    try:
        return Manifest.from_bytes((folder / MANIFEST).read_bytes())
    except ValueError as error:
        raise ValueError(f"{MANIFEST}: {error}") from None


def _name(step: int) -> str:
    return f"step-{step:08d}"


class Shelf:
    """The newest `keep` checkpoints of one run. Publishing and `newest` may run in threads."""

    def __init__(self, folder: Path, keep: int) -> None:
        assert keep >= 1, f"keep = {keep}"
        self.folder = folder
        self.keep = keep
        self._lock = threading.Lock()

    def part_folder(self, step: int, generation: int = 0) -> Path:
        """Where the parts of a checkpoint are written. Attempts of different generations never meet
        in one: what a late rank still writes of an earlier one belongs to nothing."""
        return self._path(step, _attempt(generation))

    def open_part_folder(self, step: int, generation: int = 0) -> Path:
        """An empty folder for the parts of a checkpoint."""
        self.discard(step, generation)
        path = self.part_folder(step, generation)
        path.mkdir(parents=True)
        return path

    def discard(self, step: int, generation: int = 0) -> None:
        """Remove an unfinished checkpoint, if there is one."""
        _remove(self.part_folder(step, generation))

    def complete(
        self,
        step: int,
        validated: int,
        identity: Identity,
        parts: Sequence[Part],
        plan: ModelPlan,
        generation: int = 0,
        wanted: Callable[[], bool] = lambda: True,
    ) -> Checkpoint:
        """Publish what the parts make up. RunFailed where they lack or repeat something, OSError
        where the disk does not take it; then `discard` may be called or the parts be mended.
        `wanted` is asked last, when all is written: RunFailed where it says no."""
        for part in parts:
            if part.step != step:
                raise RunFailed(f"checkpoint of step {step}: GPU {part.gpu} wrote step {part.step}")
        check_cover(plan, parts, identity.dtype)
        files = tuple(file for part in parts for file in part.files)
        folder = self.part_folder(step, generation)
        _check_sizes(folder, files)
        manifest = _describe(folder, Description(step, validated, identity), parts)
        with self._lock:
            if not wanted():
                raise RunFailed(f"checkpoint of step {step}: {TOO_LATE}")
            self._publish(step, folder)
            replace_link(self.folder / LATEST, _name(step))
            self._prune(step)
        return Checkpoint(self._path(step), manifest)

    def _publish(self, step: int, folder: Path) -> None:
        """A folder cannot be renamed over another one, so an older one of the same step (of a run
        that started anew) steps aside first; in between it is still found under its other name."""
        path, aside = self._path(step), self._path(step, _REPLACED)
        if path.exists():
            _remove(aside)
            os.rename(path, aside)
        os.rename(folder, path)
        sync_folder(self.folder)
        _remove(aside)

    def _prune(self, newest: int) -> None:
        """Those of later steps go too: this run has not come that far, so they are not of it.

        What cannot be removed stays until the next time; the new checkpoint is whole anyway.
        """
        steps = sorted((step for step, _ in self._published()), reverse=True)
        kept = [step for step in steps if step <= newest][: self.keep]
        for step in steps:
            if step in kept:
                continue
            try:
                # At once out of sight: a half removed folder would look like a damaged checkpoint.
                os.rename(self._path(step), self._path(step, _GONE))
            except OSError:
                continue
            _remove(self._path(step, _GONE))

    def newest(self) -> tuple[Checkpoint | None, tuple[tuple[str, str], ...]]:
        """The newest checkpoint of which every byte is as it was written, and (name, reason) of the
        newer ones that are not. Reads all of its files."""
        rejected: list[tuple[str, str]] = []
        with self._lock:
            published = sorted(self._published(), reverse=True)
        for step, path in published:
            try:
                return Checkpoint(path, _verified(path, step)), tuple(rejected)
            except OSError as error:
                name = Path(str(error.filename or path)).name
                rejected.append((path.name, f"{name}: {error.strerror or error}"))
            except ValueError as error:
                rejected.append((path.name, str(error)))
        return None, tuple(rejected)

    def prepare(self) -> None:
        """OSError where no checkpoint could be written, before a run depends on it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        probe = self.folder / ".probe"
        probe.touch()
        probe.unlink()

    def steps(self) -> tuple[int, ...]:
        """Of the published checkpoints, ascending; whether they can be read is not looked at."""
        return tuple(sorted(step for step, _ in self._published()))

    def clear(self) -> None:
        """Remove all checkpoints: the run starts anew."""
        for step, ending in sorted(self._found()):
            _remove(self._path(step, ending))
        for rescue in self.folder.glob(f"{RESCUE}*"):
            shutil.rmtree(rescue, ignore_errors=True)
        (self.folder / LATEST).unlink(missing_ok=True)

    def sweep(self) -> None:
        """Clear away what a crash left: call it when a run starts, before anything else."""
        unfinished(self.folder / LATEST).unlink(missing_ok=True)
        for step, ending in sorted(self._found()):
            path = self._path(step, ending)
            if ending == _REPLACED and not self._path(step).exists():
                os.rename(path, self._path(step))
            elif ending.endswith((_PART, _GONE, _REPLACED)):
                _remove(path)

    def _path(self, step: int, ending: str = "") -> Path:
        return self.folder / (_name(step) + ending)

    def _found(self) -> Iterator[tuple[int, str]]:
        """(step, ending) of every folder that is ours."""
        try:
            names = os.listdir(self.folder)
        except FileNotFoundError:
            return
        for name in names:
            match = _NAME.fullmatch(name)
            if match and _name(int(match[1])) + (match[2] or "") == name:
                yield int(match[1]), match[2] or ""

    def _published(self) -> Iterator[tuple[int, Path]]:
        found = set(self._found())
        for step, ending in found:
            if ending == "" or (ending == _REPLACED and (step, "") not in found):
                yield step, self._path(step, ending)


@dataclass(frozen=True)
class Description:
    """What a manifest says besides the files."""

    step: int
    validated: int
    identity: Identity


def _describe(folder: Path, about: Description, parts: Sequence[Part]) -> Manifest:
    """Write both descriptions into the folder of the parts and force them to disk."""
    from nonuniform.train.checkpoint.dcp import metadata_bytes  # slow to import: see there

    items = tuple(
        sorted(
            (item for part in parts for item in part.items),
            key=lambda item: (item.fqn, item.offsets),
        )
    )
    metadata = metadata_bytes(items)
    described = PartFile(METADATA, len(metadata), zlib.crc32(metadata))
    files = sorted((file for part in parts for file in part.files), key=lambda file: file.name)
    manifest = Manifest(about.step, about.validated, about.identity, (*files, described), items)
    write_file(folder / METADATA, metadata)
    write_file(folder / MANIFEST, manifest.to_bytes())
    sync_folder(folder)
    return manifest


def _attempt(generation: int) -> str:
    return f".g{generation}{_PART}" if generation else _PART


def _check_sizes(folder: Path, files: Sequence[PartFile]) -> None:
    for file in files:
        try:
            size = (folder / file.name).stat().st_size
        except FileNotFoundError:
            raise RunFailed(
                f"{folder / file.name}: not there, {file.bytes} bytes expected"
            ) from None
        if size != file.bytes:
            raise RunFailed(f"{folder / file.name}: {size} bytes, expected {file.bytes}")


def _verified(folder: Path, step: int) -> Manifest:
    """The manifest, once every file was found to be as it says; ValueError or OSError if not."""
    manifest = read_manifest(folder)
    if manifest.step != step:
        raise ValueError(f"{MANIFEST}: of step {manifest.step}")
    for file in manifest.files:
        size = (folder / file.name).stat().st_size
        if size != file.bytes:
            raise ValueError(f"{file.name}: {size} bytes, written were {file.bytes}")
        if crc32_of(folder / file.name) != file.crc32:
            raise ValueError(f"{file.name}: its bytes do not match their checksum")
    return manifest


def _remove(folder: Path) -> None:
    """Best effort: what is left is under a name that nobody takes for a checkpoint."""
    shutil.rmtree(folder, ignore_errors=True)
