"""Two runs of one job, side by side.

In: the folders of two runs. Out: rows aligned by step and the largest absolute difference of their
losses. DESIGN "The step is a transaction" promises that a run with failures has the loss curve of
the uninterrupted one up to rounding; this is where it is checked on files anybody can read.
Does not know: why the runs differ, how to print.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nonuniform.view.records import RunRecords, read_run


@dataclass(frozen=True)
class Row:
    """One step of both runs."""

    step: int
    left: float
    right: float

    @property
    def difference(self) -> float:
        """Absolute; twice not-a-number is equal, once is infinitely far."""
        if self.left == self.right or (math.isnan(self.left) and math.isnan(self.right)):
            return 0.0
        distance = abs(self.left - self.right)
        return math.inf if math.isnan(distance) else distance


@dataclass(frozen=True)
class Comparison:
    """`left` and `right` in the order the folders were given."""

    rows: tuple[Row, ...]
    validation: tuple[Row, ...]
    only_left: tuple[int, ...]
    only_right: tuple[int, ...]
    twice: tuple[int, ...]
    other_samples: tuple[int, ...]
    sample_ids_compared: bool

    @property
    def largest(self) -> Row | None:
        return max(self.rows, key=lambda row: row.difference, default=None)

    @property
    def largest_validation(self) -> Row | None:
        return max(self.validation, key=lambda row: row.difference, default=None)

    @property
    def same_steps(self) -> bool:
        """Both runs committed the same steps, each once, with the same samples."""
        return not (self.only_left or self.only_right or self.twice or self.other_samples)


def compare_runs(left: Path, right: Path) -> Comparison:
    return compare_records(read_run(left), read_run(right))


def compare_records(left: RunRecords, right: RunRecords) -> Comparison:
    ours, theirs = by_step(left.steps), by_step(right.steps)
    both = sorted(ours.keys() & theirs.keys())
    checks = by_step(left.of_kind("validation")), by_step(right.of_kind("validation"))
    return Comparison(
        rows=_rows(ours, theirs),
        validation=_rows(*checks),
        only_left=tuple(sorted(ours.keys() - theirs.keys())),
        only_right=tuple(sorted(theirs.keys() - ours.keys())),
        twice=tuple(sorted(_repeated(left.steps) | _repeated(right.steps))),
        other_samples=tuple(s for s in both if not _same_samples(ours[s], theirs[s])),
        sample_ids_compared=bool(both)
        and all("sample_ids" in ours[s] for s in both)
        and all("sample_ids" in theirs[s] for s in both),
    )


def by_step(records: Iterable[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """The first record of each step: a second one would be a fault, and is reported as such."""
    out: dict[int, dict[str, Any]] = {}
    for record in records:
        out.setdefault(int(record["step"]), record)
    return out


def _rows(ours: dict[int, dict[str, Any]], theirs: dict[int, dict[str, Any]]) -> tuple[Row, ...]:
    return tuple(
        Row(step, _loss(ours[step]), _loss(theirs[step]))
        for step in sorted(ours.keys() & theirs.keys())
    )


def _loss(record: dict[str, Any]) -> float:
    """A loss that JSON could not hold (null) is not a number."""
    value = record.get("loss")
    return math.nan if value is None else float(value)


def _repeated(records: Iterable[dict[str, Any]]) -> set[int]:
    counts = Counter(int(record["step"]) for record in records)
    return {step for step, count in counts.items() if count > 1}


def _same_samples(ours: dict[str, Any], theirs: dict[str, Any]) -> bool:
    """Ids are compared as a set: failures change who computes a sample, not which ones are used."""
    if ours.get("samples") != theirs.get("samples"):
        return False
    if "sample_ids" in ours and "sample_ids" in theirs:
        return _flat(ours["sample_ids"]) == _flat(theirs["sample_ids"])
    return True


def _flat(ids: Any) -> list[str]:
    """One list of ids, whether or not they come as a list for each replica."""
    if isinstance(ids, list):
        return sorted(one for part in ids for one in _flat(part))
    return [str(ids)]
