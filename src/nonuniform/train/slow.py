"""Slow ranks of a live run: measured with every committed step, told, and drained if wanted.

In: the votes of a step, which carry each rank's seconds of own work. Out: events in the log, and
the wish to drain. On a GPU that works by itself the host's seconds say less: there only a host that
is slow is seen. Knows nothing of what a drain leads to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from nonuniform.cluster.slow import SlowOptions, SlowWatch
from nonuniform.config import HealthConfig
from nonuniform.protocol.commit import Vote
from nonuniform.protocol.events import Drained
from nonuniform.protocol.record import Record
from nonuniform.train.chronicle import Chronicle


class SlowRanks:
    """Watches the busy seconds of all ranks."""

    def __init__(self, options: HealthConfig) -> None:
        self._action = options.slow_action
        self._watch = SlowWatch(SlowOptions(options.slow_factor, options.slow_steps))

    def after(
        self, step: int, record: Record, votes: Mapping[str, Vote], chronicle: Chronicle
    ) -> Iterator[Drained]:
        """With a committed step; an equal part of the work takes equal GPUs equally long."""
        if self._action == "ignore":
            return
        entries = {entry.replica: entry for entry in record.placement.replicas}
        busy_s, work = {}, {}
        for member in record.placement.members():
            entry = entries[member.replica]
            if vote := votes.get(member.gpu):
                busy_s[member.gpu] = vote.busy_s * entry.degree / entry.share
                work[member.gpu] = (entry.degree, entry.share)
        self._watch = self._watch.after_step(busy_s, work)
        for slow in self._watch.verdicts():
            where = {"step": step, "generation": record.generation}
            chronicle.event("slow", slow.reason, slow.gpu, extra={"ratio": slow.ratio}, **where)
            if self._action == "drain":
                yield Drained(slow.gpu, f"slow: {slow.reason}", if_possible=True)
