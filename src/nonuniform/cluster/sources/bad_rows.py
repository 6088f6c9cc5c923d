"""What of a log is not used, and what is taken for granted: said, never passed over in silence.

In: rows that a stage of reading refuses, with the reason. Out: one line per kind, with the number
of rows and the place of the first; `BadInput` unless the person asked to go on; the report of a
log. DESIGN "Outside contract" (errors). Knows nothing of formats.

Two sorts of rows are left out. *Wrong* ones contradict themselves or the fleet: they end the
reading. Others are right and not meant, such as jobs that ended well, or failures outside the
window.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import polars as pl

from nonuniform.errors import BadInput

Place = Callable[[int], str]
"""Row key -> where a person finds it, such as "line 7"."""

ROW = "row"
"""The column of row keys in every frame; ascending in the file."""


@dataclass(frozen=True)
class Dropped:
    """`count` rows of one kind, the first of them at `first`, such as "line 7"."""

    kind: str
    count: int
    first: str
    wrong: bool

    def line(self, path: str) -> str:
        """For a person."""
        rows = "1 row" if self.count == 1 else f"{self.count} rows"
        where = f"in {self.first}" if self.count == 1 else f"the first in {self.first}"
        return f"{path}: {rows} with {self.kind}, {where}"


@dataclass(frozen=True)
class LogReport:
    """`rows` were in the file, `failures` came of them. `assumed`: what the log does not say and
    was decided for it, or what it says twice. `dropped`: what was left out."""

    path: str
    rows: int
    failures: int
    assumed: tuple[str, ...]
    dropped: tuple[Dropped, ...]

    def lines(self) -> tuple[str, ...]:
        """The whole report, a line each."""
        return (
            f"{self.path}: {self.rows} rows, {self.failures} failures",
            *(f"{self.path}: assumed: {text}" for text in self.assumed),
            *(f"{dropped.line(self.path)}: left out" for dropped in self.dropped),
        )


@dataclass
class _Kind:
    count: int
    first: int
    example: str | None
    wrong: bool


@dataclass
class Findings:
    """What the stages of reading one log have found so far. `place` is set by who reads the
    file."""

    path: str
    place: Place = field(default="line {}".format)
    rows: int = 0
    assumed: list[str] = field(default_factory=list)
    _kinds: dict[str, _Kind] = field(default_factory=dict)

    def assume(self, text: str) -> None:
        """Once, however often it is said."""
        if text not in self.assumed:
            self.assumed.append(text)

    def add(
        self, kind: str, count: int, first: int, example: str | None = None, wrong: bool = True
    ) -> None:
        """`count` rows of this kind, the first of which has key `first`."""
        known = self._kinds.get(kind)
        if known is None:
            self._kinds[kind] = _Kind(count, first, example, wrong)
            return
        known.count += count
        if first < known.first:
            known.first, known.example = first, example

    def without(
        self, frame: pl.DataFrame, bad: pl.Expr, kind: str, example: str = "", wrong: bool = True
    ) -> pl.DataFrame:
        """The rows that are not `bad`; null counts as not. `example` names a column whose value in
        the first bad row is shown."""
        is_bad = frame.select(bad.fill_null(value=False).alias("bad"))["bad"]
        if not is_bad.any():
            return frame
        rows = frame.filter(is_bad).sort(ROW)
        shown = _shown(rows[example][0]) if example else None
        self.add(kind, rows.height, rows[ROW][0], shown, wrong)
        return frame.filter(~is_bad)

    def dropped(self) -> tuple[Dropped, ...]:
        """By kind: wrong ones first, then in the order in which they were found."""
        kinds = sorted(self._kinds.items(), key=lambda item: not item[1].wrong)
        return tuple(
            Dropped(kind, k.count, self.place(k.first) + (k.example or ""), k.wrong)
            for kind, k in kinds
        )

    def check(self, skip_bad_rows: bool) -> None:
        """`BadInput` with a line per kind of wrong rows, unless these are to be skipped."""
        wrong = [dropped.line(self.path) for dropped in self.dropped() if dropped.wrong]
        if wrong and not skip_bad_rows:
            raise BadInput("\n".join(wrong))

    def report(self, failures: int) -> LogReport:
        """When all is read."""
        return LogReport(self.path, self.rows, failures, tuple(self.assumed), self.dropped())


def _shown(value: object) -> str:
    if value is None:
        return ""
    text = str(value)
    text = text if len(text) <= 40 else text[:37] + "..."
    return f" ({text!r})"


def counted(number: int, word: str) -> str:
    """ "1 row", "2 rows"."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
