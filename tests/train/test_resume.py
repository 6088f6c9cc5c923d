"""Where a run begins: at the newest whole state of its own job, whoever has written it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from standins.checkpoints import identity, ranks, save
from standins.shards import SHARED_KV, cut, plan_of, some_whole

from nonuniform.errors import BadInput
from nonuniform.placement.placement import Placement, ReplicaPlacement
from nonuniform.protocol.commit import Vote
from nonuniform.protocol.record import LoggedStep, Position, Record
from nonuniform.train.checkpoint.part import all_units, take_snapshot
from nonuniform.train.checkpoint.rescue import INCOMPLETE, write_rescue
from nonuniform.train.checkpoint.shelf import RESCUE, Shelf
from nonuniform.train.keeper import Keeper
from nonuniform.train.resume import Beginning, find_beginning

PLAN = plan_of(SHARED_KV, 3)
WHOLE = some_whole(PLAN, seed=5)
HELD = ranks(3, 2)
PLACEMENT = Placement(
    (ReplicaPlacement(0, ("0/0", "0/1", "0/2"), 7), ReplicaPlacement(1, ("1/0", "1/1"), 5))
)


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path / "checkpoints", 4)


def begin(shelf: Shelf) -> Beginning:
    return find_beginning(shelf, identity(), PLAN)


def vote(step: int, gpu: str = "0/0", generation: int = 1) -> Vote:
    return Vote(gpu, generation, "train", step, "digest", 6.0 * step, 12, 1 / 3, True, 0.125)


def rescue(shelf: Shelf, step: int, votes: list[tuple[Vote, int]], gpus: str = "0/ 1/") -> None:
    """All ranks of these replicas write themselves what they hold, and what they remember."""
    extra = {"identity": identity().to_json(), "steps": [row(*entry) for entry in votes]}
    for held in HELD:
        if held.gpu[:2] in gpus.split():
            state = cut(PLAN, WHOLE, held.degree, held.label, step)
            write_rescue(shelf.folder, take_snapshot(state, all_units(state)), held.gpu, extra)


def row(vote: Vote, validated: int) -> dict[str, Any]:
    """As a rank's keeper remembers a step."""
    keeper: Any = Keeper.__new__(Keeper)
    keeper._steps = []
    record = Record(vote.generation, PLACEMENT, vote.step - 1, validated, vote.digest, {}, {})
    keeper.note(record, vote, validated)
    (found,) = keeper.remembered()
    assert isinstance(found, dict)
    return found


def everything(shelf: Shelf) -> dict[Path, bytes]:
    """All folders and files of the shelf with what is in them."""
    return {path: path.read_bytes() if path.is_file() else b"" for path in shelf.folder.rglob("*")}


def kinds(beginning: Beginning) -> list[str]:
    return [kind for kind, _ in beginning.notes]


def test_without_a_checkpoint_a_run_begins_at_the_beginning(shelf: Shelf) -> None:
    expected = (("resumed", "no checkpoint: from the beginning"),)
    assert begin(shelf) == Beginning(Position(0, 0), "", expected)


def test_the_newest_checkpoint_is_taken(shelf: Shelf) -> None:
    for step in (4, 6):
        save(shelf, PLAN, WHOLE, HELD, step)
    beginning = begin(shelf)
    assert (beginning.position, beginning.load) == (Position(6, 5), "step-00000006")
    text = "going on after step 6 from checkpoint step-00000006"
    assert beginning.notes == (("resumed", text),)
    assert beginning.steps == {}


def test_one_that_is_damaged_is_told_by_name_and_the_one_before_is_taken(shelf: Shelf) -> None:
    for step in (4, 6):
        save(shelf, PLAN, WHOLE, HELD, step)
    file = next((shelf.folder / "step-00000006").glob("*.distcp"))
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    beginning = begin(shelf)
    assert (beginning.position, beginning.load) == (Position(4, 3), "step-00000004")
    (rejected, reason), (resumed, _) = beginning.notes
    assert (rejected, resumed) == ("checkpoint_rejected", "resumed")
    assert reason.startswith(f"step-00000006: {file.name}: ")


def test_when_all_are_damaged_nothing_is_touched_and_the_newest_is_named(shelf: Shelf) -> None:
    """Whoever wants to begin anew says so: days of work may be saved by a repair."""
    for step in (4, 6):
        save(shelf, PLAN, WHOLE, HELD, step)
        (shelf.folder / f"step-{step:08d}" / "manifest.json").unlink()
    shelf.open_part_folder(8, 3)
    rescue(shelf, 7, [(vote(7), 0)], gpus="1/")
    next((shelf.folder / RESCUE).glob("*gpu-1-0*.distcp")).unlink()
    before = everything(shelf)
    with pytest.raises(BadInput) as error:
        begin(shelf)
    assert str(error.value) == (
        f"--resume: {shelf.folder}: none of 2 checkpoints can be read, step-00000006: "
        "manifest.json: No such file or directory; --overwrite begins anew"
    )
    assert everything(shelf) == before


def test_when_all_are_damaged_a_rescue_is_taken(shelf: Shelf) -> None:
    save(shelf, PLAN, WHOLE, HELD, 4)
    (shelf.folder / "step-00000004" / "manifest.json").unlink()
    rescue(shelf, 6, [(vote(6), 0)])
    beginning = begin(shelf)
    assert beginning.position == Position(6, 0)
    assert kinds(beginning) == ["checkpoint_rejected", "rescued", "resumed"]


@pytest.mark.parametrize("generation", [0, 3])
def test_what_a_crash_has_left_is_cleared_away(shelf: Shelf, generation: int) -> None:
    save(shelf, PLAN, WHOLE, HELD, 4)
    shelf.open_part_folder(6, generation)
    assert begin(shelf).load == "step-00000004"
    assert not shelf.part_folder(6, generation).exists()


def test_a_checkpoint_of_another_job_is_bad_input_with_the_key(shelf: Shelf) -> None:
    save(shelf, PLAN, WHOLE, HELD, 4)
    other = replace(identity(), seed=2)
    with pytest.raises(BadInput) as error:
        find_beginning(shelf, other, PLAN)
    path = shelf.folder / "step-00000004"
    expected = f"--resume: {path}: [run] seed = 2, but the checkpoint was written with 1"
    assert str(error.value) == expected


@pytest.mark.parametrize("whole", [True, False])
def test_what_ranks_have_rescued_of_another_job_is_bad_input_and_stays(
    shelf: Shelf, whole: bool
) -> None:
    """Before anything is touched: what a crash has left of the other job is not cleared either."""
    rescue(shelf, 6, [(vote(6), 0)], gpus="0/ 1/" if whole else "1/")
    if not whole:
        next((shelf.folder / RESCUE).glob("*gpu-1-0*.distcp")).unlink()
    shelf.open_part_folder(8, 3)
    before = everything(shelf)
    with pytest.raises(BadInput) as error:
        find_beginning(shelf, replace(identity(), seed=2), PLAN)
    assert str(error.value) == (
        f"--resume: {shelf.folder / RESCUE}: [run] seed = 2, but the checkpoint was written with 1"
    )
    assert everything(shelf) == before
    assert begin(shelf).position == Position(6 * whole, 0), "it was there for the right job"


def test_what_ranks_have_rescued_counts_if_it_is_newer(shelf: Shelf) -> None:
    save(shelf, PLAN, WHOLE, HELD, 4)
    rescue(shelf, 6, [(vote(5), 4), (vote(6), 4)])
    beginning = begin(shelf)
    assert (beginning.position, beginning.load) == (Position(6, 4), "step-00000006")
    assert kinds(beginning) == ["rescued", "resumed"]
    assert not (shelf.folder / RESCUE).exists()
    found, rejected = shelf.newest()
    assert found is not None
    assert (found.step, rejected) == (6, ())
    again = begin(shelf)
    assert (again.position, again.load) == (beginning.position, beginning.load)
    assert kinds(again) == ["resumed"]


@pytest.mark.parametrize("step", [4, 6])
def test_what_ranks_have_rescued_is_dropped_if_it_is_not_newer(shelf: Shelf, step: int) -> None:
    save(shelf, PLAN, WHOLE, HELD, 6)
    rescue(shelf, step, [(vote(step), 0)])
    beginning = begin(shelf)
    assert (beginning.position, beginning.load) == (Position(6, 5), "step-00000006")
    assert kinds(beginning) == ["resumed"]
    assert not (shelf.folder / RESCUE).exists()


def test_what_ranks_have_rescued_is_set_aside_and_told_if_it_is_not_whole(shelf: Shelf) -> None:
    save(shelf, PLAN, WHOLE, HELD, 4)
    rescue(shelf, 6, [(vote(6), 0)], gpus="1/")
    next((shelf.folder / RESCUE).glob("*gpu-1-0*.distcp")).unlink()
    kept = sorted(path.name for path in (shelf.folder / RESCUE).iterdir())
    beginning = begin(shelf)
    assert beginning.load == "step-00000004"
    assert kinds(beginning) == ["rescue_incomplete", "resumed"]
    assert beginning.notes[0][1] == "some ranks wrote nothing: kept in rescue-incomplete"
    assert not (shelf.folder / RESCUE).exists()
    assert sorted(path.name for path in (shelf.folder / INCOMPLETE).iterdir()) == kept
    assert kinds(begin(shelf)) == ["resumed"], "told once"
    assert (shelf.folder / INCOMPLETE).exists()


def test_the_log_gets_the_steps_that_ranks_remember(shelf: Shelf) -> None:
    rescue(shelf, 6, [(vote(5), 4), (vote(6, generation=2), 4), (vote(7, generation=2), 4)])
    steps = begin(shelf).steps
    degrees, shares = {0: 3, 1: 2}, {0: 7, 1: 5}
    assert steps == {
        5: LoggedStep(vote(5), degrees, shares),
        6: LoggedStep(vote(6, generation=2), degrees, shares),
    }


def test_of_a_step_that_was_done_again_the_last_vote_counts(shelf: Shelf) -> None:
    rescue(shelf, 6, [(vote(6, generation=3), 0), (vote(6, generation=2), 0)])
    assert begin(shelf).steps[6].vote.generation == 3


def test_a_validation_before_a_return_to_an_older_checkpoint_is_not_one_of_now(
    shelf: Shelf,
) -> None:
    """The run had validated step 8, went back to step 4, and is now at step 6."""
    rescue(shelf, 6, [(vote(8), 4), (vote(9), 8), (vote(6), 4), (vote(6, generation=2), 4)])
    assert begin(shelf).position == Position(6, 4)
