"""The life of one rank in one generation, as a pure state machine.

    WORK --done--> VOTE --> COUNT --not last--> WAIT --commit--> APPLY --> WORK
                              |                  ^   --abort---> OVER      (or DONE, or REST)
                              +--last--> LOOK --> DECIDE

`next_action` says what the rank does next, `after` what follows from how it went; whoever executes
does one action at a time, which takes effect at one moment. DESIGN "The step is a transaction": a
rank votes when all it needs for the step is in its own memory, from then on only the outcome counts
for it, and the last of all voters decides. Knows nothing of tensors, stores or clocks.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

from nonuniform.protocol.commit import Work, WorkOptions, work_after
from nonuniform.protocol.outcome import COMMIT, COMMIT_AND_REGROUP, is_commit


class Stage(enum.StrEnum):
    WORK = "work"
    VOTE = "vote"
    COUNT = "count"
    LOOK = "look"
    DECIDE = "decide"
    WAIT = "wait"
    APPLY = "apply"
    OVER = "over"  # the generation ended without a commit of what was under way
    REST = "rest"  # a commit that asked everybody to regroup
    DONE = "done"  # all work is committed


ENDS = (Stage.OVER, Stage.REST, Stage.DONE)


@dataclass(frozen=True)
class Rank:
    """`members`: how many votes make a transaction complete; `step` and `validated`: what this rank
    has applied; `wish`: what it will propose, or what was decided."""

    members: int
    step: int
    validated: int
    options: WorkOptions
    stage: Stage = Stage.WORK
    wish: str = COMMIT

    @property
    def work(self) -> Work:
        return work_after(self.step, self.validated, self.options)


def settled(members: int, step: int, validated: int, options: WorkOptions) -> Rank:
    """A rank that holds the state of `step` and has just entered a generation."""
    return _next(Rank(members, step, validated, options))


def worked(rank: Rank) -> Rank:
    """The work was done, nothing of it is applied."""
    return _from(rank, Stage.WORK, Stage.VOTE)


def given_up(rank: Rank) -> Rank:
    """The generation ended while the rank worked: nothing was promised, nothing is kept."""
    return _from(rank, Stage.WORK, Stage.OVER)


def voted(rank: Rank) -> Rank:
    return _from(rank, Stage.VOTE, Stage.COUNT)


def counted(rank: Rank, votes: int) -> Rank:
    """`votes`: how many were counted with this one. A vote that was counted twice makes more of
    them than members, so whoever may be the last looks whether all are there."""
    return _from(rank, Stage.COUNT, Stage.LOOK if votes >= rank.members else Stage.WAIT)


def looked(rank: Rank, complete: bool, pause: bool) -> Rank:
    wish = COMMIT_AND_REGROUP if pause else COMMIT
    return replace(_from(rank, Stage.LOOK, Stage.DECIDE if complete else Stage.WAIT), wish=wish)


def proposed(rank: Rank) -> Rank:
    return _from(rank, Stage.DECIDE, Stage.WAIT)


def decided(rank: Rank, outcome: str) -> Rank:
    stage = Stage.APPLY if is_commit(outcome) else Stage.OVER
    return replace(_from(rank, Stage.WAIT, stage), wish=outcome)


def applied(rank: Rank) -> Rank:
    work = rank.work
    if work.kind == "train":
        rank = replace(rank, step=work.step)
    else:
        rank = replace(rank, validated=work.step)
    after = _next(_from(rank, Stage.APPLY, Stage.WORK))
    if rank.wish == COMMIT_AND_REGROUP and after.stage is not Stage.DONE:
        return replace(after, stage=Stage.REST)
    return after


def _next(rank: Rank) -> Rank:
    return replace(rank, stage=Stage.DONE if rank.work.kind == "done" else Stage.WORK)


def _from(rank: Rank, stage: Stage, to: Stage) -> Rank:
    assert rank.stage is stage, f"{rank.stage} where {stage} was expected"
    return replace(rank, stage=to)
