"""The debug check that copies of units stay equal: who differs is named."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from standins.shards import SHARED_KV, cut, plan_of, some_whole

from nonuniform.placement.placement import Placement, ReplicaPlacement
from nonuniform.train.audit import Auditor, disagreements, dumps, loads, unit_hashes
from nonuniform.train.membership import Board, Record

PLAN = plan_of(SHARED_KV, 3)
WHOLE = some_whole(PLAN, seed=1)


def record(generation: int = 1, degrees: tuple[int, ...] = (3, 2)) -> Record:
    replicas = tuple(
        ReplicaPlacement(r, tuple(f"{r}/{label}" for label in range(degree)), 2)
        for r, degree in enumerate(degrees)
    )
    return Record(generation, Placement(replicas), 0, 0, "digest", {}, {})


@pytest.fixture
def board() -> Board:
    return Board(dist.HashStore())


def say(board: Board, generation: int, step: int, gpu: str, value: int) -> None:
    board.say_units(generation, step, gpu, dumps({"norm.weight": {"0": value}}))


def test_copies_hash_alike_whatever_the_degree_and_place() -> None:
    by_gpu = {}
    for replica, degree in enumerate((3, 2, 1)):
        for label in range(degree):
            by_gpu[f"{replica}/{label}"] = unit_hashes(cut(PLAN, WHOLE, degree, label))
    assert disagreements(by_gpu) == []
    units = by_gpu["2/0"]
    assert set(units) == {tensor.name for tensor in PLAN.tensors}
    assert {name: len(found) for name, found in units.items()} == {
        tensor.name: tensor.units for tensor in PLAN.tensors
    }
    values = [value for found in units.values() for value in found.values()]
    assert len(set(values)) == len(values)


@pytest.mark.parametrize("slot", [0, 1, 2])
def test_one_bit_in_any_slot_is_found_and_both_sides_are_named(slot: int) -> None:
    by_gpu = {}
    for replica, degree in enumerate((3, 2)):
        for label in range(degree):
            state = cut(PLAN, WHOLE, degree, label)
            if (replica, label) == (1, 1):
                matrix = state.matrices["norm.weight"][slot]
                matrix[0, 0] = torch.nextafter(matrix[0, 0], torch.tensor(9.0).to(matrix))
            by_gpu[f"{replica}/{label}"] = unit_hashes(state)
    assert disagreements(by_gpu) == ["norm.weight unit 0: 0/0, 0/1, 0/2, 1/0 differ from 1/1"]


def test_hashes_survive_the_store() -> None:
    hashes = unit_hashes(cut(PLAN, WHOLE, 3, 1))
    assert loads(dumps(hashes)) == hashes
    assert loads(dumps(hashes).encode()) == hashes


def test_a_rank_without_units_of_a_tensor_has_no_hashes_of_it() -> None:
    plan = plan_of(SHARED_KV, 4, empty=True)
    whole = some_whole(plan, seed=2)
    hashes = unit_hashes(cut(plan, whole, 4, 3))
    assert hashes["layers.0.attention.q.weight"] == {}
    assert set(hashes["norm.weight"]) == {"0"}


def test_nothing_is_said_until_all_members_have_told(board: Board) -> None:
    auditor, current = Auditor(board), record()
    gpus = [member.gpu for member in current.placement.members()]
    auditor.expect(5, current)
    assert auditor.complaint(current) is None
    for gpu in gpus[:-1]:
        say(board, 1, 5, gpu, 7)
        assert auditor.complaint(current) is None
    say(board, 1, 5, gpus[-1], 8)
    complaint = auditor.complaint(current)
    assert complaint is not None
    assert "after step 5" in complaint
    assert complaint.endswith("norm.weight unit 0: 0/0, 0/1, 0/2, 1/0 differ from 1/1")
    assert auditor.complaint(current) is None


def test_equal_hashes_are_no_complaint_and_leave_no_keys(board: Board) -> None:
    auditor, current = Auditor(board), record()
    before = board.store.num_keys()
    for step in (1, 2, 3):
        auditor.expect(step, current)
        for member in current.placement.members():
            say(board, 1, step, member.gpu, step)
    assert auditor.complaint(current) is None
    assert board.store.num_keys() == before


def test_a_member_that_died_before_it_told_ends_the_wait(board: Board) -> None:
    auditor, first = Auditor(board), record(1)
    auditor.expect(4, first)
    for gpu in ("0/0", "0/1", "1/0", "1/1"):  # 0/2 is dead
        say(board, 1, 4, gpu, 1)
    assert auditor.complaint(first) is None
    second = record(2, (2, 2))
    auditor.expect(5, second)
    assert auditor.complaint(second) is None
    for value, gpu in enumerate(("0/0", "0/1", "1/0", "1/1")):
        say(board, 2, 5, gpu, value)
    assert "after step 5 1 units differ" in (auditor.complaint(second) or "")


def test_a_step_that_was_complete_when_its_generation_ended_is_still_compared(
    board: Board,
) -> None:
    auditor, first = Auditor(board), record(1)
    auditor.expect(4, first)
    for value, member in enumerate(first.placement.members()):
        say(board, 1, 4, member.gpu, value // 4)
    assert "after step 4" in (auditor.complaint(record(2)) or "")
