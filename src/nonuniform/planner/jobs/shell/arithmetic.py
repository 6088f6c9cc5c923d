"""`$((...))` of a shell: whole numbers, their operators and variables.

In: the text inside, and a way to look variables up. Out: an integer, or None where a variable is
not known or the text is something else. Bounded in length, depth and size of numbers. DESIGN
"Outside contract". Runs nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable

LARGEST = 10**18
LONGEST = 400
DEEPEST = 30
_TOKENS = re.compile(r"\s*(\d+|\$?\{?[A-Za-z_]\w*\}?|\*\*|<=|>=|==|!=|&&|\|\||[-+*/%()<>!?:])")
_LEVELS: tuple[tuple[str, ...], ...] = (
    ("||",),
    ("&&",),
    ("==", "!="),
    ("<", ">", "<=", ">="),
    ("+", "-"),
    ("*", "/", "%"),
)


class _NotKnownError(Exception):
    pass


def calculate(text: str, look_up: Callable[[str], str | None]) -> int | None:
    """`look_up`: a variable's text, None where it is not known; a variable that is not set is
    not 0 here, since nothing is guessed."""
    try:
        return _Sum(_split(text), look_up).all()
    except _NotKnownError:
        return None


def _split(text: str) -> list[str]:
    if len(text) > LONGEST:
        raise _NotKnownError
    tokens, at = [], 0
    while at < len(text.rstrip()):
        match = _TOKENS.match(text, at)
        if match is None:
            raise _NotKnownError
        tokens.append(match.group(1))
        at = match.end()
    return tokens


class _Sum:
    def __init__(self, tokens: list[str], look_up: Callable[[str], str | None]) -> None:
        self._tokens = tokens
        self._look_up = look_up
        self._at = 0
        self._depth = 0

    def all(self) -> int:
        value = self._choice()
        if self._at < len(self._tokens):
            raise _NotKnownError
        return value

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _take(self) -> str:
        self._at += 1
        return self._tokens[self._at - 1] if self._at <= len(self._tokens) else ""

    def _choice(self) -> int:
        """a ? b : c"""
        self._depth += 1
        if self._depth > DEEPEST:
            raise _NotKnownError
        value = self._level(0)
        if self._peek() == "?":
            self._take()
            yes = self._choice()
            if self._take() != ":":
                raise _NotKnownError
            no = self._choice()
            value = yes if value else no
        self._depth -= 1
        return value

    def _level(self, level: int) -> int:
        if level == len(_LEVELS):
            return self._power()
        value = self._level(level + 1)
        while self._peek() in _LEVELS[level]:
            value = _apply(self._take(), value, self._level(level + 1))
        return value

    def _power(self) -> int:
        base = self._one()
        if self._peek() != "**":
            return base
        self._take()
        exponent = self._power()
        if not 0 <= exponent <= 64:
            raise _NotKnownError
        return _bounded(base**exponent)

    def _one(self) -> int:
        token = self._take()
        if token == "(":
            value = self._choice()
            if self._take() != ")":
                raise _NotKnownError
            return value
        if token in ("-", "+", "!"):
            self._depth += 1
            if self._depth > DEEPEST:
                raise _NotKnownError
            value = self._one()
            self._depth -= 1
            return {"-": -value, "+": value, "!": int(not value)}[token]
        if not token.isdigit():
            token = self._look_up(token.strip("${}")) or ""
        if not re.fullmatch(r"\s*-?\d{1,18}\s*", token, re.ASCII):
            raise _NotKnownError
        return _bounded(int(token))


def _bounded(value: int) -> int:
    if abs(value) > LARGEST:
        raise _NotKnownError
    return value


def _apply(operator: str, left: int, right: int) -> int:
    if operator in ("/", "%"):
        if right == 0:
            raise _NotKnownError
        # A shell rounds towards 0.
        quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
        return quotient if operator == "/" else left - quotient * right
    results = {
        "+": left + right,
        "-": left - right,
        "*": left * right,
        "<": left < right,
        ">": left > right,
        "<=": left <= right,
        ">=": left >= right,
        "==": left == right,
        "!=": left != right,
        "&&": bool(left and right),
        "||": bool(left or right),
    }
    return _bounded(int(results[operator]))
