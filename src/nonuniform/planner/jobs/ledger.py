"""Values of a job as they become known, and the facts that say how.

In: words of an account. Out: words, facts in the order in which they were taken. DESIGN "Outside
contract". Knows nothing of what the values mean.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from nonuniform.planner.jobs.account import Value, Word
from nonuniform.planner.jobs.fact import Fact, Kind


@dataclass
class Ledger:
    about: str
    words: dict[str, Word]
    facts: list[Fact] = field(default_factory=list)
    _told: set[str] = field(default_factory=set)

    def get(self, key: str) -> int | None:
        word = self.words.get(key)
        return None if word is None else word.whole

    def has(self, *keys: str) -> bool:
        return all(key in self.words for key in keys)

    def derive(self, key: str, value: Value, equation: str) -> None:
        """Doubt about a value hangs on what is derived from it only by its own mark: the fact
        beside it says so."""
        self.words[key] = Word(value, equation, "derived")

    def default(self, key: str, word: Word) -> None:
        self.words.setdefault(key, word)

    def take(self, key: str, name: str, unit: str = "") -> Word:
        """The word, told as a fact once."""
        word = self.words[key]
        if key not in self._told:
            self._told.add(key)
            self.note(name, _text(word.value) + unit, word.note, word.kind)
        return word

    def note(self, name: str, text: str, note: str, kind: Kind) -> None:
        self.facts.append(Fact(self.about, name, text, note, kind))


def _text(value: Value) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    return f"{value:,}" if isinstance(value, int) else value
