"""What each answer to failures costs in a year, history by history.

In: tallies of the simulator, prices. Out: `Valued`. DESIGN "Two arrows". The same GPUs are owned
whatever the answer, so that what is compared is what they come to. Formulas are those of `money`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nonuniform.planner.boostpower import extra_share, most_speedup
from nonuniform.planner.choose import difference
from nonuniform.planner.figure import Figure, figure_of, of_seeds
from nonuniform.planner.money import (
    HOURS_PER_YEAR,
    Costs,
    YearOfUse,
    costs,
    engineering,
    gpu_hour_price,
    per_year,
    retrofit,
)
from nonuniform.planner.policies import TODAY, Compared
from nonuniform.planner.prices import Prices
from nonuniform.planner.subject import Subject, mean_block
from nonuniform.planner.trials import Candidate, Tallies, Tally

MATERIAL_SHARE = 0.001
"""Of what all GPU-hours are worth: the simulator and the prices are not right to less than that."""


@dataclass(frozen=True)
class Valued:
    """One candidate. `one_off`: spent once; `worths`: what it is worth a year, by seed: costs, and
    what is spent once spread over the horizon, both as losses."""

    row: Compared
    tallies: Sequence[Tally]
    costs: Sequence[Costs]
    one_off: float
    worths: Sequence[float]
    gpus: int

    @property
    def spares(self) -> int:
        return self.row.options.spare_domains

    @property
    def candidate(self) -> Candidate:
        return self.row.name, self.spares

    def cost(self, name: str) -> Figure:
        return of_seeds([getattr(c, name) for c in self.costs], "money/year", _PRICED)

    def throughput(self) -> Figure:
        return of_seeds([t.throughput for t in self.tallies], "1", _SIMULATED)

    def lost(self) -> Figure:
        """Of work that is not done, spares included."""
        missing = [t.missing_gpu_h(self.gpus) for t in self.tallies]
        return of_seeds(missing, "GPU-h/year", _SIMULATED)

    def net(self, today: Valued) -> Figure:
        """Against today, with what is spent once spread over the horizon."""
        return figure_of(difference(self.worths, today.worths), "money/year", _NET)


_SIMULATED = "simulated: mean over histories"
_PRICED = "simulated hours at the prices of money.prices"
_NET = "cost of today less cost of this, the same histories; one-off cost over horizon_years"


def value(
    subject: Subject, rows: Sequence[Compared], tallies: Tallies, prices: Prices
) -> dict[Candidate, Valued]:
    named = {(row.name, row.options.spare_domains): row for row in rows}
    return {
        candidate: _valued(subject, named[candidate], seen, prices)
        for candidate, seen in tallies.items()
    }


def _valued(
    subject: Subject, row: Compared, tallies: Sequence[Tally], prices: Prices
) -> Valued:  # fmt: skip
    one_off = engineering(prices, row.weeks)
    if row.options.boosts:
        one_off += retrofit(prices, subject.fleet.gpus)
    watts = boost_watts(subject, row, prices)
    spent = [
        costs(
            prices,
            YearOfUse(
                lost_gpu_h=t.lost_gpu_h,
                spare_gpu_h=t.spare_gpu_h,
                boosted_gpu_h=t.boosted_share * subject.gpus * HOURS_PER_YEAR,
                boost_watts=watts,
                failures=t.failures,
                restarts=row.name == TODAY,
            ),
        )
        for t in tallies
    ]
    worths = [-(cost.total + per_year(prices, one_off)) for cost in spent]
    return Valued(row, tallies, spent, one_off, worths, subject.gpus)


def boost_watts(subject: Subject, row: Compared, prices: Prices) -> float:
    """Of each GPU of a boosted replica: as if all its stages were hurt, which is the most."""
    if not row.options.boosts:
        return 0.0
    lost = mean_block(subject.source.causes, subject.fleet)
    needed = subject.job.degree / max(1.0, subject.job.degree - lost)
    share = extra_share(subject, min(most_speedup(row), needed)).value or 0.0
    return max(0.0, share) * prices["gpu_watts"]


def material(subject: Subject, prices: Prices) -> float:
    """Money a year below which two answers are the same."""
    return MATERIAL_SHARE * subject.fleet.gpus * HOURS_PER_YEAR * gpu_hour_price(prices)


def worths(valued: Mapping[Candidate, Valued]) -> dict[Candidate, Sequence[float]]:
    return {candidate: each.worths for candidate, each in valued.items()}


def today_of(valued: Mapping[Candidate, Valued]) -> Valued:
    return valued[TODAY, 0]
