"""The way to an answer in steps, each with its cost and the figure that decides on the next.

In: the recommendation's figures, prices. Out: rows `path` of summary.json. DESIGN "Plan
and report". Weeks and sizes are assumed and say so; gates are worked out from the prices.
"""

from __future__ import annotations

from typing import Any

from nonuniform.planner.figure import Figure
from nonuniform.planner.money import gpu_hour_price, per_year
from nonuniform.planner.prices import Prices
from nonuniform.planner.subject import Subject
from nonuniform.planner.valuation import Valued

MEASURE_WEEKS, PILOT_WEEKS = 2.0, 4.0
PEOPLE = 4.0
HOURS_PER_WEEK = 168.0
MOST_RECOVERY_S = 60.0


def path_of(
    subject: Subject, software: Valued, boosted: Valued | None, prices: Prices
) -> list[dict[str, Any]]:
    """`software`: the best answer that needs no other racks; `boosted`: with them, where it is
    compared."""
    price = gpu_hour_price(prices)
    year = subject.fleet.gpus * 8760 * price
    steps = [
        _step("measure", 0.0, MEASURE_WEEKS, MEASURE_WEEKS * prices["engineer_week"], (
            "loss_today", "at_least",
            Figure(per_year(prices, software.one_off) / year, "1", "computed",
                   "share of the GPU-hours that pays for the software over horizon_years"),
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
            Figure(per_year(prices, software.one_off) / year, "1", "computed",
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
                        per_year(prices, more) / year,
                        "1",
                        "computed",
                        "gain of throughput that pays for the racks over horizon_years",
                    ),
                ),
            )
        )
    return steps


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
