"""What the supply of a domain's rack leaves to its GPUs.

In: a rack, how many GPUs of its domain have failed, how many power shelves are lost. Out: the watts
that the living GPUs may draw together, and what sets that bound. DESIGN "Policies" (ntp-pw).

Does not know: temperatures, the efficiency of power supplies (all figures are on their output
side), or how racks of a row share what is free other than evenly among the boosted ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

from nonuniform.errors import BadInput
from nonuniform.power.curve import GpuPower

Binding = Literal["shelves", "feed", "row"]


@dataclass(frozen=True)
class Rack:
    """One domain and what feeds it. Of `shelves` so many as `spare_shelves` are never counted on.

    0 means not known, and then not a bound: `shelves`, `row_budget_w`, `ramp_w_per_s`, `reach_s`.
    `overload_s`: how long shelves that are left carry too much; `boosted_racks`: so many of the row
    at once; `reach_s`: within which a boost must be in place."""

    domain_gpus: int
    gpu: GpuPower
    other_w: float
    feed_w: float
    shelves: int = 0
    shelf_w: float = 0.0
    spare_shelves: int = 1
    overload_s: float = 0.0
    ramp_w_per_s: float = 0.0
    row_budget_w: float = 0.0
    racks_in_row: int = 1
    boosted_racks: int = 1
    reach_s: float = 0.0

    def __post_init__(self) -> None:
        _whole("domain_gpus", self.domain_gpus, 1)
        _whole("shelves", self.shelves, 0)
        _whole("spare_shelves", self.spare_shelves, 0)
        _whole("racks_in_row", self.racks_in_row, 1)
        _whole("boosted_racks", self.boosted_racks, 1)
        for key in _NOT_BELOW_0:
            value = getattr(self, key)
            if not (math.isfinite(value) and value >= 0):
                raise BadInput(f"{key} = {value}: must be 0 or more and finite")
        if self.shelves and self.shelf_w <= 0:
            raise BadInput(
                f"shelf_w = {self.shelf_w:g}: must be above 0 W with {self.shelves} shelves"
            )
        if self.shelves and self.spare_shelves >= self.shelves:
            raise BadInput(
                f"spare_shelves = {self.spare_shelves}: must be fewer than shelves = {self.shelves}"
            )
        if self.boosted_racks > self.racks_in_row:
            raise BadInput(
                f"boosted_racks = {self.boosted_racks}: more than racks_in_row = "
                f"{self.racks_in_row}"
            )
        for name, watts in _supplies(self, 0).items():
            if self.nominal_w > watts * (1 + 1e-9):
                raise BadInput(
                    f"{name}: {watts:.6g} W does not carry the rack at its nominal "
                    f"{self.nominal_w:.6g} W ({self.domain_gpus} x {self.gpu.nominal_w:g} W + "
                    f"other_w = {self.other_w:g})"
                )

    @property
    def nominal_w(self) -> float:
        """The whole rack, every GPU at its nominal set point."""
        return self.other_w + self.domain_gpus * self.gpu.nominal_w


_MOST = 1_000_000
_NOT_BELOW_0 = (
    "other_w",
    "shelf_w",
    "overload_s",
    "ramp_w_per_s",
    "row_budget_w",
    "feed_w",
    "reach_s",
)


@dataclass(frozen=True)
class Budget:
    """`gpus_w`: of all living GPUs, `per_gpu_w`: of each. `freed_w`: what the failed ones no longer
    draw. `reason` has the numbers."""

    gpus_w: float
    per_gpu_w: float
    freed_w: float
    binding: Binding
    reason: str


class Shed(NamedTuple):
    """After a loss: the set point that each living GPU must be at, how soon, at how many W/s of the
    rack. `within_s` is 0 and `w_per_s` infinite where shelves carry no overload."""

    set_point_w: float
    within_s: float
    w_per_s: float
    needed: bool


def budget(rack: Rack, failed: int, shelves_lost: int = 0) -> Budget:
    """What the living GPUs may draw, by the narrowest of shelves, feed and row."""
    living = living_gpus(rack, failed)
    supplies = _supplies(rack, shelves_lost)
    binding = min(supplies, key=lambda name: supplies[name])
    kept_w = failed * rack.gpu.idle_w
    gpus_w = max(0.0, supplies[binding] - rack.other_w - kept_w)
    reason = (
        f"{binding} {_how(rack, binding, shelves_lost)} {supplies[binding]:.6g} W, less "
        f"{rack.other_w:.6g} W of others and {kept_w:.6g} W of {failed} failed: "
        f"{gpus_w / living:.6g} W for each of {living} GPUs"
    )
    freed_w = failed * (rack.gpu.nominal_w - rack.gpu.idle_w)
    return Budget(gpus_w, gpus_w / living, freed_w, binding, reason)


def budgets(rack: Rack, failed: int, shelves_lost: int = 0) -> dict[Binding, float]:
    """Watts of each living GPU by every bound that is known."""
    living = living_gpus(rack, failed)
    kept_w = rack.other_w + failed * rack.gpu.idle_w
    return {
        name: max(0.0, watts - kept_w) / living
        for name, watts in _supplies(rack, shelves_lost).items()
    }


def rack_w(rack: Rack, failed: int, set_point_w: float) -> float:
    """What the whole rack draws with its living GPUs at `set_point_w`."""
    living = living_gpus(rack, failed)
    return rack.other_w + failed * rack.gpu.idle_w + living * set_point_w


def ramp_s(rack: Rack, from_w: float, to_w: float) -> float:
    """How long the rack takes from one draw to another, either way."""
    return abs(to_w - from_w) / rack.ramp_w_per_s if rack.ramp_w_per_s else 0.0


def ramp_bound_w(rack: Rack, failed: int) -> float:
    """What each living GPU can be raised to within `reach_s`; infinite where that is not known."""
    if not (rack.ramp_w_per_s and rack.reach_s):
        return math.inf
    return rack.gpu.nominal_w + rack.ramp_w_per_s * rack.reach_s / living_gpus(rack, failed)


def shed(rack: Rack, failed: int, set_point_w: float, shelves_lost: int) -> Shed:
    """What must become of a set point when shelves are lost under it."""
    allowed_w = budget(rack, failed, shelves_lost).per_gpu_w
    if set_point_w <= allowed_w:
        return Shed(set_point_w, math.inf, 0.0, False)
    surplus_w = living_gpus(rack, failed) * (set_point_w - allowed_w)
    pace = surplus_w / rack.overload_s if rack.overload_s else math.inf
    return Shed(allowed_w, rack.overload_s, pace, True)


def shelves_for(rack: Rack, watts: float) -> int:
    """Shelves that carry `watts` with the spare ones left out; 0 where shelves are not known."""
    if not rack.shelves:
        return 0
    return math.ceil(watts / rack.shelf_w - 1e-9) + rack.spare_shelves


def living_gpus(rack: Rack, failed: int) -> int:
    if type(failed) is not int or not 0 <= failed < rack.domain_gpus:
        raise BadInput(f"failed = {failed}: must be from 0 to {rack.domain_gpus - 1} of the domain")
    return rack.domain_gpus - failed


def _supplies(rack: Rack, shelves_lost: int) -> dict[Binding, float]:
    """Watts that each bound lets the whole rack draw. Feeds of 0 W are refused by the caller."""
    if type(shelves_lost) is not int or not 0 <= shelves_lost <= rack.shelves:
        raise BadInput(f"shelves_lost = {shelves_lost}: must be from 0 to shelves = {rack.shelves}")
    found: dict[Binding, float] = {"feed": rack.feed_w}
    if rack.shelves:
        carrying = rack.shelves - max(rack.spare_shelves, shelves_lost)
        found["shelves"] = carrying * rack.shelf_w
    if rack.row_budget_w:
        still = (rack.racks_in_row - rack.boosted_racks) * rack.nominal_w
        found["row"] = (rack.row_budget_w - still) / rack.boosted_racks
    return found


def _how(rack: Rack, binding: Binding, shelves_lost: int) -> str:
    if binding == "shelves":
        carrying = rack.shelves - max(rack.spare_shelves, shelves_lost)
        return f"({carrying} of {rack.shelves} counted on)"
    if binding == "row":
        return f"({rack.boosted_racks} of {rack.racks_in_row} racks boosted)"
    return "allows"


def _whole(key: str, value: int, least: int) -> None:
    if type(value) is not int or value < least:
        raise BadInput(f"{key} = {value}: must be a whole number, {least} or more")
    if value > _MOST:
        raise BadInput(f"{key}: must be {_MOST:,} at most")
