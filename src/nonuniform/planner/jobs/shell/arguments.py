"""The arguments of a command: flags with their values.

In: fields. Out: `Argument`s in the order of the command, `--a-b 1` and `--a_b=1` alike. DESIGN
"Outside contract". Knows no program's arguments: whatever follows a flag up to the next is its.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from nonuniform.planner.jobs.fact import shown
from nonuniform.planner.jobs.shell.expand import Field

_FLAG = re.compile(r"^(--?[A-Za-z][\w.-]*)(?:=(.*))?$", re.DOTALL)


@dataclass(frozen=True)
class Argument:
    """`name` without dashes in front, words joined by -. `spelled`: as in the file."""

    name: str
    spelled: str
    values: tuple[Field, ...]
    line: int
    doubt: str = ""

    @property
    def value(self) -> str:
        return self.values[0].text if self.values else ""

    @property
    def missing(self) -> tuple[str, ...]:
        """Of its value."""
        return self.values[0].missing if self.values else ()

    @property
    def note(self) -> str:
        return f"{self.spelled}, line {self.line}"

    def show(self) -> str:
        return shown(" ".join([self.spelled, *(field.text for field in self.values)]))


def arguments(words: Sequence[Field]) -> list[Argument]:
    found: list[Argument] = []
    flag: Field | None = None
    spelled, values = "", list[Field]()

    def finish() -> None:
        if flag is not None:
            name = spelled.lstrip("-").replace("_", "-")
            doubt = next((field.doubt for field in (flag, *values[:1]) if field.doubt), "")
            found.append(Argument(name, spelled, tuple(values), flag.line, doubt))

    for word in _loose(words):
        match = _FLAG.match(word.text)
        if match is None:
            values.append(word)
            continue
        finish()
        flag, spelled, values = word, match[1], []
        if match[2] is not None:
            values.append(Field(match[2], word.line, word.missing))
    finish()
    return found


def _loose(words: Sequence[Field]) -> list[Field]:
    """`"--flag value"`, quoted as one, is meant as two."""
    done: list[Field] = []
    for word in words:
        if word.text.startswith("--") and "=" not in word.text and len(word.text.split()) > 1:
            done += word.words()
        else:
            done.append(word)
    return done
