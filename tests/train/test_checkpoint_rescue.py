"""Ranks that are left alone write what they hold; somebody makes a checkpoint of it later."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from standins.checkpoints import identity
from standins.shards import CPU, SHARED_KV, Whole, cut, plan_of, same_bits, some_whole

from nonuniform.train.checkpoint.load import load_shard
from nonuniform.train.checkpoint.part import all_units, take_snapshot
from nonuniform.train.checkpoint.rescue import (
    RESCUE,
    adopt_rescued,
    drop_rescued,
    find_rescued,
    write_rescue,
)
from nonuniform.train.checkpoint.shelf import Shelf

PLAN = plan_of(SHARED_KV, 3)
BEFORE, AFTER = some_whole(PLAN, seed=2), some_whole(PLAN, seed=3)
WHOLES: Mapping[int, Whole] = {7: BEFORE, 8: AFTER}
PLACES = {"0/0": (3, 0), "0/1": (3, 1), "0/2": (3, 2), "1/0": (2, 0), "1/1": (2, 1)}


def rescue(folder: Path, gpu: str, *steps: int) -> None:
    for step in steps:
        state = cut(PLAN, WHOLES[step], *PLACES[gpu], step)
        write_rescue(folder, take_snapshot(state, all_units(state)), gpu, {"by": gpu, "at": step})


def assert_adopts(folder: Path, step: int) -> None:
    found = find_rescued(folder, PLAN)
    assert found is not None
    assert found.step == step
    assert [extra["by"] for extra in found.extras] == [part.gpu for part in found.parts]
    assert {extra["at"] for extra in found.extras} == {step}
    shelf = Shelf(folder, 2)
    checkpoint = adopt_rescued(shelf, found, 3, identity(), PLAN)
    assert not (folder / RESCUE).exists()
    assert shelf.newest() == (checkpoint, ())
    assert (checkpoint.step, checkpoint.validated) == (step, 3)
    for where in PLACES.values():
        loaded = load_shard(checkpoint, PLAN, where, torch.float64, CPU)
        assert same_bits(loaded, cut(PLAN, WHOLES[step], *where, step))


def test_nothing_was_rescued(tmp_path: Path) -> None:
    assert find_rescued(tmp_path, PLAN) is None
    drop_rescued(tmp_path)


def test_all_ranks_at_one_step(tmp_path: Path) -> None:
    for gpu in PLACES:
        rescue(tmp_path, gpu, 8)
    assert sorted(os.listdir(tmp_path / RESCUE))[:2] == [
        "step-00000008-gpu-0-0.distcp",
        "step-00000008-gpu-0-0.json",
    ]
    assert_adopts(tmp_path, 8)


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ({"0/0": (7,), "0/1": (7,), "0/2": (7,), "1/0": (8,), "1/1": (8,)}, 8),
        ({"0/0": (7,), "0/1": (7,), "0/2": (7,), "1/0": (8,), "1/1": ()}, 7),
        ({"0/0": (7, 8), "0/1": (7,), "0/2": (7, 8), "1/0": (7, 8), "1/1": (7, 8)}, 8),
        ({"0/0": (8,), "0/1": (8,), "0/2": (), "1/0": (7, 8), "1/1": (7, 8)}, 8),
        ({"0/0": (), "0/1": (8,), "0/2": (8,), "1/0": (8,), "1/1": ()}, 8),
        ({"0/0": (8,), "0/1": (7,), "0/2": (8,), "1/0": (7,), "1/1": (7,)}, 7),
        ({"0/0": (8,), "0/1": (8,), "0/2": (), "1/0": (), "1/1": ()}, None),
        ({"0/0": (7,), "0/1": (8,), "0/2": (7,), "1/0": (), "1/1": ()}, None),
    ],
    ids=str,
)
def test_the_newest_step_of_which_all_is_there(
    steps: dict[str, tuple[int, ...]], expected: int | None, tmp_path: Path
) -> None:
    for gpu, written in steps.items():
        rescue(tmp_path, gpu, *written)
    held = {unit for gpu in PLACES if 8 in steps[gpu] for unit in units_of(gpu)}
    every = {unit for gpu in PLACES for unit in units_of(gpu)}
    assert (held == every) == (expected == 8)
    if expected is None:
        assert find_rescued(tmp_path, PLAN) is None
    else:
        assert_adopts(tmp_path, expected)


def units_of(gpu: str) -> tuple[tuple[str, int], ...]:
    return all_units(cut(PLAN, BEFORE, *PLACES[gpu]))


@pytest.mark.parametrize("ending", ["json", "distcp"])
@pytest.mark.parametrize("how", ["flipped", "cut", "missing"])
def test_a_damaged_part_counts_as_not_there(ending: str, how: str, tmp_path: Path) -> None:
    """Another replica has the same units; where none has, the step before is taken."""
    for gpu in PLACES:
        rescue(tmp_path, gpu, 7, 8)
    for gpu in ("0-1", "1-1"):
        path = tmp_path / RESCUE / f"step-00000008-gpu-{gpu}.{ending}"
        whole = path.read_bytes()
        if how == "missing":
            path.unlink()
        elif how == "cut":
            path.write_bytes(whole[: len(whole) // 2])
        else:
            at = len(whole) // 3
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        if gpu == "0-1":
            found = find_rescued(tmp_path, PLAN)
            assert found is not None
            assert found.step == 8
            assert "0/1" not in [part.gpu for part in found.parts]
    assert_adopts(tmp_path, 7)


def test_a_copy_where_files_cannot_be_linked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    for gpu in PLACES:
        rescue(tmp_path, gpu, 8)
    assert_adopts(tmp_path, 8)


def test_an_adoption_that_is_cut_short_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for gpu in PLACES:
        rescue(tmp_path, gpu, 8)
    found = find_rescued(tmp_path, PLAN)
    assert found is not None
    for name in ("link", "rename", "fsync"):
        true = getattr(os, name)
        calls = 0

        def fail(*values: Any, true: Any = true, **options: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls > 1:
                raise KeyboardInterrupt
            return true(*values, **options)

        with monkeypatch.context() as patch:
            patch.setattr(os, name, fail)
            if name == "rename":
                calls = 1
            with pytest.raises(KeyboardInterrupt):
                adopt_rescued(Shelf(tmp_path, 2), found, 3, identity(), PLAN)
        Shelf(tmp_path, 2).sweep()
        assert find_rescued(tmp_path, PLAN) == found
    assert_adopts(tmp_path, 8)


def test_a_full_disk_leaves_nothing_of_a_rescue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = cut(PLAN, AFTER, 3, 0, 8)
    snapshot = take_snapshot(state, all_units(state))
    for name in ("fsync", "replace"):

        def full(*_: Any) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(os, name, full)
            with pytest.raises(OSError, match="No space left"):
                write_rescue(tmp_path, snapshot, "0/0", {})
        assert os.listdir(tmp_path / RESCUE) == []


def test_a_rank_that_writes_again_replaces_what_it_wrote(tmp_path: Path) -> None:
    for gpu in PLACES:
        rescue(tmp_path, gpu, 8)
        rescue(tmp_path, gpu, 8)
    assert len(os.listdir(tmp_path / RESCUE)) == 2 * len(PLACES)
    assert_adopts(tmp_path, 8)
