"""Ranks as threads: groups that meet in memory, with the same interface as real ones.

In: a number of ranks, a function for each. Out: what each returned. A rank that raises breaks the
meetings of all others, so nobody waits for ever.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from nonuniform.train.groups import Reduction, SoloGroup

T = TypeVar("T")
PATIENCE_S = 10.0


class Meeting:
    """What the ranks of one group share."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.barrier = threading.Barrier(size, timeout=PATIENCE_S)
        self.brought: list[list[Tensor]] = [[] for _ in range(size)]

    def group(self, rank: int) -> ThreadGroup | SoloGroup:
        return SoloGroup() if self.size == 1 else ThreadGroup(self, rank)


class ThreadGroup:
    """One rank's end of a meeting."""

    def __init__(self, meeting: Meeting, rank: int) -> None:
        self.rank = rank
        self.size = meeting.size
        self._meeting = meeting

    def all_reduce(self, tensor: Tensor, op: Reduction = "sum") -> None:
        everyone = self._show([tensor.detach().clone()])
        total = everyone[0][0].clone()
        for (other,) in everyone[1:]:
            total = total + other if op == "sum" else torch.maximum(total, other)
        tensor.copy_(total)

    def exchange(
        self,
        received: Tensor,
        sent: Tensor,
        received_counts: Sequence[int],
        sent_counts: Sequence[int],
    ) -> None:
        assert len(sent_counts) == len(received_counts) == self.size
        everyone = self._show(list(sent.clone().split(list(sent_counts))))
        mine = [parts[self.rank] for parts in everyone]
        assert [len(part) for part in mine] == list(received_counts)
        received.copy_(torch.cat(mine))

    def _show(self, parts: list[Tensor]) -> list[list[Tensor]]:
        """Bring something, see what everybody brought."""
        self._meeting.brought[self.rank] = parts
        self._meeting.barrier.wait()
        everyone = list(self._meeting.brought)
        self._meeting.barrier.wait()
        return everyone


def run_ranks(ranks: Sequence[Callable[[], T]], meetings: Sequence[Meeting] = ()) -> list[T]:
    """Run all at once; the first exception that is not a broken meeting is raised."""
    answers: dict[int, T] = {}
    failures: list[BaseException] = []

    def body(index: int) -> None:
        try:
            answers[index] = ranks[index]()
        except BaseException as error:
            failures.append(error)
            for meeting in meetings:
                meeting.barrier.abort()

    threads = [threading.Thread(target=body, args=(i,), daemon=True) for i in range(len(ranks))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * PATIENCE_S)
    failures.sort(key=lambda error: isinstance(error, threading.BrokenBarrierError))
    if failures:
        raise failures[0]
    assert len(answers) == len(ranks), f"{len(ranks) - len(answers)} ranks did not end"
    return [answers[index] for index in range(len(ranks))]
