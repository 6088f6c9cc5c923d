"""Slurm's short form of many node names, written out.

In: "rack1-[01-03,07],login". Out: the names, or None where it is no such form, or a cut one. Knows
nothing of a fleet.
"""

from __future__ import annotations

import re

MOST = 1_000_000
_PIECE = re.compile(r"(?:[^\[\],\s]|\[[0-9,\-]+\])+")
_BRACKETS = re.compile(r"\[([0-9,\-]+)\]")
_RANGE = re.compile(r"([0-9]+)(?:-([0-9]+))?")


def host_names(text: str) -> list[str] | None:
    """All names, in order; leading zeros stay. A "+" at the end is Slurm's mark for a cut text."""
    pieces = _PIECE.findall(text)
    if not pieces or ",".join(pieces) != text or text.endswith("+"):
        return None
    names: list[str] = []
    for piece in pieces:
        found = _expanded(piece)
        if found is None or len(names) + len(found) > MOST:
            return None
        names.extend(found)
    return names


def _expanded(piece: str) -> list[str] | None:
    match = _BRACKETS.search(piece)
    if match is None:
        return [piece]
    numbers: list[str] = []
    for part in match[1].split(","):
        span = _RANGE.fullmatch(part)
        if span is None:
            return None
        first, last = span[1], span[2] or span[1]
        if not 0 <= int(last) - int(first) < MOST - len(numbers):
            return None
        numbers.extend(str(n).zfill(len(first)) for n in range(int(first), int(last) + 1))
    rest = _expanded(piece[match.end() :]) if match.end() < len(piece) else [""]
    if rest is None or len(rest) * len(numbers) > MOST:
        return None
    return [piece[: match.start()] + number + tail for number in numbers for tail in rest]
