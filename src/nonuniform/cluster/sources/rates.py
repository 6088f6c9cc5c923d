"""What fails how often, and how much of the cluster goes with it.

In: a rate in the unit it was published in. Out: failures per day of a whole fleet, and which GPUs
go down when one of them is struck. DESIGN "Two arrows". Knows nothing of when (`generate.py`
draws).

The blast is a block of GPUs: the cluster is cut into blocks of that size from GPU 0 on, and the
block that holds the struck GPU goes down. So a node or a domain goes down as it is, a block is
the same hardware every time, and where its size does not divide the domain it reaches into the
next one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from nonuniform.cluster.fleet import Fleet
from nonuniform.cluster.sources.repair import Repair
from nonuniform.errors import BadInput

Per = Literal["gpu", "node", "domain"]
Blast = Literal["gpu", "board", "node", "domain", "tray"]

MOST_FACTOR = 1e6
"""Beyond it a lemon fails without a pause, and sums of rates lose the others."""

BOARD_GPUS = 2
"""GPUs on one board with their CPU, as in a compute tray of GB200; for others give `blast_gpus`."""


@dataclass(frozen=True)
class Cause:
    """Something that fails: `rate_per_day` times for each `per`, and takes a block with it.

    `blast_gpus` above 0 is the size of the block and overrides `blast`. A switch `tray` takes the
    domain: all its GPUs hang on it, and it is replaced in a drained rack."""

    name: str
    rate_per_day: float
    repair: Repair
    per: Per = "gpu"
    blast: Blast = "gpu"
    blast_gpus: int = 0

    def __post_init__(self) -> None:
        if not self.name:
            raise BadInput("failures: a cause needs a name")
        if not 0 <= self.rate_per_day < math.inf:
            raise BadInput(
                f"failures: {self.name}: rate_per_day = {self.rate_per_day:g}, expected a finite "
                "number, 0 or more"
            )
        for key, value, known in (("per", self.per, Per), ("blast", self.blast, Blast)):
            if value not in get_args(known):
                names = ", ".join(get_args(known))
                raise BadInput(f'failures: {self.name}: {key} = "{value}", expected one of {names}')
        if self.blast_gpus < 0:
            raise BadInput(
                f"failures: {self.name}: blast_gpus = {self.blast_gpus}, expected 0 or more"
            )

    def failures_per_day(self, fleet: Fleet) -> float:
        """Of the whole fleet."""
        return self.rate_per_day * units(self.per, fleet)

    def block(self, fleet: Fleet) -> int:
        """GPUs that go down together, where the fleet does not end before."""
        if self.blast_gpus:
            return min(self.blast_gpus, fleet.gpus)
        sizes = {"gpu": 1, "board": BOARD_GPUS, "node": fleet.node}
        return min(sizes.get(self.blast, fleet.domain), fleet.gpus)

    def mean_block(self, fleet: Fleet) -> float:
        """GPUs that a failure takes down in the mean, the last block of the fleet being shorter."""
        last = fleet.gpus % self.block(fleet)
        missing = self.block(fleet) - last
        if not last:
            return float(self.block(fleet))
        short = np.arange(fleet.gpus - last, fleet.gpus)
        return self.block(fleet) - missing * float(chances(self.per, fleet, short).sum())


@dataclass(frozen=True)
class Lemons:
    """A `share` of the nodes, drawn anew for every seed, fails `factor` times as often as the rest.
    The fleet as a whole fails as often as without them. What strikes per domain knows no nodes."""

    share: float
    factor: float

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise BadInput(f"failures: lemons: share = {self.share:g}, expected between 0 and 1")
        if not 0 < self.factor <= MOST_FACTOR:
            raise BadInput(
                f"failures: lemons: factor = {self.factor:g}, expected a finite number above 0, "
                f"at most {MOST_FACTOR:g}"
            )


@dataclass(frozen=True)
class Bursts:
    """A `share` of the failures comes in bursts: `failures` of one cause in the mean, within
    `within_h` hours, anywhere in the fleet. It fails as often as without them."""

    share: float
    failures: float
    within_h: float

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise BadInput(f"failures: bursts: share = {self.share:g}, expected above 0, at most 1")
        if not 1 <= self.failures < math.inf:
            raise BadInput(f"failures: bursts: failures = {self.failures:g}, expected 1 or more")
        if not 0 < self.within_h < math.inf:
            raise BadInput(
                f"failures: bursts: within_h = {self.within_h:g}, expected a finite number above 0"
            )


def units(per: Per, fleet: Fleet) -> int:
    """How many of them the fleet has."""
    return {"gpu": fleet.gpus, "node": fleet.nodes, "domain": fleet.domains}[per]


def chances(per: Per, fleet: Fleet, gpus: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """That these GPUs are the one that a failure strikes, without lemons: every unit is as likely,
    and within it every GPU. A short last node is one node; GPUs outside domains have no domain."""
    if per == "gpu":
        return np.full(len(gpus), 1 / fleet.gpus)
    if per == "domain":
        return np.where(gpus < fleet.in_domains, 1 / fleet.in_domains, 0.0)
    return 1 / (fleet.nodes * node_sizes(fleet)[gpus // fleet.node])


def node_sizes(fleet: Fleet) -> npt.NDArray[np.int64]:
    """GPUs in each node: the last one may have fewer."""
    sizes = np.full(fleet.nodes, fleet.node, np.int64)
    sizes[-1] = fleet.gpus - (fleet.nodes - 1) * fleet.node
    return sizes


def per_1000_node_days(rate: float) -> float:
    """Failures per node-day, of a rate that is published per 1000 node-days."""
    return rate / 1000


def per_gpu_day(rate_per_1000_node_days: float, node: int = 8) -> float:
    """Failures per GPU-day, of a rate per 1000 days of nodes of `node` GPUs."""
    return rate_per_1000_node_days / (1000 * node)


def observed(count: float, *, units_seen: float, days: float) -> float:
    """Failures per day and unit: `count` of them were seen on so many units in so many days."""
    if not (0 <= count < math.inf and units_seen > 0 and days > 0):
        raise BadInput(
            f"failures: {count:g} failures of {units_seen:g} units in {days:g} days are no rate"
        )
    return count / (units_seen * days)


def lemons_with(share: float, failures_share: float) -> Lemons:
    """Lemons that are a `share` of the nodes and have `failures_share` of the failures."""
    if not 0 < failures_share < 1:
        raise BadInput(
            f"failures: lemons: failures_share = {failures_share:g}, expected between 0 and 1"
        )
    if not 0 < share < 1:
        raise BadInput(f"failures: lemons: share = {share:g}, expected between 0 and 1")
    return Lemons(share, failures_share / (1 - failures_share) * (1 - share) / share)


def check_causes(causes: Iterable[Cause]) -> None:
    """`BadInput` if two have one name: they could not be told apart afterwards."""
    seen: set[str] = set()
    for cause in causes:
        if cause.name in seen:
            name = cause.name.replace("\n", "\\n")
            raise BadInput(f'failures: two causes are called "{name}"')
        seen.add(cause.name)
