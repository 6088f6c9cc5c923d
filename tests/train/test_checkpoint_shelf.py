"""A checkpoint is there as a whole or not at all, and a damaged one is passed over by name."""

from __future__ import annotations

import builtins
import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from standins.checkpoints import identity, ranks, save, write_parts
from standins.shards import CPU, cut, plan_of, same_bits, some_whole

from nonuniform.errors import RunFailed
from nonuniform.layout.model_plan import ModelShape
from nonuniform.train.checkpoint import dcp  # noqa: F401 (its import opens files: not in a rehearsal)
from nonuniform.train.checkpoint.durable import sealed, unsealed
from nonuniform.train.checkpoint.load import load_shard
from nonuniform.train.checkpoint.part import Part
from nonuniform.train.checkpoint.shelf import Checkpoint, Shelf, read_manifest

TINY = ModelShape(layers=1, hidden=2, heads=2, kv_heads=1, head_dim=2, ffn=3, vocab=5, tied=True)
PLAN = plan_of(TINY, 2)
WHOLE = some_whole(PLAN, seed=2)
LATER = some_whole(PLAN, seed=3)
RANKS = ranks(2, 1)


def assert_holds(checkpoint: Checkpoint | None, whole: Any, step: int) -> None:
    assert checkpoint is not None
    assert checkpoint.step == step
    loaded = load_shard(checkpoint, PLAN, (1, 0), torch.float64, CPU)
    assert same_bits(loaded, cut(PLAN, whole, 1, 0, step))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_publishing(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path / "deep" / "folder", 2)
    assert shelf.newest() == (None, ())
    shelf.sweep()
    checkpoint = save(shelf, PLAN, WHOLE, RANKS, step=40)
    assert names(shelf.folder) == ["latest", "step-00000040"]
    assert os.readlink(shelf.folder / "latest") == "step-00000040"
    assert (checkpoint.step, checkpoint.validated) == (40, 39)
    assert checkpoint.identity == identity()
    assert shelf.newest() == (checkpoint, ())
    assert_holds(checkpoint, WHOLE, 40)


def test_the_newest_stay(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, 2)
    for step in (10, 20, 30, 100):
        save(shelf, PLAN, WHOLE, RANKS, step)
    assert names(tmp_path) == ["latest", "step-00000030", "step-00000100"]
    Shelf(tmp_path, 1).complete(
        110, 0, identity(), write_parts(shelf, PLAN, LATER, RANKS, 110), PLAN
    )
    assert names(tmp_path) == ["latest", "step-00000110"]
    assert_holds(shelf.newest()[0], LATER, 110)


def test_later_steps_are_not_of_a_run_that_has_not_come_that_far(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, 3)
    for step in (10, 20, 30):
        save(shelf, PLAN, WHOLE, RANKS, step)
    save(shelf, PLAN, LATER, RANKS, step=15)
    assert names(tmp_path) == ["latest", "step-00000010", "step-00000015"]
    assert_holds(shelf.newest()[0], LATER, 15)


def test_the_same_step_once_more_replaces(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, 3)
    save(shelf, PLAN, WHOLE, RANKS, step=10)
    save(shelf, PLAN, LATER, RANKS, step=10)
    assert names(tmp_path) == ["latest", "step-00000010"]
    assert_holds(shelf.newest()[0], LATER, 10)


def test_what_is_unfinished_is_removed(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, 2)
    save(shelf, PLAN, WHOLE, RANKS, step=10)
    write_parts(shelf, PLAN, WHOLE, RANKS, step=20)
    assert (tmp_path / "step-00000020.part").is_dir()
    assert list(shelf.open_part_folder(20).iterdir()) == []
    shelf.discard(20)
    shelf.discard(20)
    write_parts(shelf, PLAN, WHOLE, RANKS, step=30)
    (tmp_path / "step-00000005.gone").mkdir()
    (tmp_path / "step-5").mkdir()
    (tmp_path / "notes.part").mkdir()
    assert_holds(shelf.newest()[0], WHOLE, 10)
    shelf.sweep()
    assert names(tmp_path) == ["latest", "notes.part", "step-00000010", "step-5"]


def without(parts: list[Part], fqn: str) -> list[Part]:
    return [
        replace(part, items=tuple(item for item in part.items if item.fqn != fqn)) for part in parts
    ]


LACKING: dict[str, tuple[Callable[[list[Part]], list[Part]], str]] = {
    "a rank": (lambda parts: parts[1:], "lacks rows"),
    "a tensor": (
        lambda parts: without(parts, "norm.weight"),
        "norm.weight lacks rows 0 to 0 of 1",
    ),
    "a slot": (
        lambda parts: without(parts, "optimizer.state.norm.weight.exp_avg"),
        "optimizer.state.norm.weight.exp_avg lacks rows 0 to 0 of 1",
    ),
    "a repeated box": (
        lambda parts: [replace(part, items=part.items + part.items[:1]) for part in parts],
        "twice",
    ),
    "a repeated part": (lambda parts: [*parts, parts[0]], "4 files of 3 names"),
    "a strange tensor": (
        lambda parts: [
            replace(parts[0], items=(*parts[0].items, replace(parts[0].items[0], fqn="x"))),
            *parts[1:],
        ],
        "x is no tensor of the model",
    ),
    "a box beyond its file": (
        lambda parts: [
            replace(
                part, items=tuple(replace(item, offset=item.offset + 10**6) for item in part.items)
            )
            for part in parts
        ],
        "ends at byte",
    ),
    "another step": (
        lambda parts: [replace(parts[0], step=9), *parts[1:]],
        "checkpoint of step 10: GPU 0/0 wrote step 9",
    ),
    "another dtype": (
        lambda parts: [
            replace(part, items=tuple(replace(item, dtype="float32") for item in part.items))
            for part in parts
        ],
        "dtypes float32, float64 at once",
    ),
}


@pytest.mark.parametrize("change", LACKING.values(), ids=LACKING)
def test_parts_that_lack_or_repeat_something_are_refused(
    change: tuple[Callable[[list[Part]], list[Part]], str], tmp_path: Path
) -> None:
    shelf = Shelf(tmp_path, 2)
    parts = write_parts(shelf, PLAN, WHOLE, RANKS, step=10)
    with pytest.raises(RunFailed, match=change[1]):
        shelf.complete(10, 0, identity(), change[0](parts), PLAN)
    assert shelf.newest() == (None, ())
    assert_holds(shelf.complete(10, 0, identity(), parts, PLAN), WHOLE, 10)


def test_a_file_that_did_not_reach_the_folder_is_named(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, 2)
    parts = write_parts(shelf, PLAN, WHOLE, RANKS, step=10)
    file = tmp_path / "step-00000010.part" / parts[1].files[0].name
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])
    with pytest.raises(RunFailed, match=rf"{file.name}: {len(whole) - 1} bytes, expected"):
        shelf.complete(10, 0, identity(), parts, PLAN)
    file.unlink()
    with pytest.raises(RunFailed, match=rf"{file.name}: not there"):
        shelf.complete(10, 0, identity(), parts, PLAN)


class Killed(BaseException):
    """The process ends here: nothing that it would do afterwards has an effect."""


CALLS = ("open", "fsync", "rename", "replace", "symlink", "unlink", "rmdir", "mkdir", "link")


@contextmanager
def killed_at(monkeypatch: pytest.MonkeyPatch, number: int) -> Iterator[list[str]]:
    """The process ends at the call of this number; what was called, in order, is told."""
    called: list[str] = []

    def mortal(name: str, true: Callable[..., Any]) -> Callable[..., Any]:
        def call(*values: Any, **options: Any) -> Any:
            if len(called) >= number:
                raise Killed(name)
            called.append(name)
            return true(*values, **options)

        return call

    with monkeypatch.context() as patch:
        for name in CALLS:
            patch.setattr(os, name, mortal(name, getattr(os, name)))
        patch.setattr(builtins, "open", mortal("open()", builtins.open))
        yield called


def first(folder: Path, step: int) -> tuple[Shelf, list[Part]]:
    """A shelf with checkpoints of steps 10 and 20, and the parts of the next one."""
    shelf = Shelf(folder, 2)
    save(shelf, PLAN, WHOLE, RANKS, step=10)
    save(shelf, PLAN, WHOLE, RANKS, step=20)
    return shelf, write_parts(shelf, PLAN, LATER, RANKS, step)


@pytest.mark.parametrize("step", [20, 30], ids=["the same step", "a new step"])
def test_killed_at_any_point(step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start, parts = first(tmp_path / "start", step)

    def fresh(name: str) -> Shelf:
        return Shelf(shutil.copytree(start.folder, tmp_path / name, symlinks=True), 2)

    to_the_end = fresh("to the end")
    with killed_at(monkeypatch, 10**6) as called:
        to_the_end.complete(step, 0, identity(), parts, PLAN)
    # Both descriptions and the names in the folder are on disk before it gets its name, and that
    # before anything older is touched.
    assert called[: called.index("rename")].count("fsync") == 3
    assert "fsync" in called[called.index("rename") : called.index("rmdir")]
    assert {"replace", "symlink"} <= set(called)
    outcomes = []
    for number in range(len(called)):
        shelf = fresh(str(number))
        with killed_at(monkeypatch, number), pytest.raises(Killed):
            shelf.complete(step, 0, identity(), parts, PLAN)
        outcomes.append(assert_old_or_new(shelf, step))
        assert_goes_on(shelf, step)
    # Once it is there it stays there.
    assert outcomes == sorted(outcomes)
    assert set(outcomes) == {False, True}


def assert_old_or_new(shelf: Shelf, step: int) -> bool:
    """Whether the new one was published; anything in between is an error."""
    found, rejected = shelf.newest()
    assert rejected == ()
    assert found is not None
    if step != 20:  # where one steps aside for its like, the link waits for the sweep
        assert (shelf.folder / "latest" / "manifest.json").exists()
    is_new = found.validated == 0
    assert found.step == (step if is_new else 20)
    for folder in shelf.folder.glob("step-????????"):  # the older ones are whole, or not there
        assert {file.name for file in read_manifest(folder).files} < set(names(folder))
    return is_new


def assert_goes_on(shelf: Shelf, step: int) -> None:
    """The next start clears away what is half done, and the step can be saved again."""
    found = shelf.newest()[0]
    shelf.sweep()
    swept = shelf.newest()[0]
    assert found is not None
    assert swept is not None
    assert swept.manifest == found.manifest
    assert read_manifest(shelf.folder / "latest").step >= 20
    assert not [name for name in names(shelf.folder) if "." in name]
    assert_holds(save(shelf, PLAN, LATER, RANKS, step), LATER, step)
    assert os.readlink(shelf.folder / "latest") == f"step-{step:08d}"
    assert len(names(shelf.folder)) == 3


@pytest.mark.parametrize("name", ["fsync", "rename", "replace", "symlink"])
def test_a_disk_that_refuses_leaves_the_earlier_one(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf, parts = first(tmp_path, 30)

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, name, full)
        with pytest.raises(OSError, match="No space left"):
            shelf.complete(30, 0, identity(), parts, PLAN)
    shelf.discard(30)
    found = shelf.newest()[0]
    assert found is not None
    assert found.step == (20 if name in ("fsync", "rename") else 30)
    shelf.sweep()
    assert_holds(save(shelf, PLAN, LATER, RANKS, step=30), LATER, 30)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    shelf = Shelf(tmp_path_factory.mktemp("two"), 2)
    save(shelf, PLAN, WHOLE, RANKS, step=10)
    save(shelf, PLAN, LATER, RANKS, step=20)
    return shelf.folder


FILES = [
    "manifest.json",
    ".metadata",
    *(f"step-00000020-gpu-{gpu}.distcp" for gpu in ("0-0", "0-1", "1-0")),
]


def assert_passed_over(folder: Path, said: str) -> None:
    found, rejected = Shelf(folder, 2).newest()
    assert found is not None
    assert found.step == 10
    assert [name for name, _ in rejected] == ["step-00000020"]
    assert rejected[0][1].startswith(f"{said}: "), rejected
    assert "\n" not in rejected[0][1]


def test_all_files_are_named_here(two: Path) -> None:
    assert names(two / "step-00000020") == sorted(FILES)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
@pytest.mark.parametrize("name", FILES)
def test_any_flipped_bit_any_cut_any_addition_is_recognised(
    name: str, data: st.DataObject, two: Path
) -> None:
    path = two / "step-00000020" / name
    whole = path.read_bytes()
    at = data.draw(st.integers(0, len(whole) - 1))
    kind = data.draw(st.sampled_from(["flipped", "cut", "longer"]))
    if kind == "flipped":
        other = whole[at] ^ data.draw(st.integers(1, 255))
        damaged = whole[:at] + bytes([other]) + whole[at + 1 :]
    else:
        damaged = whole[:at] if kind == "cut" else whole + data.draw(st.binary(min_size=1))
    try:
        path.write_bytes(damaged)
        assert_passed_over(two, name)
    finally:
        path.write_bytes(whole)


def test_every_byte_of_the_manifest_counts(two: Path) -> None:
    """It is what everything else is measured by."""
    whole = (two / "step-00000020" / "manifest.json").read_bytes()
    for at in range(0, len(whole), 7):
        for other in {whole[at] ^ 1, whole[at] ^ 32, ord(" ")} - {whole[at]}:
            with pytest.raises(ValueError, match="bytes that"):
                unsealed(whole[:at] + bytes([other]) + whole[at + 1 :])


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_recognised(name: str, two: Path) -> None:
    path = two / "step-00000020" / name
    whole = path.read_bytes()
    path.unlink()
    try:
        assert_passed_over(two, name)
        path.mkdir()
        assert_passed_over(two, name)
        path.rmdir()
    finally:
        path.write_bytes(whole)


def test_all_are_damaged(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, 2)
    for step in (10, 20):
        (save(shelf, PLAN, WHOLE, RANKS, step).path / "manifest.json").unlink()
    found, rejected = shelf.newest()
    assert found is None
    assert [name for name, _ in rejected] == ["step-00000020", "step-00000010"]


def test_a_folder_under_another_name_is_no_checkpoint(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, 2)
    shutil.copytree(save(shelf, PLAN, WHOLE, RANKS, 10).path, tmp_path / "step-00000011")
    found, rejected = shelf.newest()
    assert rejected == (("step-00000011", "manifest.json: of step 10"),)
    assert_holds(found, WHOLE, 10)


@pytest.mark.parametrize("change", [{"format": 2}, {"identity": {}}, {"items": 3}, {"step": None}])
def test_a_manifest_of_another_kind_is_rejected_with_a_reason(
    change: dict[str, Any], tmp_path: Path
) -> None:
    shelf = Shelf(tmp_path, 2)
    path = save(shelf, PLAN, WHOLE, RANKS, 10).path / "manifest.json"
    path.write_bytes(sealed(unsealed(path.read_bytes()) | change))
    found, rejected = shelf.newest()
    assert found is None
    assert rejected[0][1].startswith("manifest.json: ")
