"""Sentences that other parts of the package wrote into a summary in English, said in Japanese.

In: words from a summary. Out: the same words; on the Japanese side what `text/phrases.toml` has for
them. A phrase has gaps, which take what stands there. What is not known stays as it is: it may be a
name that a person gave.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from string import Formatter

from markupsafe import Markup

from nonuniform.report.said import Language, Said


@dataclass(frozen=True)
class Phrase(Said):
    """Words from a file that may be ours."""

    words: str

    def text(self, lang: Language) -> str:
        return self.words if lang == "en" else in_japanese(self.words)

    def html(self, lang: Language) -> Markup:
        shown = self.text(lang)
        if shown == self.words:
            return Markup('<bdi class="from-file">{}</bdi>').format(shown)
        return Markup('<bdi class="from-file" data-words="{}">{}</bdi>').format(self.words, shown)


def in_japanese(words: str) -> str:
    """The whole sentence, or part by part where several were joined."""
    found = _whole(words)
    if found is not None:
        return found
    parts = words.split("; ")
    said = [_whole(part) for part in parts]
    if len(parts) == 1 or not any(said):
        return words
    return "、".join(part if new is None else new for part, new in zip(parts, said, strict=True))


def _whole(words: str) -> str | None:
    for pattern, japanese in phrases():
        found = pattern.fullmatch(words)
        if found:
            return japanese.format(**found.groupdict())
    return None


@lru_cache(maxsize=1)
def phrases() -> tuple[tuple[re.Pattern[str], str], ...]:
    """The one with the most words of its own comes first."""
    path = files("nonuniform.report") / "text" / "phrases.toml"
    pairs = tomllib.loads(path.read_text(encoding="utf-8"))["phrases"]
    pairs.sort(key=lambda pair: -len(re.sub(r"{\w+}", "", pair[0])))
    return tuple((_pattern(english), japanese) for english, japanese in pairs)


def _pattern(english: str) -> re.Pattern[str]:
    parts = Formatter().parse(english)
    return re.compile(
        "".join(re.escape(own) + (f"(?P<{gap}>.+?)" if gap else "") for own, gap, _, _ in parts)
    )
