"""Decisions of the step transaction, as pure functions.

In: what was committed, the votes of the ranks, who lives. Out: which transaction comes next,
whether it is committed, and the numbers that the step log gets. DESIGN "The step is a transaction":
a rank votes when all it needs for the step is in its own memory, and a step is committed by all or
by none. Knows nothing of torch, stores, clocks or processes.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from nonuniform.errors import RunFailed, StateWrong

WorkKind = Literal["train", "validate", "done"]
VoteKind = Literal["train", "validate"]


@dataclass(frozen=True)
class WorkOptions:
    """`steps` of the run; validation after every `val_every` steps and the last one (0: never)."""

    steps: int
    val_every: int = 0


@dataclass(frozen=True)
class Work:
    """The transaction to do next; of a validation, `step` is the training step it measures."""

    kind: WorkKind
    step: int


@dataclass(frozen=True)
class Vote:
    """A rank's word that it can do the step: `loss_sum` over `tokens`, of all replicas together;
    `busy_s`: seconds of own work in it, without waits for others."""

    gpu: str
    generation: int
    kind: VoteKind
    step: int
    digest: str
    loss_sum: float
    tokens: int
    grad_norm: float
    finite: bool
    busy_s: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Valid JSON also for NaN and infinity, which become strings; nothing is rounded."""
        row = dict(vars(self))
        for name in ("loss_sum", "grad_norm"):
            row[name] = row[name] if math.isfinite(row[name]) else str(row[name])
        return row

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Vote:
        floats = {name: float(data[name]) for name in ("loss_sum", "grad_norm")}
        return cls(**{**data, **floats})


class Outcome(enum.StrEnum):
    COMMIT = "commit"
    ABORT = "abort"
    WAIT = "wait"


@dataclass(frozen=True)
class StepTotals:
    """What all ranks found together: mean loss, tokens and norm of the whole step."""

    loss: float
    tokens: int
    grad_norm: float
    finite: bool


def work_after(step: int, validated: int, options: WorkOptions) -> Work:
    """What follows the last committed training step (0: none) and the last committed validation."""
    last = step >= options.steps
    due = options.val_every > 0 and step > 0 and (last or step % options.val_every == 0)
    # Not "<": after a return to an older checkpoint `validated` may be ahead of the step.
    if due and validated != step:
        return Work("validate", step)
    return Work("done", step) if last else Work("train", step + 1)


def decide(
    votes: Mapping[str, Vote],
    living: Collection[str],
    members: Collection[str],
    generation: int,
    step: int,
    digest: str,
) -> tuple[Outcome, str]:
    """The outcome of one transaction, whose votes are given by GPU.

    Votes of another generation or step count as not given: they came late. Those of a GPU that has
    died since count, but they are not needed.
    """
    given = {
        gpu: vote
        for gpu, vote in votes.items()
        if gpu in members and (vote.generation, vote.step) == (generation, step)
    }
    _check_same_work(given, digest)
    alive = sorted(gpu for gpu in members if gpu in living)
    dead = sorted(gpu for gpu in members if gpu not in living)
    missing = [gpu for gpu in alive if gpu not in given]
    if not alive:
        return Outcome.ABORT, f"none of {len(members)} members is alive"
    if not missing:
        since = f", {_names(dead)} died" if dead else ""
        return Outcome.COMMIT, f"all {len(alive)} living members voted{since}"
    if dead:
        return Outcome.ABORT, f"{_names(dead)} died and {_names(missing)} had not voted"
    return Outcome.WAIT, f"waiting for {_names(missing)}"


def step_totals(votes: Mapping[str, Vote], digest: str) -> StepTotals:
    """What the votes of one committed transaction say; all say the same, bit for bit.

    If they do not, the replicas have already drifted apart, and going on would hide it.
    """
    _check_same_work(votes, digest)
    given = [vote for _, vote in sorted(votes.items())]
    if not given:
        raise RunFailed("a transaction was committed without a vote")
    first = given[0]
    for vote in given:
        for name in ("tokens", "loss_sum", "grad_norm"):
            _check_equal(name, first, vote)
    if first.tokens == 0:
        raise RunFailed(f"step {first.step}: no target counts, so there is no loss to speak of")
    return StepTotals(
        loss=first.loss_sum / first.tokens,
        tokens=first.tokens,
        grad_norm=first.grad_norm,
        finite=all(vote.finite for vote in given),
    )


def _check_equal(name: str, first: Vote, vote: Vote) -> None:
    # By bits: NaN is the same as NaN here, and a difference in the last place is one.
    one, other = float(getattr(first, name)), float(getattr(vote, name))
    if one.hex() != other.hex():
        raise StateWrong(
            f"step {vote.step}: ranks disagree on {name}: "
            f"{first.gpu} has {one!r}, {vote.gpu} has {other!r}"
        )


def _check_same_work(given: Mapping[str, Vote], digest: str) -> None:
    kinds = {vote.kind: gpu for gpu, vote in sorted(given.items())}
    if len(kinds) > 1:
        both = " and ".join(f'"{kind}" by {gpu}' for kind, gpu in sorted(kinds.items()))
        raise StateWrong(f"votes for different work at one step: {both}")
    for gpu, vote in sorted(given.items()):
        if vote.digest != digest:
            raise StateWrong(
                f"step {vote.step}, generation {vote.generation}: {gpu} voted for placement "
                f"{vote.digest}, the run has {digest}"
            )


def _names(gpus: Iterable[str]) -> str:
    return ", ".join(gpus)
