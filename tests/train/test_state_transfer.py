"""State transfer: what a rank lacks arrives bit for bit, or nothing is used at all."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pytest
import torch
from standins.shards import KV_GROUPS, SHARED_KV, Whole, cut, plan_of, same_bits, some_whole
from standins.threads import Meeting, ThreadGroup, run_ranks
from torch import Tensor

from nonuniform.errors import RunFailed
from nonuniform.layout.cuts import ModelPlan
from nonuniform.layout.model_plan import ModelShape
from nonuniform.reshard.transfer import Holding, Target, TransferPlan, plan_transfer
from nonuniform.train.groups import Group
from nonuniform.train.state import SLOTS, ShardState, recut
from nonuniform.train.transfer import TransferRoute, checksum, transfer

LIKE = torch.empty(0, dtype=torch.float32)
Places = dict[str, tuple[int, int]]
"""gpu -> (degree, label)."""


class Garbled:
    """A group that turns one bit of what arrives, of an element or of a checksum."""

    def __init__(self, inner: ThreadGroup, place: int) -> None:
        self.rank, self.size = inner.rank, inner.size
        self._inner, self._place = inner, place

    def all_reduce(self, tensor: Tensor, op: str = "sum") -> None:
        raise AssertionError("a transfer has nothing to reduce")

    def exchange(
        self,
        received: Tensor,
        sent: Tensor,
        received_counts: Sequence[int],
        sent_counts: Sequence[int],
    ) -> None:
        self._inner.exchange(received, sent, received_counts, sent_counts)
        received[self._place] ^= 1


def moves_of(plan: ModelPlan, before: Places, after: Places) -> TransferPlan:
    holdings = [Holding(gpu, *where) for gpu, where in before.items()]
    targets = [Target(gpu, int(gpu[0]), *where) for gpu, where in after.items()]
    return plan_transfer(plan, holdings, targets, {gpu: int(gpu[0]) for gpu in before})


def carry_out(
    plan: ModelPlan, whole: Whole, before: Places, after: Places, garbled: int | None = None
) -> dict[str, tuple[ShardState | None, ShardState, int]]:
    """Every rank that takes part: what it held, what it holds then, bytes received."""
    moves = moves_of(plan, before, after)
    assert moves.missing == ()
    gpus = moves.gpus()
    meeting = Meeting(len(gpus))

    def rank(gpu: str) -> tuple[ShardState | None, ShardState, int]:
        held = cut(plan, whole, *before[gpu], step=5) if gpu in before else None
        group: Group = meeting.group(gpus.index(gpu))
        if garbled is not None and gpu == "0/0":
            assert isinstance(group, ThreadGroup)
            group = Garbled(group, garbled)
        received, count = transfer(TransferRoute(plan, moves, gpus, gpu), held, group, LIKE)
        return held, recut(held or LIKE, plan, after[gpu], 5, received), count

    found = run_ranks([partial(rank, gpu) for gpu in gpus], [meeting])
    return dict(zip(gpus, found, strict=True))


LOSS = (  # replica 0 lost its label 1, whose place the GPU with the last label takes
    {"0/0": (3, 0), "0/2": (3, 2), "1/0": (3, 0), "1/1": (3, 1), "1/2": (3, 2)},
    {"0/0": (2, 0), "0/2": (2, 1), "1/0": (3, 0), "1/1": (3, 1), "1/2": (3, 2)},
)
RETURN = (
    {"0/0": (2, 0), "0/2": (2, 1), "1/0": (3, 0), "1/1": (3, 1), "1/2": (3, 2)},
    {"0/0": (3, 0), "0/2": (3, 1), "0/1": (3, 2), "1/0": (3, 0), "1/1": (3, 1), "1/2": (3, 2)},
)
REBUILT = (
    {"1/0": (3, 0), "1/1": (3, 1), "1/2": (3, 2)},
    {"0/1": (2, 0), "0/2": (2, 1), "1/0": (3, 0), "1/1": (3, 1), "1/2": (3, 2)},
)


@pytest.mark.parametrize("change", [LOSS, RETURN, REBUILT], ids=["loss", "return", "rebuilt"])
@pytest.mark.parametrize("shape", [SHARED_KV, KV_GROUPS], ids=["shared KV", "KV groups"])
def test_every_rank_ends_with_its_shard(shape: ModelShape, change: tuple[Places, Places]) -> None:
    plan = plan_of(shape, 3)
    whole = some_whole(plan, seed=8, dtype=torch.float32)
    before, after = change
    moves = moves_of(plan, before, after)
    found = carry_out(plan, whole, before, after)
    for gpu, (held, holds, _) in found.items():
        assert same_bits(holds, cut(plan, whole, *after[gpu], step=5))
        assert held is None or same_bits(held, cut(plan, whole, *before[gpu], step=5))
    total = sum(count for _, _, count in found.values())
    assert total == moves.elements(plan) * len(SLOTS) * LIKE.element_size()


def test_those_who_only_send_or_only_receive_take_part() -> None:
    """Most pairs have nothing for each other: parts without an element."""
    plan = plan_of(KV_GROUPS, 3)
    moves = moves_of(plan, *REBUILT)
    assert moves.gpus() == ("0/1", "0/2", "1/0", "1/1", "1/2")
    found = carry_out(plan, some_whole(plan, seed=8, dtype=torch.float32), *REBUILT)
    assert {gpu for gpu, (_, _, count) in found.items() if count} == {"0/1", "0/2"}
    assert not moves.between("0/1", "0/2")


def test_nobody_takes_part_where_nothing_moves() -> None:
    plan = plan_of(KV_GROUPS, 3)
    assert moves_of(plan, LOSS[1], LOSS[1]).gpus() == ()


@pytest.mark.parametrize("place", [0, 25, 1001, -9, -1])
def test_what_arrives_wrong_is_never_used(place: int) -> None:
    plan = plan_of(SHARED_KV, 3)
    whole = some_whole(plan, seed=8, dtype=torch.float32)
    with pytest.raises(RunFailed, match=r"^GPU 0/0: \d+ elements from GPU \d/\d have checksum"):
        carry_out(plan, whole, *LOSS, garbled=place)


def test_a_sender_that_was_damaged_after_its_checksum_is_not_believed() -> None:
    """The checksum is the sender's, so a bit that turns on the way there shows."""
    whole = torch.arange(12, dtype=torch.float32)
    damaged = whole.clone()
    damaged[7] = torch.nextafter(damaged[7], torch.tensor(99.0))
    assert checksum(whole) == checksum(whole.clone())
    assert checksum(whole) != checksum(damaged)
    assert checksum(whole) != checksum(whole[:-1])


def test_checksums_of_nothing_and_of_slices() -> None:
    assert checksum(torch.empty(0)) == checksum(torch.empty(0, dtype=torch.float64)) == 0
    matrix = torch.arange(12.0).reshape(3, 4)
    assert checksum(matrix[:, 1:3]) == checksum(matrix[:, 1:3].contiguous())
    assert checksum(torch.tensor([0.0])) != checksum(torch.tensor([-0.0]))


def test_one_who_holds_nothing_is_never_asked_to_send() -> None:
    plan = plan_of(KV_GROUPS, 3)
    moves = moves_of(plan, *LOSS)
    gpus = moves.gpus()
    sender = moves.moves[0].source
    route = TransferRoute(plan, moves, gpus, sender)
    with pytest.raises(AssertionError, match=f"{sender} is to send .* and holds nothing"):
        transfer(route, None, Meeting(len(gpus)).group(0), LIKE)
