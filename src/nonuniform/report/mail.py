"""The answer of a plan as Markdown, for a mail: the same sentences and figures as on the page.

In: a `summary.json` as plain data. Out: Markdown in one language. Names from files are escaped,
so that they are shown and not taken for markup or HTML.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from nonuniform.report import plan_tables as tables
from nonuniform.report.blocks import Table
from nonuniform.report.figures import Figure
from nonuniform.report.phrases import Phrase
from nonuniform.report.plan_page import currency, made, tiles, top_of
from nonuniform.report.plan_words import answer, talk, told
from nonuniform.report.said import Both, Joined, Language, Said, Sentence, Verbatim
from nonuniform.report.texts import load_texts


def plan_markdown(summary: Mapping[str, Any], lang: Language = "en") -> str:
    texts = load_texts()
    place = top_of(summary)
    found = told(place, texts)

    def say(said: Said) -> str:
        return marked_down(said, lang)

    parts = [
        f"# {say(texts('mail.subject', job=found.job['name'].name()))}",
        say(made(place, texts)),
    ]
    if place.get("example") and place["example"].data:
        parts.append(f"**{say(texts('plan.example'))}**")
    parts += [f"## {say(texts('plan.answer'))}", *map(say, answer(found))]
    parts.append(f"## {say(texts('plan.talk'))}")
    for number, spoken in enumerate(talk(found), 1):
        caveat = say(texts("plan.caveat", words=spoken.caveat))
        parts.append(f"{number}. {say(spoken.words)}  \n   {caveat}")
    parts.append(f"## {say(texts('mail.numbers'))}")
    parts.append("\n".join(f"- {say(name)}: {say(value)}" for name, value in tiles(found)))
    job, chosen = found.job, found.chosen.key
    wanted = [
        tables.portfolio(place, texts), tables.policies(job, chosen, texts),
        tables.costs(job, chosen, texts), tables.alternatives(place, texts),
        tables.changes(place, texts), tables.path(place, texts),
    ]  # fmt: skip
    parts += [table_markdown(table, lang) for table in wanted]
    parts += [say(currency(place, texts)), say(texts("mail.more"))]
    return "\n\n".join(parts) + "\n"


def plan_answer(summary: Mapping[str, Any], lang: Language = "en") -> str:
    """The three sentences as plain text."""
    found = told(top_of(summary), load_texts())
    return "\n".join(said.text(lang) for said in answer(found))


def table_markdown(table: Table, lang: Language) -> str:
    def line(cells: tuple[Said, ...]) -> str:
        return "| " + " | ".join(marked_down(cell, lang) for cell in cells) + " |"

    rule = "|".join("---:" if table.is_numeric(at) else "---" for at in range(len(table.head)))
    rows = [line(table.head), f"|{rule}|", *map(line, table.rows)]
    return f"**{marked_down(table.caption, lang)}**\n\n" + "\n".join(rows)


def marked_down(said: Said, lang: Language) -> str:
    """Figures with their kind; names from files with every sign of Markdown escaped."""
    return _escaped(said).text(lang)


def _escaped(said: Said) -> Said:
    if isinstance(said, Verbatim):
        return Verbatim(_escape(said.words))
    if isinstance(said, Phrase):
        return Both(_escape(said.text("en")), _escape(said.text("ja")))
    if isinstance(said, Sentence):
        return replace(said, gaps={name: _escaped(gap) for name, gap in said.gaps.items()})
    if isinstance(said, Joined):
        return replace(said, items=tuple(_escaped(item) for item in said.items))
    return _WithKind(said) if isinstance(said, Figure) else said


class _WithKind(Said):
    def __init__(self, figure: Figure) -> None:
        self._figure = figure

    def text(self, lang: Language) -> str:
        shown = self._figure.text(lang)
        if not self._figure.kind or self._figure.value is None:
            return shown
        return f"{shown} ({load_texts().known('kind', self._figure.kind).text(lang)})"


def _escape(words: str) -> str:
    """On one line; `<` and `&` too, since Markdown lets HTML through."""
    flat = re.sub(r"\s+", " ", words).replace("&", "&amp;").replace("<", "&lt;")
    return re.sub(r"([\\`*_{}\[\]()#+!|>~])", r"\\\1", flat)
