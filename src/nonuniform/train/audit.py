"""The debug check `[run] check_units`: every copy of every unit is the same after every step.

In: a rank's shard. Out: a hash per tensor and unit over weights and optimizer state; and from the
hashes of all ranks the units that differ. DESIGN "Gradient sync": all owners get the primary's
bits, so copies stay equal to the bit. Costs a pass over all state: not for production.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping

from nonuniform.protocol.record import Record
from nonuniform.train.membership import Board
from nonuniform.train.state import ShardState

Hashes = dict[str, dict[str, int]]
"""tensor name -> unit -> hash."""


def unit_hashes(state: ShardState) -> Hashes:
    """Hashes of all units that this rank holds."""
    hashes: Hashes = {}
    for tensor in state.plan.tensors:
        slots = [matrix.detach().cpu().numpy() for matrix in state.matrices[tensor.name]]
        hashes[tensor.name] = {}
        for unit, (start, stop) in state.unit_rows(tensor).items():
            value = 0
            for slot in slots:
                value = zlib.crc32(slot[start:stop].data, value)
            hashes[tensor.name][str(unit)] = value
    return hashes


def disagreements(by_gpu: Mapping[str, Hashes]) -> list[str]:
    """One line per unit whose copies differ, naming the GPUs on both sides."""
    seen: dict[tuple[str, str], dict[int, list[str]]] = {}
    for gpu, hashes in sorted(by_gpu.items()):
        for tensor, units in hashes.items():
            for unit, value in units.items():
                seen.setdefault((tensor, unit), {}).setdefault(value, []).append(gpu)
    return [
        f"{tensor} unit {unit}: " + " differ from ".join(", ".join(g) for g in values.values())
        for (tensor, unit), values in seen.items()
        if len(values) > 1
    ]


class Auditor:
    """Compares the hashes of each step once all ranks have told them."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._open: list[tuple[int, Record]] = []

    def expect(self, step: int, record: Record) -> None:
        self._open.append((step, record))

    def complaint(self, current: Record) -> str | None:
        """What is wrong with the steps heard of since the last call, if anything."""
        for step, record in list(self._open):
            gpus = [member.gpu for member in record.placement.members()]
            said = self._board.take_units(record.generation, step, gpus)
            if said is not None:
                self._open.remove((step, record))
                wrong = disagreements({gpu: loads(text) for gpu, text in said.items()})
                if wrong:
                    return f"after step {step} {len(wrong)} units differ: {wrong[0]}"
            elif record is not current:
                self._open.remove((step, record))  # a member died before it could tell
        return None


def dumps(hashes: Hashes) -> str:
    return json.dumps(hashes, separators=(",", ":"))


def loads(text: str | bytes) -> Hashes:
    hashes: Hashes = json.loads(text)
    return hashes
