"""How a failure log is to be read: what a person says about it, as a value.

In: the keys of a scenario's log section, or none of them. Out: frozen values, checked for what can
be checked without the file. DESIGN "Outside contract". Knows nothing of files: `read.py` reads
them.

A log has one row per failure (`columns.start` and `columns.end` or `columns.duration`), or one row
per event (`columns.time` and `columns.event`), which `pairing.py` puts together. Slurm's texts and
kernel logs name their own columns; there `columns` is not looked at.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal, get_args

from nonuniform.errors import BadInput

FileKind = Literal["", "csv", "parquet", "jsonl", "json", "sacct", "scontrol", "xid"]
TimeUnit = Literal["iso", "day", "hour", "minute", "s", "ms"]
NodeOrder = Literal["first-failure", "name", "number", "random"]
Expand = Literal["", "node", "one-gpu"]
Orphans = Literal["bad", "since-window"]

HOURS: dict[str, float] = {
    "day": 24.0,
    "hour": 1.0,
    "minute": 1 / 60,
    "s": 1 / 3600,
    "ms": 1 / 3_600_000,
}

_PCI = re.compile(r"([0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}")


def _one_of(key: str, value: str, kind: object) -> None:
    known = get_args(kind)
    if value not in known:
        listed = ", ".join(f'"{word}"' for word in known if word)
        raise BadInput(f'log: {key} = "{value}", expected one of {listed}')


@dataclass(frozen=True)
class Columns:
    """Which column says what; "" where the log has none. `a.b` is key `b` of the object in `a`.

    `gpu` is the GPU's index in its node; with `node` = "" it is its number in the fleet. The values
    of several `cause` columns are put together."""

    node: str = "node"
    gpu: str = ""
    start: str = "start"
    end: str = "end"
    duration: str = ""
    time: str = ""
    event: str = ""
    starts: str = "start"
    ends: str = "end"
    cause: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.node and not self.gpu:
            raise BadInput(
                'log: columns.node and columns.gpu are both "": one must say what failed'
            )
        if bool(self.time) != bool(self.event):
            raise BadInput(
                f'log: columns.time = "{self.time}" and columns.event = "{self.event}": '
                "a log of events needs both, one of failures neither"
            )
        if not self.time and not self.start:
            raise BadInput('log: columns.start = "", expected a column (or time and event)')
        if self.time and self.starts == self.ends:
            raise BadInput(f'log: columns.starts and columns.ends are both "{self.starts}"')

    @property
    def names(self) -> tuple[str, ...]:
        """All columns that are read."""
        when = (self.time, self.event) if self.time else (self.start, self.duration or self.end)
        return tuple(dict.fromkeys(n for n in (self.node, self.gpu, *when, *self.cause) if n))


@dataclass(frozen=True)
class Clock:
    """How times are written. `zone` (an IANA name) is for those that name no zone, `year` for those
    of a kernel log that name no year: that of its first line."""

    unit: TimeUnit = "iso"
    zone: str = "UTC"
    year: int = 0

    def __post_init__(self) -> None:
        _one_of("clock.unit", self.unit, TimeUnit)


@dataclass(frozen=True)
class Window:
    """The stretch that is looked at, written as the log writes times; None: its first or last
    time."""

    start: float | str | None = None
    end: float | str | None = None


@dataclass(frozen=True)
class Nodes:
    """Which number a node's name stands for, from 0. `names` lists them in order. Otherwise by
    `order`: "number" takes the last digits of the name itself, "random" scatters the names over the
    fleet by `seed`."""

    names: tuple[str, ...] = ()
    order: NodeOrder = "first-failure"
    seed: int = 0

    def __post_init__(self) -> None:
        _one_of("nodes.order", self.order, NodeOrder)
        if self.seed < 0:
            raise BadInput(f"log: nodes.seed = {self.seed}, expected 0 or more")
        if len(set(self.names)) < len(self.names):
            twice = next(n for i, n in enumerate(self.names) if n in self.names[:i])
            raise BadInput(f'log: nodes.names holds "{twice}" twice')


@dataclass(frozen=True)
class LogFormat:
    """All of it. `format` = "" goes by the file's suffix.

    `expand` says what a failure of a node means where no GPU is named: all its GPUs, or one.
    `repair_h` is how long a failure lasts whose end nobody wrote down; 0: to the end of the window.
    `instant_s` is how long a failure lasts that ended when it began; 0 leaves it out.
    `end_without_start` = "since-window" reads such an end as a failure that was there at the start.
    `lost_xids` = () takes those of `xid.py`. `pci`: the PCI addresses of a node, in GPU order."""

    format: FileKind = ""
    columns: Columns = Columns()
    clock: Clock = Clock()
    window: Window = Window()
    nodes: Nodes = Nodes()
    expand: Expand = ""
    repair_h: float = 0.0
    instant_s: float = 1.0
    end_without_start: Orphans = "bad"
    lost_xids: tuple[int, ...] = ()
    pci: tuple[str, ...] = ()
    delimiter: str = ","

    def __post_init__(self) -> None:
        _one_of("format", self.format, FileKind)
        _one_of("expand", self.expand, Expand)
        _one_of("end_without_start", self.end_without_start, Orphans)
        for key, value in (("repair_h", self.repair_h), ("instant_s", self.instant_s)):
            if not 0 <= value < math.inf:
                raise BadInput(f"log: {key} = {value:g}, expected a finite number, 0 or more")
        for address in self.pci:
            if not _PCI.fullmatch(address):
                raise BadInput(f"log: pci holds {address!r}, expected one such as 0000:3b:00")
        if len(self.delimiter) != 1 or self.delimiter in '"\r\n':
            raise BadInput(f"log: delimiter = {self.delimiter!r}, expected one character")
