"""A number that says where it comes from: its place in summary.json, its kind, its interval.

In: a place in a summary (`Place`). Out: `Figure`, which shows itself in both languages, and in
HTML carries `data-figure="dotted.path"`, so that whoever reads the page, a test above all, finds
it in the file. A number has no other way onto a page. A key that is missing is `BadInput` with
its path.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from markupsafe import Markup

from nonuniform.errors import BadInput
from nonuniform.report.numbers import Quantity, interval_words, value_words
from nonuniform.report.said import Language, Said, Verbatim
from nonuniform.report.texts import load_texts

KINDS = ("measured", "emulated", "simulated", "published", "computed", "assumed")


@dataclass(frozen=True)
class Figure(Said):
    """One number. `style`: "full", "cell" (no unit, interval below), "bare" (no interval)."""

    path: str
    quantity: Quantity | None
    kind: str = ""
    source: str = ""
    style: str = "full"
    unit: str = ""

    def bare(self) -> Figure:
        return replace(self, style="bare")

    def as_count(self) -> Figure:
        """Of things that have no unit: not a share, so not in per cent."""
        if self.quantity is None:
            return self
        return replace(self, quantity=replace(self.quantity, unit=""))

    def cell(self) -> Figure:
        return replace(self, style="cell")

    @property
    def value(self) -> float | None:
        return self.quantity.value if self.quantity else None

    def text(self, lang: Language) -> str:
        if self.quantity is None:
            return load_texts().words("figure.none", lang)
        shown = value_words(self.quantity, lang)
        interval = interval_words(self.quantity, lang)
        if not interval or self.style == "bare":
            return shown
        return f"{shown} {_bracketed(interval, lang)}"

    def html(self, lang: Language) -> Markup:
        unit = self.quantity.unit if self.quantity else self.unit
        start = Markup('<span class="figure {}" data-figure="{}" data-unit="{}">').format(
            self.style, self.path, unit
        )
        return start + self._inner(lang) + Markup("</span>")

    def _inner(self, lang: Language) -> Markup:
        if self.quantity is None:
            return Markup('<span class="value">{}</span>').format(
                load_texts().words("figure.none", lang)
            )
        shown = value_words(self.quantity, lang, with_unit=self.style != "cell")
        out = Markup('<span class="value">{}</span>').format(shown)
        interval = interval_words(self.quantity, lang)
        if self.style == "bare":
            return out
        if interval:
            out += Markup(' <span class="interval">{}</span>').format(_bracketed(interval, lang))
        return out + self._label(lang)

    def _label(self, lang: Language) -> Markup:
        if not self.kind:
            return Markup("")
        name = load_texts().known("kind", self.kind).text(lang)
        return Markup(' <span class="kind kind-{}" title="{}">{}</span>').format(
            self.kind if self.kind in KINDS else "other", self.source, name
        )


@dataclass(frozen=True)
class Place:
    """A place in a summary: a value, and the dotted path that leads to it."""

    data: Any
    path: str = ""
    file: str = "summary.json"
    currency: str = "USD"
    key: str = ""

    def __getitem__(self, key: str | int) -> Place:
        path = f"{self.path}.{dotted(key)}" if self.path else dotted(key)
        try:
            value = self.data[key]
        except (KeyError, IndexError, TypeError):
            raise BadInput(f"{self.file}: no key {path}") from None
        return replace(self, data=value, path=path, key=str(key))

    def get(self, key: str) -> Place | None:
        """The place, or None where the key is missing or null."""
        found = isinstance(self.data, Mapping) and self.data.get(key) is not None
        return self[key] if found else None

    def __iter__(self) -> Iterator[Place]:
        if not isinstance(self.data, Sequence) or isinstance(self.data, str):
            raise BadInput(f"{self.file}: {self.path or 'the top'} is not a list")
        return (self[index] for index in range(len(self.data)))

    def items(self) -> list[tuple[str, Place]]:
        if not isinstance(self.data, Mapping):
            raise BadInput(f"{self.file}: {self.path or 'the top'} is not a table")
        return [(key, self[key]) for key in self.data]

    def words(self) -> str:
        return "" if self.data is None else str(self.data)

    def name(self, code: bool = False) -> Verbatim:
        return Verbatim(self.words(), code=code)

    def figure(self, unit: str = "") -> Figure:
        """The figure at this place: an object of the contract, or a bare number of this unit."""
        if isinstance(self.data, Mapping):
            return _of_object(self)
        if self.data is None:
            return Figure(self.path, None, unit=unit)
        number = self._number(self.data)
        return Figure(self.path, Quantity(number, unit, currency=self.currency), unit=unit)

    def _number(self, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise BadInput(f"{self.file}: {self.path} is {value!r}, not a number")
        return float(value)


def _of_object(place: Place) -> Figure:
    data = place.data
    kind = str(data.get("kind", ""))
    source = str(data.get("source", ""))
    unit = str(data.get("unit", ""))
    if data.get("value") is None:
        return Figure(place.path, None, kind, source)
    low, high = (None if data.get(end) is None else place[end] for end in ("low", "high"))
    quantity = Quantity(
        place["value"]._number(data["value"]),
        unit,
        None if low is None else low._number(low.data),
        None if high is None else high._number(high.data),
        place.currency,
    )
    return Figure(place.path, quantity, kind, source)


def dotted(key: str | int) -> str:
    """A key as a part of a path; a dot within a name is escaped."""
    return str(key).replace("\\", "\\\\").replace(".", "\\.")


def at(data: Any, path: str) -> Any:
    """What is at a path that `Place` gave."""
    parts: list[str] = []
    part, characters = "", iter(path)
    for character in characters:
        if character == "\\":
            part += next(characters)
        elif character == ".":
            parts, part = [*parts, part], ""
        else:
            part += character
    for key in [*parts, part]:
        data = data[int(key)] if isinstance(data, list) else data[key]
    return data


def _bracketed(interval: str, lang: Language) -> str:
    return load_texts().words("figure.interval", lang).format(range=interval)
