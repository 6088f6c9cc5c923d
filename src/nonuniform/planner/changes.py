"""What would have to be different for another answer.

In: a subject, prices, and who says which policies another subject has. Out: one row for each
changed circumstance, with the policy that would then be chosen. DESIGN "Policies". One is changed
at a time; spares and checkpoint intervals are then those of the changed one, and the choice is made
by the same rule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from nonuniform.placement.policy import Batch
from nonuniform.planner.choose import Choice, choose
from nonuniform.planner.policies import Compared, order_of
from nonuniform.planner.prices import Prices
from nonuniform.planner.study import with_spares
from nonuniform.planner.subject import Subject, mean_block
from nonuniform.planner.trials import Candidate, Tallies
from nonuniform.planner.valuation import Valued, material, today_of, value, worths

Again: TypeAlias = Callable[[Subject, Batch], tuple[Sequence[Compared], Mapping[str, float]]]
"""The policies of a subject, without spares, and what each takes for itself in any case."""

WHOLE_BLOCKS = 1.5
"""Where a failure takes more GPUs than this in the mean, it is asked what single ones would do."""


@dataclass(frozen=True)
class Case:
    """`without`: policies that need this are left out."""

    subject: Subject
    batch: Batch
    prices: Prices
    seeds: Sequence[int]
    again: Again
    chosen: str
    jobs: int = 1
    without: str = ""


Change = tuple[str, str, float]
"""What, how it is written, the factor."""


def all_changes(case: Case, told: Callable[[int], None] | None = None) -> list[dict[str, Any]]:
    found = []
    asked: dict[Asked, Tried] = {}
    for number, (change, other) in enumerate(_cases(case, _tried(case, asked)[0])):
        if told is not None:
            told(number)
        rows, valued = _valued(other, asked)
        found.append(_row(change, case.chosen, _choice(other, rows, valued), valued))
    return found


def _cases(case: Case, rows: Sequence[Compared]) -> list[tuple[Change, Case]]:
    """`rows`: those of the unchanged case. What no policy needs is not asked about."""
    needed = {need for row in rows for need in row.needs}
    cases: list[tuple[Change, Case]] = []
    for factor in (0.3, 1.0, 3.0):
        subject = case.subject if factor == 1 else case.subject.with_rates(factor)
        other = replace(case, subject=subject)
        cases.append((("failure rate", f"x{factor:g}", factor), other))
    for factor in (0.5, 2.0):
        other = replace(case, subject=case.subject.with_repairs(factor))
        cases.append((("repair time", f"x{factor:g}", factor), other))
    if mean_block(case.subject.source.causes, case.subject.fleet) > WHOLE_BLOCKS:
        other = replace(case, subject=case.subject.with_single_gpus())
        cases.append((("extent of a failure", "one GPU", 1.0), other))
    cases += [
        (("price", f"x{factor:g}", factor), replace(case, prices=_dearer(case, factor)))
        for factor in (0.5, 2.0)
    ]
    if "boost" in needed:
        cases.append((("boost", "not available", 0.0), replace(case, without="boost")))
        free = replace(case, prices=_built_in(case))
        cases.append((("boost", "no retrofit to pay for", 1.0), free))
    if "tokens" in needed:
        cases.append((("grain", "whole sequences", 0.0), replace(case, without="tokens")))
    cases.append((("batch", "may shrink", 1.0), replace(case, batch="shrink")))
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


Asked: TypeAlias = tuple[int, Batch]
"""Which subject, and what becomes of the batch."""
Tried: TypeAlias = tuple[Sequence[Compared], Tallies]


def _tried(case: Case, asked: dict[Asked, Tried]) -> Tried:
    """Prices, and which policies are left out, change no history."""
    key = (id(case.subject), case.batch)
    if key not in asked:
        rows, overheads = case.again(case.subject, case.batch)
        asked[key] = with_spares(case.subject, rows, case.seeds, overheads, case.jobs)
    return asked[key]


def _valued(
    case: Case, asked: dict[Asked, Tried]
) -> tuple[list[Compared], dict[Candidate, Valued]]:
    tried, tallies = _tried(case, asked)
    rows = [row for row in tried if not case.without or case.without not in row.needs]
    own = {(row.name, row.options.spare_domains): tallies[row.name, row.options.spare_domains]
           for row in rows}  # fmt: skip
    return rows, value(case.subject, rows, own, case.prices)


def _choice(
    case: Case, rows: Sequence[Compared], valued: Mapping[Candidate, Valued]
) -> Choice:  # fmt: skip
    order = order_of(list({row.name: row for row in rows}.values()))
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
        "spare_domains": choice.chosen[1],
        "net": valued[choice.chosen].net(today_of(valued)).as_dict(),
        "changed": name != before,
    }
