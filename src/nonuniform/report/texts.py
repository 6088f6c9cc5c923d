"""All sentences of the pages, in both languages.

In: `text/en*.toml` and `text/ja*.toml`; each file adds tables of its own. Out: `Texts`, asked by
dotted key. Both languages have the same keys and the same gaps, which a test checks. No sentence is
written anywhere else.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from typing import Any

from nonuniform.report.said import Both, Language, Said, Sentence, Verbatim, said


class Texts:
    """`texts("plan.title", job=name)`; `texts.known("reason", code)` for codes that may be new."""

    def __init__(self, words: Mapping[str, Both]) -> None:
        self._words = words

    def __call__(self, key: str, /, **gaps: Said | str | int) -> Said:
        return Sentence(self._words[key], {name: said(value) for name, value in gaps.items()})

    def known(self, prefix: str, code: str, /, **gaps: Said | str | int) -> Said:
        """The sentence of a code, or the code itself where a newer file knows more codes."""
        if f"{prefix}.{code}" not in self._words:
            return Verbatim(code, code=True)
        return self(f"{prefix}.{code}", **gaps)

    def __contains__(self, key: str) -> bool:
        return key in self._words

    def words(self, key: str, lang: Language) -> str:
        """The bare words, with their gaps."""
        return self._words[key].text(lang)

    def keys(self) -> list[str]:
        return sorted(self._words)


@lru_cache(maxsize=1)
def load_texts() -> Texts:
    en, ja = read_words("en"), read_words("ja")
    return Texts({key: Both(en[key], ja[key]) for key in en})


def read_words(lang: Language) -> dict[str, str]:
    """Every sentence of one language by its dotted key."""
    folder = files("nonuniform.report") / "text"
    names = sorted(
        path.name
        for path in folder.iterdir()
        if path.name.startswith(lang) and path.name.endswith(".toml")
    )
    words: dict[str, str] = {}
    for name in names:
        tables = tomllib.loads((folder / name).read_text(encoding="utf-8"))
        _flatten(tables, "", words)
    return words


def _flatten(tables: Mapping[str, Any], prefix: str, into: dict[str, str]) -> None:
    for key, value in tables.items():
        dotted = f"{prefix}{key}"
        if isinstance(value, Mapping):
            _flatten(value, f"{dotted}.", into)
        elif dotted in into:
            raise ValueError(f"text key {dotted} is given twice")
        else:
            into[dotted] = str(value).strip()
