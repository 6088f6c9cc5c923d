"""What a reader sees of a page, and what every figure on it must read like by summary.json."""

from __future__ import annotations

from collections.abc import Mapping
from html.parser import HTMLParser
from typing import Any

from nonuniform.report.figures import at
from nonuniform.report.numbers import Quantity, interval_words, value_words
from nonuniform.report.texts import load_texts

VOID = {"meta", "link", "br", "img", "input"}


class Shown(HTMLParser):
    """Figures, words from files, and what else a reader sees, each with the language around it."""

    def __init__(self) -> None:
        super().__init__()
        self.figures: list[tuple[dict[str, str], str, str]] = []
        self.from_files: list[tuple[str, str]] = []
        self.rest: list[tuple[str, str]] = []
        self.ids: list[str] = []
        self.tags: set[str] = set()
        self._open: list[tuple[str, dict[str, str]]] = []
        self._text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.tags.add(tag)
        if "id" in found:
            self.ids.append(found["id"])
        if tag in VOID:
            return
        self._open.append((tag, found))
        if "data-figure" in found or found.get("class") == "from-file":
            self._text = ""

    def handle_endtag(self, tag: str) -> None:
        name, found = self._open.pop()
        assert name == tag, f"<{name}> is closed by </{tag}>"
        if "data-figure" in found:
            self.figures.append((found, self._text, self._lang()))
        elif found.get("class") == "from-file":
            self.from_files.append((found.get("data-words", self._text), self._lang()))

    def handle_data(self, data: str) -> None:
        around = [found for _, found in self._open]
        inside = any("data-figure" in f or f.get("class") == "from-file" for f in around)
        if inside:
            self._text += data
        elif not any(tag in ("script", "style", "title") for tag, _ in self._open):
            self.rest.append((data, self._lang()))

    def _lang(self) -> str:
        said = [f["lang"] for tag, f in self._open if "lang" in f and tag != "html"]
        return said[-1] if said else ""


def parsed(page: str) -> Shown:
    shown = Shown()
    shown.feed(page)
    assert not shown._open
    return shown


def as_shown(value: Any, unit: str, lang: Any, bare: bool) -> set[str]:
    """What a figure must read like, by `numbers` alone."""
    texts = load_texts()
    if value is None or (isinstance(value, dict) and value["value"] is None):
        none = texts.words("figure.none", lang)
        kind = texts.known("kind", value["kind"]).text(lang) if isinstance(value, dict) else ""
        return {none, f"{none} {kind}".strip()}
    if not isinstance(value, dict):
        value = {"value": value, "low": None, "high": None, "kind": ""}
    ends = (None, None) if bare else (value["low"], value["high"])
    quantity = Quantity(value["value"], unit, value["low"], value["high"])
    interval = interval_words(quantity, lang) if ends != (None, None) else ""
    kind = texts.known("kind", value["kind"]).text(lang) if value["kind"] and not bare else ""
    behind = (f" [{interval}]" if interval else "") + (f" {kind}" if kind else "")
    return {value_words(quantity, lang, with_unit) + behind for with_unit in (True, False)}


def words_in(value: Any) -> set[str]:
    """Every string and every key of a summary."""
    if isinstance(value, dict):
        return set(value) | {word for item in value.values() for word in words_in(item)}
    if isinstance(value, list):
        return {word for item in value for word in words_in(item)}
    return {value} if isinstance(value, str) else set()


def disagreements(page: str, summary: Mapping[str, Any]) -> tuple[list[str], int]:
    """Figures that do not read as the summary has them, in either language; and how many agree."""
    wrong, right = [], 0
    for attributes, text, lang in parsed(page).figures:
        value = at(summary, attributes["data-figure"])
        bare = "bare" in attributes["class"]
        for each in (lang,) if lang else ("en", "ja"):
            if text in as_shown(value, attributes["data-unit"], each, bare):
                right += 1
            else:
                wrong.append(f"{attributes['data-figure']}: {text!r} for {value}")
    return wrong, right
