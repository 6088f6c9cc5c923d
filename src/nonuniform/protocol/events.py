"""What the control of a run hears, and what it orders. Plain values.

Events come from the outside: processes that end, words on the board, people, other machines. Orders
go back there. Knows nothing of how they are heard and carried out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nonuniform.protocol.commit import Vote, Work
from nonuniform.protocol.record import Position, Record, Report

# --- events


@dataclass(frozen=True)
class Ended:
    """A process is gone. `raised`: by an exception of its own, whose words are the reason;
    `working`: it held its shard of the generation by then, so the step may be to blame."""

    gpu: str
    life: int
    reason: str
    raised: bool = False
    working: bool = True


@dataclass(frozen=True)
class Hung:
    """A process shows no progress; it may still run."""

    gpu: str
    life: int
    reason: str


@dataclass(frozen=True)
class Stalled:
    """Nothing is committed though every process is well and waits for the others."""

    reason: str


@dataclass(frozen=True)
class Drained:
    """Somebody wants a GPU out that still works; `if_possible`: not if the run would end of it."""

    gpu: str
    reason: str
    if_possible: bool = False


@dataclass(frozen=True)
class Returned:
    """A GPU is said to be well again."""

    gpu: str
    reason: str = ""


@dataclass(frozen=True)
class Started:
    """A process was started, as ordered."""

    gpu: str
    life: int


@dataclass(frozen=True)
class Ready:
    """A process has warmed up and waits to be placed."""

    gpu: str
    life: int


@dataclass(frozen=True)
class SettledIn:
    """A rank holds its shard of the generation."""

    gpu: str
    generation: int


@dataclass(frozen=True)
class Reported:
    """A process has given a generation up and says what it holds."""

    report: Report
    life: int
    generation: int


@dataclass(frozen=True)
class Voted:
    """The votes that there are, as asked for."""

    generation: int
    work: Work
    votes: Mapping[str, Vote]


@dataclass(frozen=True)
class Decided:
    """What a transaction came to; with the votes of a commit."""

    generation: int
    work: Work
    outcome: str
    votes: Mapping[str, Vote] = field(default_factory=dict)


@dataclass(frozen=True)
class Found:
    """The newest checkpoint that can be read, as asked for; None: there is none."""

    position: Position | None
    name: str = ""


@dataclass(frozen=True)
class Saved:
    """The checkpoint of a saving generation is complete (`problem` is empty) or came to nothing."""

    generation: int
    problem: str = ""


@dataclass(frozen=True)
class Interrupted:
    """A person wants the run to end; `save`: there is time for a checkpoint."""

    reason: str
    save: bool = True


@dataclass(frozen=True)
class Tick:
    """Time has passed."""


Event = (
    Ended
    | Hung
    | Stalled
    | Drained
    | Returned
    | Started
    | Ready
    | SettledIn
    | Reported
    | Voted
    | Decided
    | Found
    | Saved
    | Interrupted
    | Tick
)

# --- orders


@dataclass(frozen=True)
class Start:
    """Start a process for a GPU that is said to be well."""

    gpu: str


@dataclass(frozen=True)
class Kill:
    """End a process, in whatever state it is."""

    gpu: str
    life: int


@dataclass(frozen=True)
class ReadVotes:
    generation: int
    work: Work


@dataclass(frozen=True)
class Propose:
    """Set the outcome, unless it is set already; what it is comes back as `Decided`. `reason`: who
    had voted and who had not."""

    generation: int
    work: Work
    outcome: str
    reason: str


@dataclass(frozen=True)
class WriteDown:
    """A transaction was committed: into the log, once."""

    record: Record
    work: Work
    votes: Mapping[str, Vote]


@dataclass(frozen=True)
class Pause:
    """Let the generation end at its next commit."""

    generation: int


@dataclass(frozen=True)
class EndGeneration:
    """Tell all its members to give up."""

    generation: int
    reason: str


@dataclass(frozen=True)
class Publish:
    """`joined` and `lost`: the GPUs whose coming and going led to it, since the last commit."""

    record: Record
    reason: str
    joined: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()


@dataclass(frozen=True)
class LookForCheckpoint:
    """Which checkpoint can be read; comes back as `Found`."""


@dataclass(frozen=True)
class Rewind:
    """Go on after `position`: later steps are taken out of the log, they come again."""

    position: Position
    reason: str
    lost_steps: int


@dataclass(frozen=True)
class Tell:
    """Into the event log, as of `generation`."""

    generation: int
    kind: str
    reason: str
    gpu: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Over:
    """Nothing is left to do; `failed`: the run could not go on."""

    failed: bool
    reason: str


Order = (
    Start
    | Kill
    | ReadVotes
    | Propose
    | WriteDown
    | Pause
    | EndGeneration
    | Publish
    | LookForCheckpoint
    | Rewind
    | Tell
    | Over
)
