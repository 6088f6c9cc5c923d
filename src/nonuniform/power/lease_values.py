"""What the machine of `lease.py` speaks in: its state, what it hears, what it orders.

Watts are set points, seconds are of any one clock that does not go back.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

Phase: TypeAlias = Literal["reading", "recording", "setting", "held", "restoring", "settling"]

NO_NEWS = "no news of GPU"
"""How a refusal begins that another moment may mend."""


@dataclass(frozen=True)
class LeaseOptions:
    stale_s: float
    """Without news of a GPU for longer than this, its boost is given up."""
    tolerance_w: float
    """How far a set point that is read back may be from what was set."""
    external_telemetry: bool = False
    """News are samples from elsewhere; else every set point that is read counts as news."""
    settle_s: float = 10.0
    """How long an order to raise may still have its way of which nobody knows what became."""


@dataclass(frozen=True)
class Owed:
    """One line of the record: this GPU has to go back to `restore_w`, and its coolant to the flow
    that it had, if there is a valve."""

    gpu: str
    restore_w: float
    set_point_w: float
    flow_l_per_min: float | None = None


@dataclass(frozen=True)
class Lease:
    """One GPU that a holder wants boosted, or that has to be restored (then without a holder).
    `restore_w` is what was read before anything was set, `known_as` what news call it too. `sure`:
    the raise was read back, so that none is on its way. `good_s`: since when a settling one reads
    as it should. `settled`: for long enough; only its coolant is owed."""

    gpu: str
    holder: str
    set_point_w: float
    nominal_w: float
    phase: Phase
    restore_w: float = math.nan
    known_as: str = ""
    trouble: str = ""
    sure: bool = False
    good_s: float = math.nan
    settled: bool = False
    flow_l_per_min: float | None = None

    @property
    def owed(self) -> Owed:
        return Owed(self.gpu, self.restore_w, self.set_point_w, self.flow_l_per_min)

    @property
    def lower(self) -> Lower:
        """Coolant stays while a raise may be on its way."""
        certain = self.sure or self.settled
        return Lower(self.gpu, self.restore_w, self.flow_l_per_min if certain else None)


@dataclass(frozen=True)
class Holder:
    """Who asked, and how long it is believed to live (`expires_s`); `ends_s` is when the boost is
    over whoever lives; `number` is that of its ask."""

    name: str
    lease_s: float
    expires_s: float
    ends_s: float
    limit_c: float
    number: int = 0


@dataclass(frozen=True)
class State:
    options: LeaseOptions
    holders: tuple[Holder, ...] = ()
    leases: tuple[Lease, ...] = ()
    seen_s: Mapping[str, float] = field(default_factory=dict)
    """When there was news of a GPU."""
    on_disk: tuple[Owed, ...] | None = ()
    """What the record says; None after a write of which nobody knows how far it came."""
    lost: bool = False
    """The record may be gone, or be another's, until it is written again."""
    stopping: bool = False

    @property
    def record(self) -> tuple[Owed, ...]:
        """What the disk must say: all that may be raised, now or by the next order."""
        return tuple(lease.owed for lease in self.leases if lease.phase != "reading")

    @property
    def idle(self) -> bool:
        return not (self.holders or self.leases) and self.on_disk == ()


# ------------------------------------------------------------------------------ what it hears


@dataclass(frozen=True)
class Wish:
    """`known_as`: another name of the GPU, by which news of it may come."""

    gpu: str
    set_point_w: float
    nominal_w: float
    known_as: str = ""


@dataclass(frozen=True)
class Ask:
    """Boost these GPUs, all or none, until `lasts_s` from now at the most. A holder numbers what it
    asks, so that it can tell answers apart."""

    holder: str
    wishes: tuple[Wish, ...]
    lease_s: float
    lasts_s: float = math.inf
    limit_c: float = math.inf
    number: int = 0


@dataclass(frozen=True)
class Renew:
    holder: str


@dataclass(frozen=True)
class Release:
    holder: str


@dataclass(frozen=True)
class Gone:
    """The holder has died."""

    holder: str


Order: TypeAlias = Literal["read", "raise", "lower"]
"""What an answer answers: one that comes late must not be taken for another."""


@dataclass(frozen=True)
class Found:
    """The set point of a GPU as it was read, after an order."""

    gpu: str
    watts: float
    after: Order = "read"
    highest_w: float = math.inf
    lowest_w: float = 0.0
    flow_l_per_min: float | None = None


@dataclass(frozen=True)
class Refused:
    """What was ordered for a GPU failed, or nobody knows whether it did."""

    gpu: str
    why: str
    after: Order = "read"


@dataclass(frozen=True)
class Written:
    """The record is on disk, to outlive a power cut."""

    owed: tuple[Owed, ...]


@dataclass(frozen=True)
class NotWritten:
    why: str


@dataclass(frozen=True)
class RecordLost:
    """What is on disk is not what was written there."""


@dataclass(frozen=True)
class Sample:
    """News of a GPU from elsewhere."""

    gpu: str
    temperature_c: float


@dataclass(frozen=True)
class Tick:
    """A period has passed."""


@dataclass(frozen=True)
class Stop:
    """Give everything up, and take nothing on."""


HolderEvent: TypeAlias = Ask | Renew | Release | Gone
Event: TypeAlias = (
    HolderEvent | Found | Refused | Written | NotWritten | RecordLost | Sample | Tick | Stop
)


# ----------------------------------------------------------------------------- what it orders


@dataclass(frozen=True)
class Read:
    """`before` a boost: all that may have to be restored."""

    gpu: str
    before: bool = False


@dataclass(frozen=True)
class Write:
    owed: tuple[Owed, ...]


@dataclass(frozen=True)
class Raise:
    gpu: str
    watts: float


@dataclass(frozen=True)
class Lower:
    """To `watts`, unless it is lower already; then the coolant to its flow, if one is given."""

    gpu: str
    watts: float
    flow_l_per_min: float | None = None


@dataclass(frozen=True)
class Tell:
    """Granted, or not (any more): then the holder falls back to `ntp`."""

    holder: str
    granted: bool
    reason: str
    number: int = 0


@dataclass(frozen=True)
class Note:
    """For the log of events."""

    kind: Literal["boost_restored", "boost_not_restored", "boost_record"]
    gpu: str
    reason: str


Action: TypeAlias = Read | Write | Raise | Lower | Tell | Note
