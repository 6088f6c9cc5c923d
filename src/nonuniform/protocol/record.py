"""What processes tell each other about a generation, as plain values.

In and out: frozen values and their JSON. DESIGN "Generations". Knows nothing of how they travel
and of who decides what is in them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from nonuniform.errors import RunFailed
from nonuniform.placement.placement import Placement
from nonuniform.protocol.commit import Vote


class UnitsLost(RunFailed):
    """No living GPU holds some units; the message names them."""


Task = Literal["train", "save", "leave"]


@dataclass(frozen=True)
class Record:
    """A generation as every process reads it.

    `holdings`: gpu -> (degree, label) of the living GPUs whose state is that of `step`;
    `home`: gpu -> replica it worked in. At step 0 state comes from the seed, and where `load` names
    a checkpoint from there: then nobody holds anything. `lives`: gpu -> life of every process that
    the generation knows, so that one that was given up, and runs all the same, can tell.
    `task`: to train; to write a checkpoint of `holdings`; to end. `moving`: the GPUs that
    take part in an exchange of units; nobody else need work out which move.
    """

    generation: int
    placement: Placement
    step: int
    validated: int
    digest: str
    holdings: Mapping[str, tuple[int, int]]
    home: Mapping[str, int]
    lives: Mapping[str, int] = field(default_factory=dict)
    task: Task = "train"
    load: str = ""
    moving: tuple[str, ...] = ()

    def to_json(self) -> str:
        row = {**vars(self), "placement": self.placement.to_json()}
        return json.dumps(row)

    @classmethod
    def from_json(cls, text: str | bytes) -> Record:
        row = json.loads(text)
        row["placement"] = Placement.from_json(row["placement"])
        row["moving"] = tuple(row["moving"])
        row["holdings"] = {gpu: tuple(where) for gpu, where in row["holdings"].items()}
        return cls(**row)


@dataclass(frozen=True)
class Report:
    """What a process holds when a generation is over; degree 0: nothing."""

    gpu: str
    step: int
    degree: int
    label: int


@dataclass(frozen=True)
class Settled:
    """How long a rank took to hold its shard of a generation, and what it received."""

    gpu: str
    groups_s: float
    transfer_s: float
    received_bytes: int


@dataclass(frozen=True)
class Position:
    """What is committed: the last training step and the last validated one."""

    step: int
    validated: int


@dataclass(frozen=True)
class LoggedStep:
    """What the step log says of a step, as a rank remembers it; by replica."""

    vote: Vote
    degrees: Mapping[int, int]
    shares: Mapping[int, int]

    @classmethod
    def of(cls, vote: Vote, placement: Placement) -> LoggedStep:
        return cls(
            vote=vote,
            degrees={entry.replica: entry.degree for entry in placement.replicas},
            shares={entry.replica: entry.share for entry in placement.replicas},
        )

    def to_json(self) -> dict[str, Any]:
        """Pairs, since the keys of a JSON object are text."""
        return {
            "vote": self.vote.to_json(),
            "degrees": [list(pair) for pair in sorted(self.degrees.items())],
            "shares": [list(pair) for pair in sorted(self.shares.items())],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> LoggedStep:
        vote = Vote.from_json(data["vote"])
        return cls(vote, dict(data["degrees"]), dict(data["shares"]))
