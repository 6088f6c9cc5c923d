"""State transfer: units of weights and optimizer state travel to the ranks that lack them.

In: a transfer plan (integers), what this rank holds, a group of all ranks that take part. Out: the
rank's new shard. Every buffer is checksummed by its sender; what arrives wrong is never used.
DESIGN "Generations". Knows nothing of who decided the plan.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from nonuniform.errors import RunFailed
from nonuniform.layout.cuts import ModelPlan
from nonuniform.reshard.transfer import TransferPlan, UnitMove
from nonuniform.train.groups import Group
from nonuniform.train.state import SLOTS, Received, ShardState

SEAL_BYTES = 8  # of the checksum behind each part


@dataclass(frozen=True)
class TransferRoute:
    """Who takes part, in group order (`moves.gpus()` where they have a group of their own), and
    which of them this rank is."""

    plan: ModelPlan
    moves: TransferPlan
    gpus: tuple[str, ...]
    me: str


def transfer(
    route: TransferRoute, held: ShardState | None, group: Group, like: Tensor
) -> tuple[Received, int]:
    """Exchange all units of the plan in one go; (what was received, its bytes).

    `like` gives dtype and device. Raises RunFailed where a checksum disagrees.
    """
    outgoing = [_sealed(_send_buffer(route, held, gpu, like)) for gpu in route.gpus]
    counts = [_receive_count(route, gpu) * like.element_size() + SEAL_BYTES for gpu in route.gpus]
    sent, received = torch.cat(outgoing), outgoing[0].new_empty(sum(counts))
    group.exchange(received, sent, counts, [len(part) for part in outgoing])
    units: dict[tuple[str, int], tuple[Tensor, ...]] = {}
    elements = 0
    for gpu, part in zip(route.gpus, received.split(counts), strict=True):
        values, told = _opened(part, like.dtype)
        if checksum(values) != told:
            raise RunFailed(
                f"GPU {route.me}: {len(values)} elements from GPU {gpu} have checksum "
                f"{checksum(values)}, sent was {told}"
            )
        units.update(_unpack(route, gpu, values))
        elements += len(values)
    return units, elements * like.element_size()


def _sealed(part: Tensor) -> Tensor:
    """The bytes of a part and their checksum, so that one exchange carries both."""
    seal = torch.frombuffer(bytearray(checksum(part).to_bytes(SEAL_BYTES)), dtype=torch.uint8)
    return torch.cat([part.view(torch.uint8), seal.to(part.device)])


def _opened(part: Tensor, dtype: torch.dtype) -> tuple[Tensor, int]:
    # A copy, since the part of another GPU may begin anywhere, and elements may not.
    values = part[:-SEAL_BYTES].clone().view(dtype)
    return values, int.from_bytes(bytes(part[-SEAL_BYTES:].tolist()))


def checksum(part: Tensor) -> int:
    return zlib.crc32(part.detach().cpu().contiguous().view(torch.uint8).numpy().data)


def _moves(route: TransferRoute, source: str, target: str) -> Sequence[UnitMove]:
    return route.moves.between(source, target)


def _send_buffer(
    route: TransferRoute, held: ShardState | None, target: str, like: Tensor
) -> Tensor:
    pieces: list[Tensor] = []
    for move in _moves(route, route.me, target):
        assert held is not None, f"{route.me} is to send {move} and holds nothing"
        for tensor in route.plan.tensors_of(move.family):
            pieces.extend(rows.reshape(-1) for rows in held.unit(tensor, move.unit))
    return torch.cat(pieces) if pieces else like.new_empty(0)


def _receive_count(route: TransferRoute, source: str) -> int:
    elements = sum(
        int(route.plan.unit_elements(move.family)[move.unit])
        for move in _moves(route, source, route.me)
    )
    return elements * len(SLOTS)


def _unpack(
    route: TransferRoute, source: str, part: Tensor
) -> dict[tuple[str, int], tuple[Tensor, ...]]:
    units = {}
    offset = 0
    for move in _moves(route, source, route.me):
        for tensor in route.plan.tensors_of(move.family):
            count = tensor.unit_elements(move.unit)
            slots = part[offset : offset + count * len(SLOTS)].split(count)
            units[tensor.name, move.unit] = tuple(
                slot.view(-1, tensor.row_elements) for slot in slots
            )
            offset += count * len(SLOTS)
    return units
