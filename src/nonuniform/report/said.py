"""Something that can be said in both languages, as plain text and as HTML.

In: words, names from files, sentences with gaps. Out: text or `Markup` per language; in a
template `{{ something }}` gives both languages, of which the page shows one. Everything that
comes from a file is escaped here, once. Does not know which sentences there are (`texts`) or how
numbers look (`figures`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from string import Formatter
from typing import Literal

from markupsafe import Markup, escape

Language = Literal["en", "ja"]
LANGUAGES: tuple[Language, ...] = ("en", "ja")


class Said:
    """The base: `text` for a mail, `html` for a page."""

    def text(self, lang: Language) -> str:
        raise NotImplementedError

    def html(self, lang: Language) -> Markup:
        return escape(self.text(lang))

    def __html__(self) -> str:
        en, ja = self.html("en"), self.html("ja")
        if en == ja:
            return en
        return Markup('<span lang="en">{}</span><span lang="ja">{}</span>').format(en, ja)

    def chart(self) -> dict[str, str]:
        """The page's script picks one. plotly would read `<b>` as a tag and `%{x}` as a gap."""
        return {f"@{lang}": for_chart(self.text(lang)) for lang in LANGUAGES}


def for_chart(words: str) -> str:
    words = words.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return words.replace("%{", "&#37;{")


@dataclass(frozen=True)
class Verbatim(Said):
    """Words that came from a file or a command line; the same in every language."""

    words: str
    code: bool = False

    def text(self, lang: Language) -> str:
        return self.words

    def html(self, lang: Language) -> Markup:
        shown = Markup('<bdi class="from-file">{}</bdi>').format(self.words)
        return Markup("<code>{}</code>").format(shown) if self.code else shown


@dataclass(frozen=True)
class Both(Said):
    """The same thing in two languages."""

    en: str
    ja: str

    def text(self, lang: Language) -> str:
        return self.en if lang == "en" else self.ja


@dataclass(frozen=True)
class Sentence(Said):
    """A sentence with gaps, such as `{policy} saves {saved}`, and what goes into them."""

    words: Both
    gaps: Mapping[str, Said] = field(default_factory=dict)

    def text(self, lang: Language) -> str:
        return "".join(
            literal + (self.gaps[name].text(lang) if name is not None else "")
            for literal, name, _, _ in Formatter().parse(self.words.text(lang))
        )

    def html(self, lang: Language) -> Markup:
        return Markup("").join(
            escape(literal) + (self.gaps[name].html(lang) if name is not None else "")
            for literal, name, _, _ in Formatter().parse(self.words.text(lang))
        )


@dataclass(frozen=True)
class Joined(Said):
    """A list within a sentence."""

    items: tuple[Said, ...]
    between: Both = Both(", ", "、")

    def text(self, lang: Language) -> str:
        return self.between.text(lang).join(item.text(lang) for item in self.items)

    def html(self, lang: Language) -> Markup:
        return escape(self.between.text(lang)).join(item.html(lang) for item in self.items)


def gaps_of(words: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(words) if name is not None}


def said(value: Said | str | int) -> Said:
    """A plain string is taken for a name from a file, never for HTML."""
    return value if isinstance(value, Said) else Verbatim(str(value))
