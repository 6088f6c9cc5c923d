"""What would have to be different for another answer.

In: a subject, the policies with the spares that each is best with, prices. Out: one row for each
changed circumstance, with the policy that would then be chosen. DESIGN "Policies". One is changed
at a time, and the choice is made by the same rule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from nonuniform.planner.choose import Choice, choose
from nonuniform.planner.policies import TODAY, Compared, order_of
from nonuniform.planner.prices import Prices
from nonuniform.planner.subject import Subject
from nonuniform.planner.trials import Candidate, Tallies, ask
from nonuniform.planner.valuation import Valued, material, today_of, value, worths


@dataclass(frozen=True)
class Case:
    """`rows`: with their spares; today's without any is among them."""

    subject: Subject
    rows: Sequence[Compared]
    prices: Prices
    seeds: Sequence[int]
    overheads: Mapping[str, float]
    chosen: str
    jobs: int = 1


Change = tuple[str, str, float]
"""What, how it is written, the factor."""


def all_changes(case: Case, told: Callable[[int], None] | None = None) -> list[dict[str, Any]]:
    found = []
    asked: dict[Asked, Tallies] = {}
    for number, (change, other) in enumerate(_cases(case)):
        if told is not None:
            told(number)
        valued = _valued(other, asked)
        choice = _choice(other, valued)
        found.append(_row(change, case.chosen, choice, valued))
    return found


def _cases(case: Case) -> list[tuple[Change, Case]]:
    cases: list[tuple[Change, Case]] = []
    for factor in (0.3, 1.0, 3.0):
        subject = case.subject if factor == 1 else case.subject.with_rates(factor)
        other = replace(case, subject=subject)
        cases.append((("failure rate", f"x{factor:g}", factor), other))
    for factor in (0.5, 2.0):
        other = replace(case, subject=case.subject.with_repairs(factor))
        cases.append((("repair time", f"x{factor:g}", factor), other))
    cases += [
        (("price", f"x{factor:g}", factor), replace(case, prices=_dearer(case, factor)))
        for factor in (0.5, 2.0)
    ]
    without = replace(case, rows=[row for row in case.rows if "boost" not in row.needs])
    if len(without.rows) < len(case.rows):
        cases.append((("boost", "not available", 0.0), without))
        free = replace(case, prices=_built_in(case))
        cases.append((("boost", "no retrofit to pay for", 1.0), free))
    whole = replace(case, rows=[row for row in case.rows if "tokens" not in row.needs])
    cases.append((("grain", "whole sequences", 0.0), whole))
    cases.append((("batch", "may shrink", 1.0), replace(case, rows=_shrinking(case.rows))))
    return cases


def _dearer(case: Case, factor: float) -> Prices:
    """GPU-hours alone: everything else is spent once, or is small."""
    rows = {
        key: replace(price, value=price.value * factor)
        if key in ("gpu_hour", "capital_per_gpu")
        else price
        for key, price in case.prices.rows.items()
    }
    return replace(case.prices, rows=rows)


def _built_in(case: Case) -> Prices:
    rows = dict(case.prices.rows)
    rows["boost_per_gpu"] = replace(rows["boost_per_gpu"], value=0.0)
    return replace(case.prices, rows=rows)


def _shrinking(rows: Sequence[Compared]) -> list[Compared]:
    return [replace(row, options=replace(row.options, batch="shrink")) for row in rows]


Asked = tuple[int, str]
"""Which subject, and what becomes of the batch."""


def _valued(case: Case, asked: dict[Asked, Tallies]) -> dict[Candidate, Valued]:
    """Prices, and which policies there are, change no history: the first case that has one in
    common has all of them."""
    key = (id(case.subject), case.rows[0].options.batch)
    if key not in asked:
        asked[key] = ask(case.subject, case.rows, case.seeds, case.jobs, overheads=case.overheads)
    own = {(row.name, row.options.spare_domains): asked[key][row.name, row.options.spare_domains]
           for row in case.rows}  # fmt: skip
    return value(case.subject, case.rows, own, case.prices)


def _choice(case: Case, valued: Mapping[Candidate, Valued]) -> Choice:
    order = order_of(list({row.name: row for row in case.rows}.values()))
    return choose(worths(valued), order, material(case.subject, case.prices))


def _row(
    change: Change, before: str, choice: Choice, valued: Mapping[Candidate, Valued]
) -> dict[str, Any]:
    what, setting, factor = change
    name = choice.chosen[0]
    return {
        "what": what,
        "setting": setting,
        "factor": factor,
        "policy": name,
        "net": valued[choice.chosen].net(today_of(valued)).as_dict(),
        "changed": name != before,
    }


def with_best_spares(rows: Sequence[Compared], best: Mapping[str, int]) -> list[Compared]:
    """Today as it is, and every policy with the spares that it is best with."""
    found = [row.with_spares(best.get(row.name, 0)) for row in rows]
    bare = [row for row in rows if row.name == TODAY and best.get(TODAY, 0)]
    return [*bare, *found]
