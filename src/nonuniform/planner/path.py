"""The way to an answer in steps, each with its cost and the figure that decides on the next.

In: the recommendation's figures, prices. Out: rows `path` of summary.json. DESIGN "Plan
and report". Weeks and sizes are assumed and say so; gates are worked out from the prices.
"""

from __future__ import annotations

from typing import Any

from nonuniform.planner.figure import Figure
from nonuniform.planner.money import gpu_hour_price, per_year
from nonuniform.planner.prices import Prices
from nonuniform.planner.study import Study
from nonuniform.planner.valuation import MATERIAL_SHARE, Valued

MEASURE_WEEKS, PILOT_WEEKS = 2.0, 4.0
PEOPLE = 4.0
HOURS_PER_WEEK = 168.0
MOST_RECOVERY_S = 60.0


def path_of(
    study: Study, software: Valued, boosted: Valued | None, prices: Prices
) -> list[dict[str, Any]]:
    """`software`: the best answer that needs no other racks; `boosted`: with them, where it is
    compared. Of today's loss only the part that the software wins back pays for it."""
    subject, price = study.subject, gpu_hour_price(prices)
    year = subject.fleet.gpus * 8760 * price
    pays = max(per_year(prices, software.one_off) / year, MATERIAL_SHARE) if year else None
    lost, left = _loss(study.today), _loss(software)
    back = 1 - left / lost if lost > 0 else 0.0
    steps = [
        _step("measure", 0.0, MEASURE_WEEKS, MEASURE_WEEKS * prices["engineer_week"], (
            "loss_today", "at_least",
            Figure(pays / back if pays is not None and back > 0 else None, "1", "computed",
                   "loss of which the part won back pays for the software over horizon_years"),
        )),
        _step("pilot", 2.0 * subject.gpus_per_replica, PILOT_WEEKS,
              2 * subject.gpus_per_replica * HOURS_PER_WEEK * PILOT_WEEKS * price, (
            "recovery_s", "at_most",
            Figure(MOST_RECOVERY_S, "s", "assumed",
                   "from a killed GPU to the next step; a tenth of a restart, round"),
        )),
        _step("software", float(subject.fleet.gpus),
              software.one_off / prices["engineer_week"] / PEOPLE if software.one_off else 0.0,
              software.one_off, (
            "throughput_gain", "at_least",
            Figure(pays, "1", "computed",
                   "gain over today that pays for the software over horizon_years"),
        )),
    ]  # fmt: skip
    if boosted is not None:
        more = max(0.0, boosted.one_off - software.one_off)
        steps.append(
            _step(
                "boosted-racks",
                float(subject.fleet.gpus),
                26.0,
                more,
                (
                    "boost_gain",
                    "at_least",
                    Figure(
                        max(per_year(prices, more) / year, MATERIAL_SHARE) if year else None,
                        "1",
                        "computed",
                        "gain of throughput that pays for the racks over horizon_years",
                    ),
                ),
            )
        )
    return steps


def _loss(own: Valued) -> float:
    return 1 - (own.throughput().value or 0.0)


def _step(
    name: str, gpus: float, weeks: float, cost: float, gate: tuple[str, str, Figure]
) -> dict[str, Any]:
    figure, side, threshold = gate
    return {
        "step": name,
        "gpus": Figure(gpus, "GPU", "assumed", "two replicas in a pilot, then all").as_dict(),
        "weeks": Figure(weeks, "weeks", "assumed", f"{PEOPLE:g} people").as_dict(),
        "cost": Figure(cost, "money", "computed", "at the prices of money.prices").as_dict(),
        "gate": {"figure": figure, side: threshold.as_dict()},
    }
