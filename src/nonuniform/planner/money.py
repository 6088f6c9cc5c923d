"""GPU-hours and watts as money: pure formulas.

In: prices, hours, watts. Out: money. DESIGN "Outside contract". Every formula is one line with its
units in the names; `tests/planner/test_money.py` redoes them by hand. Knows nothing of policies.

The price of a GPU-hour holds the energy of that hour at nominal power. So `energy` below is only
what a boost takes on top, and nothing is counted twice.
"""

from __future__ import annotations

from dataclasses import dataclass

from nonuniform.planner.prices import Prices

HOURS_PER_YEAR = 8760.0
DAYS_PER_YEAR = 365.0


def energy_price(prices: Prices, watts: float, hours: float) -> float:
    """Of IT power, with what the building takes."""
    return watts / 1000 * hours * prices["pue"] * prices["energy_kwh"]


def gpu_hour_price(prices: Prices) -> float:
    """As stated; or, where a capital is given, its share of an hour and the energy of the hour."""
    capital = prices["capital_per_gpu"]
    if not capital:
        return prices["gpu_hour"]
    written_off = capital / (prices["lifetime_years"] * HOURS_PER_YEAR)
    return written_off + energy_price(prices, prices["rack_watts_per_gpu"], 1.0)


@dataclass(frozen=True)
class Costs:
    """Of a year. `lost`: GPU-hours that did nothing new; `spares`: GPUs kept free, or left over;
    `energy`: of a boost, on top of nominal; `operators`: people who see to failures."""

    lost: float
    spares: float
    energy: float
    operators: float

    @property
    def total(self) -> float:
        return self.lost + self.spares + self.energy + self.operators


@dataclass(frozen=True)
class YearOfUse:
    """What a year comes to, in units that are not money."""

    lost_gpu_h: float
    spare_gpu_h: float
    boosted_gpu_h: float
    boost_watts: float
    failures: float
    restarts: bool


def costs(prices: Prices, year: YearOfUse) -> Costs:
    each = gpu_hour_price(prices)
    hours = prices["operator_hours_restart" if year.restarts else "operator_hours_live"]
    return Costs(
        lost=year.lost_gpu_h * each,
        spares=year.spare_gpu_h * each,
        energy=energy_price(prices, year.boost_watts, year.boosted_gpu_h),
        operators=year.failures * hours * prices["operator_hour"],
    )


def engineering(prices: Prices, weeks: tuple[str, ...]) -> float:
    """Once: person-weeks of the named prices."""
    return sum(prices[key] for key in weeks) * prices["engineer_week"]


def retrofit(prices: Prices, gpus: int) -> float:
    """Once: headroom of power and cooling for so many GPUs."""
    return gpus * prices["boost_per_gpu"]


def per_year(prices: Prices, one_off: float) -> float:
    """What is spent once, spread over the horizon."""
    return one_off / prices["horizon_years"]


def payback_days(one_off: float, saved_per_year: float) -> float | None:
    """After how long the savings have paid for it; 0 where nothing was spent; None: never."""
    if one_off <= 0:
        return 0.0 if saved_per_year >= 0 else None
    return one_off / saved_per_year * DAYS_PER_YEAR if saved_per_year > 0 else None
