"""The board: votes, outcomes decided once, words of the processes, over torch's own stores."""

from __future__ import annotations

import itertools
import socket
import threading
import time
from dataclasses import replace
from typing import Any

import psutil
import pytest
import torch.distributed as dist

from nonuniform.errors import BadInput
from nonuniform.placement.placement import Placement, ReplicaPlacement
from nonuniform.protocol.commit import Vote, Work, WorkOptions
from nonuniform.protocol.outcome import ABORT, COMMIT, COMMIT_AND_REGROUP, is_commit
from nonuniform.protocol.rank import Rank, Stage, counted, looked
from nonuniform.protocol.record import Record, Report, Settled
from nonuniform.protocol.vital import Beat
from nonuniform.train.membership import (
    Board,
    connect_board,
    connect_store,
    host_store,
    work_key,
)
from nonuniform.train.seal import Forged, SealedStore

GPUS = ["0/0", "0/1", "1/0", "1/1"]
TRAIN = Work("train", 7)
PLACEMENT = Placement(
    (ReplicaPlacement(0, ("0/0", "0/1"), 3), ReplicaPlacement(1, ("1/1", "1/0"), 2)), ("2/0",)
)
RECORD = Record(
    generation=3,
    placement=PLACEMENT,
    step=6,
    validated=4,
    digest="digest",
    holdings={"0/0": (2, 0), "1/1": (3, 2)},
    home={"0/0": 0, "1/1": 1},
    lives={"0/0": 1, "0/1": 3, "2/0": 1},
    task="save",
    load="step-00000006",
)
SECRET = "only the job knows"
Hosted = tuple[Any, int]


def vote(gpu: str, **changes: Any) -> Vote:
    return replace(Vote(gpu, 3, "train", 7, "digest", 1.5, 40, 0.25, True), **changes)


@pytest.fixture(scope="module")
def hosted() -> Hosted:
    return host_store("127.0.0.1", 0)


@pytest.fixture(params=["HashStore", "TCPStore"])
def boards(request: pytest.FixtureRequest, hosted: Hosted) -> tuple[Board, Board]:
    """Two ends of either store; of the served one every test sees keys of its own."""
    stores: list[Any]
    if request.param == "HashStore":
        stores = [dist.HashStore()] * 2
    else:
        clients = [connect_store("127.0.0.1", hosted[1], 10.0) for _ in range(2)]
        stores = [dist.PrefixStore(request.node.name, client) for client in clients]
    one, other = (Board(SealedStore(store, SECRET)) for store in stores)
    return one, other


@pytest.fixture
def board(boards: tuple[Board, Board]) -> Board:
    return boards[0]


def cast(board: Board, given: Vote, members: list[str]) -> None:
    """Vote as a rank does: the last of all voters decides."""
    work = Work(given.kind, given.step)
    board.put_vote(given)
    rank = Rank(len(members), work.step - 1, 0, WorkOptions(99), Stage.COUNT)
    rank = counted(rank, board.count_vote(given.generation, work))
    if rank.stage is Stage.LOOK:
        complete = board.all_voted(given.generation, work, members)
        rank = looked(rank, complete, board.pause_wanted(given.generation))
    if rank.stage is Stage.DECIDE:
        board.decide(given.generation, work, rank.wish)


def test_the_last_vote_commits(board: Board) -> None:
    for gpu in GPUS[:-1]:
        cast(board, vote(gpu), GPUS)
        assert board.outcome(3, TRAIN) is None
    cast(board, vote(GPUS[-1]), GPUS)
    assert board.outcome(3, TRAIN) == COMMIT
    assert board.wait_outcome(3, TRAIN, 5.0) == COMMIT
    assert board.votes(3, TRAIN, GPUS) == {gpu: vote(gpu) for gpu in GPUS}


def test_votes_of_other_work_do_not_count(board: Board) -> None:
    pair = ["0/0", "0/1"]
    cast(board, vote("0/0"), pair)
    cast(board, vote("0/1", step=8), pair)
    cast(board, vote("0/1", generation=4), pair)
    cast(board, vote("0/1", kind="validate"), pair)
    assert board.outcome(3, TRAIN) is None
    assert board.votes(3, TRAIN, GPUS) == {"0/0": vote("0/0")}
    cast(board, vote("0/1"), pair)
    assert board.outcome(3, TRAIN) == COMMIT
    assert board.outcome(3, Work("train", 8)) is None


def test_a_vote_that_was_counted_twice_does_not_stand_for_another(board: Board) -> None:
    """The count only says who has to look; what is looked at are the votes."""
    pair = ["0/0", "0/1"]
    cast(board, vote("0/0"), pair)
    cast(board, vote("0/0"), pair)
    assert board.outcome(3, TRAIN) is None
    assert not board.all_voted(3, TRAIN, pair)
    cast(board, vote("0/1"), pair)
    assert board.all_voted(3, TRAIN, pair)
    assert board.outcome(3, TRAIN) == COMMIT


def test_votes_are_counted_each_once_whoever_counts(boards: tuple[Board, Board]) -> None:
    one, other = boards
    assert [board.count_vote(3, TRAIN) for board in (one, other, one)] == [1, 2, 3]
    assert one.count_vote(3, Work("train", 8)) == 1


@pytest.mark.parametrize("number", [float("nan"), float("inf"), 5e-324, 1 / 3])
def test_a_vote_keeps_every_bit(board: Board, number: float) -> None:
    board.put_vote(vote("0/0", loss_sum=-number, grad_norm=number, busy_s=1 / 3))
    (found,) = board.votes(3, TRAIN, GPUS).values()
    assert found.grad_norm.hex() == number.hex()
    assert found.loss_sum.hex() == (-number).hex()
    assert found.busy_s == 1 / 3


def test_a_wish_to_pause_makes_the_commit_a_regroup(board: Board) -> None:
    pair = ["0/0", "0/1"]
    cast(board, vote("0/0"), pair)
    board.request_pause(3)
    board.request_pause(3)
    cast(board, vote("0/1"), pair)
    assert board.outcome(3, TRAIN) == COMMIT_AND_REGROUP
    cast(board, vote("0/0", generation=4), ["0/0"])  # the wish was for generation 3
    assert board.outcome(4, TRAIN) == COMMIT
    assert is_commit(COMMIT)
    assert is_commit(COMMIT_AND_REGROUP)
    assert not is_commit(ABORT)
    assert not is_commit("")


def test_who_decides_first_decides_for_all(board: Board) -> None:
    assert board.decide(3, TRAIN, ABORT) == ABORT
    cast(board, vote("0/0"), ["0/0"])  # the vote that would have completed it comes too late
    assert board.outcome(3, TRAIN) == ABORT
    assert board.decide(3, TRAIN, COMMIT) == ABORT
    later = Work("train", 8)
    cast(board, vote("0/0", step=8), ["0/0"])
    assert board.decide(3, later, ABORT) == COMMIT
    assert board.outcome(3, later) == COMMIT


def test_of_many_who_decide_at_once_all_hear_the_same(hosted: Hosted) -> None:
    boards = [connect_board("127.0.0.1", hosted[1], 10.0, SECRET) for _ in range(4)]
    wishes = itertools.cycle([ABORT, COMMIT])
    for step in range(1, 31):
        work, heard, start = Work("train", step), [], threading.Barrier(len(boards), timeout=10.0)

        def ask(
            board: Board,
            wish: str,
            work: Work = work,
            heard: list[str] = heard,
            start: threading.Barrier = start,
        ) -> None:
            start.wait()
            heard.append(board.decide(50, work, wish))
            heard.append(board.wait_outcome(50, work, 10.0))

        threads = [
            threading.Thread(target=ask, args=(board, next(wishes)), daemon=True)
            for board in boards
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10.0)
        assert len(heard) == 2 * len(boards)
        assert len(set(heard)) == 1


def test_a_waiter_hears_an_outcome_that_is_decided_later(boards: tuple[Board, Board]) -> None:
    heard: list[str] = []
    thread = threading.Thread(
        target=lambda: heard.append(boards[1].wait_outcome(3, TRAIN, 5.0)), daemon=True
    )
    thread.start()
    time.sleep(0.02)
    boards[0].decide(3, TRAIN, ABORT)
    thread.join(5.0)
    assert heard == [ABORT]


def test_a_wait_that_was_too_short_can_be_repeated(board: Board) -> None:
    """Spares and watches do so; the answer that comes later must not get lost."""
    for _ in range(2):
        with pytest.raises(dist.DistStoreError):
            board.wait_record(3, 0.02)
    board.publish(RECORD)
    assert board.wait_record(3, 5.0) == RECORD
    assert board.wait_record(3, 5.0) == RECORD


def test_a_record_is_read_as_it_was_published(board: Board) -> None:
    board.publish(RECORD)
    read = board.wait_record(3, 5.0)
    assert read == RECORD
    assert read.placement.fingerprint() == PLACEMENT.fingerprint()
    assert read.holdings == {"0/0": (2, 0), "1/1": (3, 2)}


def test_the_end_of_a_generation_has_a_reason(board: Board) -> None:
    board.end_generation(3, "0/1 failed")
    assert board.wait_end(3, 5.0) == "0/1 failed"
    with pytest.raises(dist.DistStoreError):
        board.wait_end(4, 0.02)


def test_forgetting_deletes_every_key_of_a_transaction(hosted: Hosted) -> None:
    stores: list[Any] = [dist.HashStore(), connect_store("127.0.0.1", hosted[1], 10.0)]
    for store in stores:
        board = Board(SealedStore(store, SECRET))
        before = store.num_keys()
        for gpu in GPUS:
            cast(board, vote(gpu), GPUS)
        assert store.num_keys() > before
        board.forget(3, TRAIN, GPUS)
        assert store.num_keys() == before
        assert board.outcome(3, TRAIN) is None
        assert board.votes(3, TRAIN, GPUS) == {}
        board.forget(3, TRAIN, GPUS)  # nothing is left: no error


def test_what_ranks_say_of_themselves(board: Board) -> None:
    settled = Settled("0/1", 0.125, 1 / 3, 4096)
    report = Report("0/1", step=6, degree=3, label=2)
    assert board.read_settled(3, "0/1") is None
    assert board.read_report(3, "0/1", 2) is None
    board.settled(3, settled)
    board.report(3, report, life=2)
    assert board.read_settled(3, "0/1") == settled
    assert board.read_report(3, "0/1", 2) == report
    assert board.read_report(3, "0/1", 3) is None, "another life"
    assert board.read_settled(4, "0/1") is None
    assert board.read_report(3, "0/2", 2) is None


def test_forgetting_a_generation_leaves_its_record_and_its_end(hosted: Hosted) -> None:
    """One that joins slowly reads them later; all else is nobody's business any more."""
    store: Any = dist.HashStore()
    board = Board(SealedStore(store, SECRET))
    board.publish(RECORD)
    board.end_generation(3, "over")
    before = store.num_keys()
    board.request_pause(3)
    board.settled(3, Settled("0/1", 0.1, 0.1, 1))
    board.report(3, Report("0/1", 6, 3, 2), life=2)
    assert store.num_keys() == before + 3
    board.forget_generation(3, {"0/1": 2, "0/0": 1})
    assert store.num_keys() == before
    assert board.wait_record(3, 1.0) == RECORD
    assert board.wait_end(3, 1.0) == "over"


def test_a_part_of_a_checkpoint_is_taken_once(board: Board) -> None:
    part = {"part": {"step": 6, "files": []}}
    assert board.take_part(3, 6, "0/1") is None
    board.say_part(3, 6, "0/1", part)
    assert board.take_part(3, 6, "0/0") is board.take_part(3, 7, "0/1") is None
    assert board.take_part(3, 6, "0/1") == part
    assert board.take_part(3, 6, "0/1") is None


def test_the_last_sign_of_life_is_kept(board: Board) -> None:
    assert board.read_beat("0/1", 1) is None
    for count in (1, 2):
        board.beat("0/1", 1, Beat(count, "outcome", True, 0.125))
    assert board.read_beat("0/1", 1) == Beat(2, "outcome", True, 0.125)
    assert board.read_beat("0/1", 2) is None
    board.ready("0/1", 1)
    board.last_words("0/1", 1, "over")
    board.forget_process("0/1", 1)
    assert board.read_beat("0/1", 1) is board.read_last_words("0/1", 1) is None
    assert not board.is_ready("0/1", 1)


def test_what_somebody_else_has_written_is_not_there(hosted: Hosted) -> None:
    """A process that does not know the secret can't join, vote, decide or publish."""
    port = hosted[1]
    board = connect_board("127.0.0.1", port, 10.0, SECRET)
    stranger = connect_board("127.0.0.1", port, 10.0, "guessed")
    plain = connect_store("127.0.0.1", port, 10.0)
    work = Work("train", 70)
    stranger.put_vote(vote("0/0", step=70))
    stranger.ready("9/9", 1)
    stranger.report(30, Report("0/0", 6, 3, 2), life=1)
    plain.set("beat/9/9/1", '{"count": 1, "mark": "x", "waiting": false, "age_s": 0}')
    assert board.votes(3, work, ["0/0"]) == {}
    assert not board.is_ready("9/9", 1)
    assert board.read_report(30, "0/0", 1) is None
    assert board.read_beat("9/9", 1) is None
    stranger.publish(replace(RECORD, generation=30))
    with pytest.raises(Forged, match=r"^g30/record on the store of the run does not prove"):
        board.wait_record(30, 1.0)
    board.publish(replace(RECORD, generation=30))
    assert board.wait_record(30, 1.0).generation == 30


def test_a_forged_vote_or_wish_does_not_count(hosted: Hosted) -> None:
    """Nor is it an error of the rank that looks: it is as if nobody had said it."""
    port = hosted[1]
    board = connect_board("127.0.0.1", port, 10.0, SECRET)
    stranger = connect_board("127.0.0.1", port, 10.0, "guessed")
    work = Work("train", 71)
    board.put_vote(vote("0/0", step=71))
    stranger.put_vote(vote("0/1", step=71))
    stranger.request_pause(31)
    assert board.all_voted(3, work, ["0/0"])
    assert not board.all_voted(3, work, ["0/0", "0/1"])
    assert not board.pause_wanted(31)
    board.put_vote(vote("0/1", step=71))
    board.request_pause(31)
    assert board.all_voted(3, work, ["0/0", "0/1"])
    assert board.pause_wanted(31)


def test_each_life_of_a_gpu_speaks_for_itself(board: Board) -> None:
    board.ready("0/1", 2)
    assert board.is_ready("0/1", 2)
    assert not board.is_ready("0/1", 1)
    assert not board.is_ready("0/1", 3)
    board.last_words("0/1", 1, "MemoryError: no room for ü")
    assert board.read_last_words("0/1", 1) == "MemoryError: no room for ü"
    assert board.read_last_words("0/1", 2) is None


def test_units_are_taken_once_all_have_said_them(board: Board) -> None:
    for gpu in GPUS[:-1]:
        board.say_units(3, 7, gpu, f"hashes of {gpu}")
        assert board.take_units(3, 7, GPUS) is None
    board.say_units(3, 7, GPUS[-1], f"hashes of {GPUS[-1]}")
    said = board.take_units(3, 7, GPUS)
    assert said == {gpu: f"hashes of {gpu}".encode() for gpu in GPUS}
    assert board.take_units(3, 7, GPUS) is None


def test_no_two_kinds_of_work_share_a_key() -> None:
    keys = [
        work_key(generation, kind, step)
        for generation in (1, 11)
        for kind in ("train", "validate", "units")
        for step in (1, 11)
    ]
    assert len(set(keys)) == len(keys)


def test_the_store_listens_on_the_given_address_only() -> None:
    store, port = host_store("127.0.0.1", 0)
    mine = psutil.Process().net_connections(kind="inet")
    listening = {
        c.laddr.ip for c in mine if c.status == psutil.CONN_LISTEN and c.laddr.port == port
    }
    assert listening == {"127.0.0.1"}
    with pytest.raises(OSError), socket.create_connection(("127.0.0.2", port), timeout=1.0):
        pass
    client = connect_store("127.0.0.1", port, 10.0)
    client.set("key", "value")
    assert store.get("key") == b"value"


def test_a_port_in_use_or_a_foreign_address_is_refused(hosted: Hosted) -> None:
    with pytest.raises(BadInput, match=rf"\[run\] address = 127\.0\.0\.1, port = {hosted[1]}: "):
        host_store("127.0.0.1", hosted[1])
    with pytest.raises(BadInput, match=r"address = 192\.0\.2\.1, port = 0: cannot listen"):
        host_store("192.0.2.1", 0)  # a range that no machine has
    with pytest.raises(BadInput, match="address = no host at all"):
        host_store("no host at all", 0)
