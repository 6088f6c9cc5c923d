"""The launcher's side of a checkpoint: it comes whole, or to a reason, and is told once."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist
from standins.checkpoints import identity, ranks, save, snapshots
from standins.shards import SHARED_KV, cut, plan_of, some_whole

from nonuniform.protocol.events import Found
from nonuniform.protocol.record import Position
from nonuniform.reshard.transfer import Holding
from nonuniform.train.checkpoint import shelf as shelf_module
from nonuniform.train.checkpoint.part import write_part
from nonuniform.train.checkpoint.shelf import TOO_LATE, Shelf
from nonuniform.train.membership import Board
from nonuniform.train.saver import Rejected, Result, Saver, savers
from nonuniform.train.seal import SealedStore

PLAN = plan_of(SHARED_KV, 3)
WHOLE = some_whole(PLAN, seed=5)
HELD = ranks(3, 2)
GPUS = [holding.gpu for holding in HELD]


@pytest.fixture
def board() -> Board:
    store: Any = dist.HashStore()
    return Board(SealedStore(store, "only the job knows"))


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path / "checkpoints", 2)


@pytest.fixture
def saver(board: Board, shelf: Shelf) -> Saver:
    return Saver(board, shelf, identity(), PLAN)


def write(board: Board, shelf: Shelf, generation: int, step: int, gpus: Iterable[str]) -> None:
    """These ranks write their parts and tell of them."""
    taken = snapshots(PLAN, WHOLE, HELD, step)
    folder = shelf.part_folder(step, generation)
    folder.mkdir(parents=True, exist_ok=True)
    for gpu in gpus:
        part = write_part(taken[gpu], folder, gpu)
        board.say_part(generation, step, gpu, {"part": part.to_json()})


def come_to(saver: Saver, count: int = 1) -> list[Result]:
    results: list[Result] = []
    limit = time.monotonic() + 20.0
    while len(results) < count and time.monotonic() < limit:
        results += saver.poll()
        time.sleep(0.002)
    assert saver.poll() == []
    return results


def look(saver: Saver, patience_s: float = 20.0) -> tuple[Found, Rejected]:
    """What is found, and nothing after it: each search is told once."""
    saver.recall(patience_s)
    limit = time.monotonic() + 20.0
    while (answer := saver.recalled()) is None and time.monotonic() < limit:
        time.sleep(0.002)
    assert answer is not None
    assert saver.recalled() is None
    return answer


def test_a_checkpoint_is_published_once_all_parts_are_there(
    board: Board, shelf: Shelf, saver: Saver
) -> None:
    assert not saver.busy()
    saver.expect(4, Position(6, 3), GPUS)
    write(board, shelf, 4, 6, GPUS[:-1])
    for _ in range(5):
        assert saver.poll() == []
    assert saver.busy()
    assert shelf.steps() == ()
    write(board, shelf, 4, 6, GPUS[-1:])
    assert come_to(saver) == [Result(4, 6, "step-00000006", "")]
    assert not saver.busy()
    found, rejected = shelf.newest()
    assert rejected == ()
    assert found is not None
    assert (found.step, found.validated, found.identity) == (6, 3, identity())


def test_parts_of_another_generation_do_not_count(board: Board, shelf: Shelf, saver: Saver) -> None:
    """Those of a step that was dropped and is done again: the attempts never meet in a folder."""
    write(board, shelf, 3, 6, GPUS)
    saver.expect(4, Position(6, 3), GPUS)
    assert saver.poll() == []
    assert saver.busy()
    write(board, shelf, 4, 6, GPUS)
    late = shelf.part_folder(6, 3)
    before = {path.name: path.read_bytes() for path in late.iterdir()}
    assert come_to(saver)[0].problem == ""
    assert {path.name: path.read_bytes() for path in late.iterdir()} == before
    assert not shelf.part_folder(6, 4).exists()


def test_an_attempt_that_fails_takes_nothing_from_the_next_one_of_the_same_step(
    board: Board, shelf: Shelf, saver: Saver
) -> None:
    saver.expect(3, Position(6, 3), GPUS)
    saver.expect(4, Position(6, 3), GPUS)
    write(board, shelf, 4, 6, GPUS)
    write(board, shelf, 3, 6, GPUS[1:])
    saver.lose(GPUS[0])
    first, second = come_to(saver, 2)
    assert (first.generation, first.problem) == (3, "GPU 0/0 was lost before its part was there")
    assert second == Result(4, 6, "step-00000006", "")
    assert not shelf.part_folder(6, 3).exists()


def test_a_rank_that_cannot_write_gives_the_reason_when_the_others_have_told(
    board: Board, shelf: Shelf, saver: Saver
) -> None:
    """Their files must not be taken away from under them."""
    saver.expect(4, Position(6, 3), GPUS)
    board.say_part(4, 6, GPUS[0], {"problem": f"GPU {GPUS[0]}: No space left on device"})
    board.say_part(4, 6, GPUS[1], {"problem": f"GPU {GPUS[1]}: too late to be the reason"})
    write(board, shelf, 4, 6, GPUS[2:-1])
    assert saver.poll() == []
    assert shelf.part_folder(6, 4).exists()
    write(board, shelf, 4, 6, GPUS[-1:])
    (result,) = come_to(saver)
    assert result == Result(4, 6, "step-00000006", "GPU 0/0: No space left on device")
    assert not shelf.part_folder(6, 4).exists()
    assert shelf.steps() == ()


def test_one_that_is_lost_before_it_told_ends_the_attempt(
    board: Board, shelf: Shelf, saver: Saver
) -> None:
    saver.expect(4, Position(6, 3), GPUS)
    write(board, shelf, 4, 6, GPUS[1:])
    saver.lose("9/9")
    assert saver.poll() == []
    saver.lose(GPUS[0])
    (result,) = come_to(saver)
    assert result.problem == f"GPU {GPUS[0]} was lost before its part was there"


def test_one_that_is_lost_after_it_told_is_missed_by_nobody(
    board: Board, shelf: Shelf, saver: Saver
) -> None:
    saver.expect(4, Position(6, 3), GPUS)
    write(board, shelf, 4, 6, GPUS[:1])
    assert saver.poll() == []
    saver.lose(GPUS[0])
    write(board, shelf, 4, 6, GPUS[1:])
    assert come_to(saver) == [Result(4, 6, "step-00000006", "")]


def test_checkpoints_are_published_in_the_order_of_their_steps(
    board: Board, shelf: Shelf, saver: Saver
) -> None:
    """Else the older one would take the newer one away as one of a later step."""
    saver.expect(4, Position(6, 3), GPUS)
    saver.expect(4, Position(8, 3), GPUS)
    write(board, shelf, 4, 8, GPUS)
    for _ in range(5):
        assert saver.poll() == []
    assert shelf.steps() == ()
    write(board, shelf, 4, 6, GPUS)
    assert [result.step for result in come_to(saver, 2)] == [6, 8]
    assert shelf.steps() == (6, 8)


def test_one_that_is_lost_just_after_its_last_word_is_missed_by_nobody(
    board: Board, shelf: Shelf, saver: Saver
) -> None:
    saver.expect(4, Position(6, 3), GPUS)
    write(board, shelf, 4, 6, GPUS)
    saver.lose(GPUS[0])
    assert come_to(saver) == [Result(4, 6, "step-00000006", "")]


def test_one_that_comes_to_nothing_does_not_stop_the_next(
    board: Board, shelf: Shelf, saver: Saver
) -> None:
    saver.expect(4, Position(6, 3), GPUS)
    saver.expect(5, Position(8, 3), GPUS[:2])
    write(board, shelf, 4, 6, GPUS[:2])
    saver.expect(6, Position(9, 3), GPUS)
    write(board, shelf, 6, 9, GPUS)
    for gpu in GPUS:
        saver.lose(gpu)
    results = come_to(saver, 3)
    assert [(result.step, bool(result.problem)) for result in results] == [
        (6, True),
        (8, True),
        (9, False),
    ]


def test_who_looks_for_the_newest_waits_for_one_that_is_being_written_but_not_for_ever(
    board: Board, shelf: Shelf, saver: Saver
) -> None:
    save(shelf, PLAN, WHOLE, HELD, 4)
    saver.expect(4, Position(6, 3), GPUS)
    saver.recall(20.0)
    for _ in range(5):
        assert saver.recalled() is None
        time.sleep(0.01)
    write(board, shelf, 4, 6, GPUS)
    assert come_to(saver) == [Result(4, 6, "step-00000006", "")], "it is told all the same"
    assert look(saver) == (Found(Position(6, 3), "step-00000006"), ())
    saver.expect(4, Position(8, 3), GPUS)
    assert look(saver, 0.05) == (Found(Position(6, 3), "step-00000006"), ())
    assert come_to(saver) == [Result(4, 8, "step-00000008", TOO_LATE)]


def test_parts_that_do_not_make_a_whole_are_a_problem(
    board: Board, shelf: Shelf, saver: Saver
) -> None:
    saver.expect(4, Position(6, 3), GPUS[:-1])
    write(board, shelf, 4, 6, GPUS[:-1])
    (result,) = come_to(saver)
    assert result.problem
    assert shelf.steps() == ()
    assert not shelf.part_folder(6, 4).exists()


def test_a_disk_that_fails_is_a_problem_with_the_name_of_the_file(
    board: Board, shelf: Shelf, saver: Saver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO), "a/file")

    monkeypatch.setattr(Shelf, "complete", fail)
    saver.expect(4, Position(6, 3), GPUS)
    write(board, shelf, 4, 6, GPUS)
    (result,) = come_to(saver)
    assert result.problem == "a/file: Input/output error"


def test_a_fault_of_ours_is_a_problem_too(
    board: Board, shelf: Shelf, saver: Saver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Untold, everything would wait for it."""

    def fail(*_: object, **__: object) -> None:
        raise KeyError("fqn")

    monkeypatch.setattr(Shelf, "complete", fail)
    saver.expect(4, Position(6, 3), GPUS)
    write(board, shelf, 4, 6, GPUS)
    (result,) = come_to(saver)
    assert result.problem == "KeyError: 'fqn'"
    assert not shelf.part_folder(6, 4).exists()
    monkeypatch.setattr(Shelf, "newest", fail)
    assert look(saver) == (Found(None), (("checkpoints", "KeyError: 'fqn'"),))


def test_parts_that_do_not_come_in_time_are_a_problem(board: Board, shelf: Shelf) -> None:
    """A disk that hangs: its rank lives, and tells of nothing."""
    saver = Saver(board, shelf, identity(), PLAN, patience_s=0.1)
    start = time.monotonic()
    saver.expect(4, Position(6, 3), GPUS)
    write(board, shelf, 4, 6, GPUS[2:])
    (result,) = come_to(saver)
    assert 0.1 <= time.monotonic() - start < 10.0
    assert result.problem == "GPU 0/0, 0/1 did not write its part within 0.1 s"
    assert shelf.steps() == ()
    assert not shelf.part_folder(6, 4).exists()
    assert not saver.busy()
    board.say_part(4, 6, GPUS[0], {"problem": "far too late"})
    saver.expect(5, Position(8, 3), GPUS)
    write(board, shelf, 5, 8, GPUS)
    assert come_to(saver) == [Result(5, 8, "step-00000008", "")], "the next one is in time"


def test_a_reason_that_a_rank_gave_stays_the_reason_when_another_is_late(
    board: Board, shelf: Shelf
) -> None:
    saver = Saver(board, shelf, identity(), PLAN, patience_s=0.1)
    saver.expect(4, Position(6, 3), GPUS)
    board.say_part(4, 6, GPUS[0], {"problem": f"GPU {GPUS[0]}: No space left on device"})
    (result,) = come_to(saver)
    assert result.problem == "GPU 0/0: No space left on device"


def test_at_the_end_nobody_waits_for_what_is_not_complete(
    board: Board, shelf: Shelf, saver: Saver
) -> None:
    assert saver.abandon() == []
    saver.expect(4, Position(6, 3), GPUS)
    board.say_part(4, 6, GPUS[0], {"problem": "No space left on device"})
    saver.expect(4, Position(8, 3), GPUS)
    write(board, shelf, 4, 8, GPUS[1:])
    start = time.monotonic()
    assert saver.abandon() == [
        Result(4, 6, "step-00000006", "No space left on device"),
        Result(4, 8, "step-00000008", "not complete when the run ended"),
    ]
    assert time.monotonic() - start < 5.0
    assert not saver.busy()
    assert saver.poll() == saver.abandon() == []


def test_at_the_end_one_that_is_complete_is_told_as_such(
    board: Board, shelf: Shelf, saver: Saver
) -> None:
    saver.expect(4, Position(6, 3), GPUS)
    write(board, shelf, 4, 6, GPUS)
    assert saver.poll() == []
    publishing = saver._attempts[0].publishing
    assert publishing is not None
    publishing.join(20.0)
    assert saver.abandon() == [Result(4, 6, "step-00000006", "")]


def test_the_newest_that_can_be_read_and_the_names_of_those_that_cannot(
    shelf: Shelf, saver: Saver
) -> None:
    assert saver.recalled() is None, "nobody has asked"
    assert look(saver) == (Found(None), ())
    for step in (4, 6):
        save(shelf, PLAN, WHOLE, HELD, step)
    assert look(saver) == (Found(Position(6, 5), "step-00000006"), ())
    (shelf.folder / "step-00000006" / "manifest.json").write_text("{")
    found, ((name, reason),) = look(saver)
    assert found == Found(Position(4, 3), "step-00000004")
    assert name == "step-00000006"
    assert reason.startswith("manifest.json: ")


def test_who_has_to_write(board: Board) -> None:
    everybody = {holding.gpu: (holding.degree, holding.label) for holding in HELD}
    chosen = savers(PLAN, everybody)
    assert set(chosen) <= set(GPUS)
    assert list(chosen) == sorted(chosen)
    replica = {gpu: where for gpu, where in everybody.items() if gpu.startswith("1/")}
    assert savers(PLAN, replica) == ("1/0", "1/1")
    assert savers(PLAN, {"1/0": (2, 0)}) == (), "half of the units are nowhere"
    assert savers(PLAN, {}) == ()


def test_a_checkpoint_of_what_is_left_is_whole(board: Board, shelf: Shelf, saver: Saver) -> None:
    """The last generation: one rank of each replica is gone, together they still hold all."""
    left = [Holding("0/0", 3, 0), Holding("0/2", 3, 2), Holding("1/0", 2, 0), Holding("1/1", 2, 1)]
    gpus = savers(PLAN, {one.gpu: (one.degree, one.label) for one in left})
    taken = snapshots(PLAN, WHOLE, left, 6)
    saver.expect(5, Position(6, 6), gpus)
    folder = shelf.open_part_folder(6, 5)
    for gpu in gpus:
        part = write_part(taken[gpu], folder, gpu)
        board.say_part(5, 6, gpu, {"part": part.to_json()})
    assert come_to(saver) == [Result(5, 6, "step-00000006", "")]
    assert cut(PLAN, WHOLE, 3, 0, 6).step == 6


def test_what_is_not_complete_when_the_run_goes_back_never_will_be(
    board: Board, tmp_path: Path
) -> None:
    """It holds steps that the run has undone, and it would remove what the ranks are reading."""
    shelf = Shelf(tmp_path / "checkpoints", 1)
    saver = Saver(board, shelf, identity(), PLAN)
    save(shelf, PLAN, WHOLE, HELD, 3)
    saver.expect(1, Position(6, 0), GPUS)
    found, _ = look(saver, patience_s=0.0)
    assert found.name == "step-00000003"
    write(board, shelf, 1, 6, GPUS)
    assert come_to(saver) == [Result(1, 6, "step-00000006", TOO_LATE)]
    assert shelf.steps() == (3,)
    assert not shelf.part_folder(6, 1).exists()
    saver.expect(2, Position(4, 0), GPUS)  # they have read it, and gone on
    write(board, shelf, 2, 4, GPUS)
    assert come_to(saver) == [Result(2, 4, "step-00000004", "")]
    assert shelf.steps() == (4,)


def test_one_that_is_nearly_published_when_the_run_goes_back_is_not(
    board: Board, shelf: Shelf, saver: Saver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its disk was slow: all is written but the name when the search begins."""
    save(shelf, PLAN, WHOLE, HELD, 3)
    sync, slow, go_on = shelf_module.sync_folder, threading.Event(), threading.Event()

    def stand_still(folder: Path) -> None:
        slow.set()
        assert go_on.wait(20.0)
        sync(folder)

    monkeypatch.setattr(shelf_module, "sync_folder", stand_still)
    saver.expect(1, Position(6, 0), GPUS)
    write(board, shelf, 1, 6, GPUS)
    assert saver.poll() == []
    assert slow.wait(20.0)
    assert look(saver, patience_s=0.0)[0].name == "step-00000003"
    go_on.set()
    (result,) = come_to(saver)
    assert result.problem.endswith(TOO_LATE)
    assert shelf.steps() == (3,)
    assert (shelf.folder / "latest").resolve().name == "step-00000003"


def test_one_that_is_being_published_when_the_search_begins_is_found(
    board: Board, shelf: Shelf, saver: Saver, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(shelf, PLAN, WHOLE, HELD, 3)
    link, slow, go_on = shelf_module.replace_link, threading.Event(), threading.Event()

    def stand_still(*where: Any) -> None:
        slow.set()
        assert go_on.wait(20.0)
        link(*where)

    monkeypatch.setattr(shelf_module, "replace_link", stand_still)
    saver.expect(1, Position(6, 0), GPUS)
    write(board, shelf, 1, 6, GPUS)
    assert saver.poll() == []
    assert slow.wait(20.0)
    threading.Timer(0.2, go_on.set).start()
    assert look(saver, patience_s=0.0)[0].name == "step-00000006"
    assert come_to(saver) == [Result(1, 6, "step-00000006", "")]
