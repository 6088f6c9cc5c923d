"""How long a change of membership took, part by part.

In: moments on the launcher's clock and what the ranks measured. Out: one event, at the first
commit of the new generation: detect (kill to notice; only known for a scripted kill), regroup
(notice to new groups everywhere), transfer (units moved and the model cut anew), redo (the
dropped step done again). Knows nothing of how the parts work.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from nonuniform.protocol.record import Record
from nonuniform.train.chronicle import Chronicle
from nonuniform.train.membership import Board


@dataclass
class Recovery:
    """One change of membership, or several that came before the next commit. Moments in seconds
    of the monotonic clock; `detect_s` is the longest that a scripted kill went unnoticed."""

    noticed_s: float
    step: int
    detect_s: float | None = None
    published_s: float = 0.0
    lost: list[str] = field(default_factory=list)
    joined: list[str] = field(default_factory=list)

    def add_loss(self, gpu: str, killed_s: float | None, noticed_s: float) -> None:
        """`killed_s`: when it was killed on order; None if it died by itself."""
        if gpu not in self.lost:
            self.lost.append(gpu)
        if killed_s is not None:
            self.detect_s = max(self.detect_s or 0.0, noticed_s - killed_s)

    def finish(self, board: Board, record: Record, chronicle: Chronicle) -> None:
        """At the first commit of the new generation: everybody has settled by then."""
        committed_s = time.monotonic()
        found = [board.read_settled(record.generation, m.gpu) for m in record.placement.members()]
        settled = [one for one in found if one is not None]
        groups_s = max((one.groups_s for one in settled), default=0.0)
        transfer_s = max((one.transfer_s for one in settled), default=0.0)
        ready_s = self.published_s + groups_s + transfer_s
        extra = {
            "detect_s": self.detect_s,
            "regroup_s": self.published_s - self.noticed_s + groups_s,
            "transfer_s": transfer_s,
            "redo_s": max(0.0, committed_s - ready_s),
            "transfer_bytes": sum(one.received_bytes for one in settled),
            "total_s": committed_s - self.noticed_s + (self.detect_s or 0.0),
        }
        degrees = ", ".join(
            f"replica {entry.replica} at degree {entry.degree}"
            for entry in record.placement.replicas
        )
        where = {"step": self.step, "generation": record.generation}
        if self.lost:
            text = f"{', '.join(self.lost)} failed: going on with {degrees}"
            chronicle.event("recovery", text, gpu=self.lost[0], extra=extra, **where)
        for gpu in self.joined:
            text = f"GPU {gpu} joined: going on with {degrees}"
            chronicle.event("joined", text, gpu=gpu, extra=extra, **where)
