"""`[ ... ]` and its kin: whether a condition of a script holds, if that can be told.

In: the expanded words of a command. Out: True, False, or None where it depends on something that
is not known (files, commands, variables). DESIGN "Outside contract". Runs nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase

from nonuniform.planner.jobs.shell.expand import Field

_ORDER = ("-eq", "-ne", "-lt", "-le", "-gt", "-ge")


def holds(words: Sequence[Field]) -> bool | None:
    """Commands other than tests are not known: they look at the machine."""
    if not words:
        return True
    first = words[0].text
    if first in ("[", "[[", "test"):
        inner = words[1:] if first == "test" else words[1:-1]
        return _test(inner)
    if first == "!":
        value = holds(words[1:])
        return None if value is None else not value
    if first in ("true", ":"):
        return True
    if first == "false":
        return False
    return None


def matches(text: Field, patterns: Sequence[Field]) -> bool | None:
    """Of `case`: whether one of the patterns fits."""
    if any(pattern.text == "*" for pattern in patterns):
        return True
    if text.missing or any(pattern.missing for pattern in patterns):
        return None
    return any(fnmatchcase(text.text, pattern.text) for pattern in patterns)


def _test(words: Sequence[Field]) -> bool | None:
    if words and words[0].text == "!":
        value = _test(words[1:])
        return None if value is None else not value
    if len(words) == 1:
        return None if words[0].missing else bool(words[0].text)
    if len(words) == 2 and words[0].text in ("-z", "-n"):
        return _empty(words[1], words[0].text == "-z")
    if len(words) == 3:
        return _compare(words[0], words[1].text, words[2])
    return None


def _empty(word: Field, wants_empty: bool) -> bool | None:
    """A variable that the script does not set may be set where it runs."""
    if word.missing:
        return None
    return (not word.text) == wants_empty


def _compare(left: Field, operator: str, right: Field) -> bool | None:
    if left.missing or right.missing:
        return None
    if operator in ("=", "=="):
        return fnmatchcase(left.text, right.text)
    if operator == "!=":
        return not fnmatchcase(left.text, right.text)
    numbers = [w.text.strip() for w in (left, right)]
    if operator not in _ORDER or not all(re.fullmatch(r"-?[0-9]{1,18}", n) for n in numbers):
        return None
    a, b = (int(n) for n in numbers)
    return {
        "-eq": a == b,
        "-ne": a != b,
        "-lt": a < b,
        "-le": a <= b,
        "-gt": a > b,
        "-ge": a >= b,
    }[operator]
