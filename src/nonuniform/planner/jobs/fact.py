"""What was understood of a file, one line each, and how it is known.

In: values. Out: `Fact`, as the page and the table show it. DESIGN "Outside contract". Knows
nothing of the files that facts are from.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["stated", "derived", "assumed"]


@dataclass(frozen=True)
class Fact:
    """`note`: where the file says so, or the equation, or why it had to be assumed."""

    about: str
    name: str
    text: str
    note: str = ""
    kind: Kind = "stated"

    @property
    def assumed(self) -> bool:
        return self.kind == "assumed"

    def as_dict(self) -> dict[str, str | bool]:
        return {
            "about": self.about,
            "name": self.name,
            "text": self.text,
            "note": self.note,
            "kind": self.kind,
            "assumed": self.assumed,
        }


def shown(text: str, limit: int = 120) -> str:
    """Text of a file on one line: no control characters, no end of line, not endless."""
    plain = "".join(c if c.isprintable() else " " for c in text).strip()
    return plain if len(plain) <= limit else plain[: limit - 3] + "..."
