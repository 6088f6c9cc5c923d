"""A shell script as words and operators, unexpanded.

In: text. Out: `Word`, `Array` and `Op` tokens with their lines, and bodies of here-documents. Of
the shell's language, what launch scripts use: quotes, continued lines, `$NAME`, `${...}`,
`$((...))`, `NAME=( ... )`, comments, redirections (dropped), substitutions of commands (kept as
text, never run). DESIGN "Outside contract". Knows no values of variables.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

from nonuniform.errors import BadInput

MOST_TOKENS = 50_000
ASSIGNS = re.compile(r"^([A-Za-z_]\w*)(\+?)=$")
_NAME = re.compile(r"[A-Za-z_]\w*|[0-9@*#?$!-]")
_HEREDOC = re.compile(r"<<-?[ \t]*(\\?[\w.]+|'[^'\n]*'|\"[^\"\n]*\")")
_OPERATORS = (";;&", ";&", ";;", "&&", "||", "|&", "\n", ";", "&", "|", "(", ")")


@dataclass(frozen=True)
class Part:
    """`text`: of a literal, or inside `${...}`, `$((...))`, `$(...)`."""

    kind: Literal["text", "parameter", "arithmetic", "command"]
    text: str
    quoted: bool


@dataclass(frozen=True)
class Word:
    parts: tuple[Part, ...]
    line: int

    @property
    def plain(self) -> str:
        """The text of a word without quotes and variables, else nothing."""
        only = all(part.kind == "text" and not part.quoted for part in self.parts)
        return "".join(part.text for part in self.parts) if only else ""


@dataclass(frozen=True)
class Array:
    """NAME=( ... ) or NAME+=( ... )."""

    name: str
    append: bool
    words: tuple[Word, ...]
    line: int


@dataclass(frozen=True)
class Op:
    text: str
    line: int


Token = Word | Array | Op


@dataclass
class _Here:
    """A here-document whose body is still to come."""

    end: str
    tabs: bool


@dataclass
class Lexer:
    """Reads `text` once, from left to right. `where`: file, for refusals."""

    where: str
    text: str
    line: int = 1
    at: int = 0
    bodies: list[tuple[int, str]] = field(default_factory=list)
    _pending: list[_Here] = field(default_factory=list)

    def tokens(self) -> list[Token]:
        found: list[Token] = []
        while self.at < len(self.text):
            token = self._next()
            if token is not None:
                found.append(token)
            if len(found) > MOST_TOKENS:
                raise BadInput(f"{self.where}: more than {MOST_TOKENS} words, too many for a job")
        return found

    def _next(self) -> Token | None:
        if self._blank():
            return None
        for text in _OPERATORS:
            if self.text.startswith(text, self.at):
                return self._operator(text)
        if self.text[self.at] in "<>" or self.text.startswith("&>", self.at):
            self._redirection()
            return None
        return self._word_or_array()

    def _blank(self) -> bool:
        """Spaces, continued lines and comments: whether something was passed."""
        rest = self.text
        if rest[self.at] in " \t":
            self.at += 1
        elif rest.startswith("\\\n", self.at):
            self._pass(2)
        elif rest[self.at] == "#":
            end = rest.find("\n", self.at)
            self.at = len(rest) if end < 0 else end
        else:
            return False
        return True

    def _pass(self, count: int) -> str:
        piece = self.text[self.at : self.at + count]
        self.line += piece.count("\n")
        self.at += count
        return piece

    def _operator(self, text: str) -> Op | None:
        if text == "&" and self.text.startswith("&>", self.at):
            self._redirection()
            return None
        op = Op(text, self.line)
        self._pass(len(text))
        if text == "\n":
            for here in self._pending:
                self._body(here)
            self._pending.clear()
        return op

    def _body(self, here: _Here) -> None:
        first, lines = self.line, []
        while self.at < len(self.text):
            end = self.text.find("\n", self.at)
            stop = len(self.text) if end < 0 else end + 1
            line = self._pass(stop - self.at).removesuffix("\n")
            if (line.lstrip("\t") if here.tabs else line) == here.end:
                break
            lines.append(line)
        self.bodies.append((first, "\n".join(lines)))

    def _redirection(self) -> None:
        """Dropped, with its file. A here-document's body is taken out of the way."""
        here = _HEREDOC.match(self.text, self.at)
        if here and not self.text.startswith("<<<", self.at):
            end = here.group(1).strip("'\"").lstrip("\\")
            self._pending.append(_Here(end, here.group(0).startswith("<<-")))
            self._pass(len(here.group(0)))
            return
        if self.text.startswith(("<(", ">("), self.at):
            self._pass(1)
            self._balanced("(", ")", self.line)
            return
        while self.at < len(self.text) and self.text[self.at] in "<>&|":
            self.at += 1
        while self.at < len(self.text) and self.text[self.at] in " \t":
            self.at += 1
        if self.at < len(self.text) and self.text[self.at] not in "\n;|&()<>":
            self._word()

    def _word_or_array(self) -> Token | None:
        line = self.line
        word = self._word()
        name = ASSIGNS.match(word.plain)
        if name and self.text.startswith("(", self.at):
            self._pass(1)
            return Array(name.group(1), bool(name.group(2)), tuple(self._array(line)), line)
        file_number = word.plain.isdigit() and self.text[self.at : self.at + 1] in ("<", ">")
        return None if file_number else word

    def _array(self, line: int) -> list[Word]:
        words: list[Word] = []
        while self.at < len(self.text):
            if self._blank():
                continue
            letter = self.text[self.at]
            if letter == ")":
                self._pass(1)
                return words
            if letter in "\n;&|<>(":
                self._pass(1)
                continue
            words.append(self._word())
        raise BadInput(f"{self.where}: line {line}: the ( that opens an array is never closed")

    def _word(self) -> Word:
        parts: list[Part] = []
        line = self.line
        while self.at < len(self.text) and self.text[self.at] not in " \t\n;&|()<>":
            start = self.at
            self._piece(parts, quoted=False)
            assert self.at > start
        return Word(tuple(parts), line)

    def _piece(self, parts: list[Part], quoted: bool) -> None:
        """One more piece of a word: a letter, a quoted stretch, a variable."""
        letter = self.text[self.at]
        if letter == "\\":
            self._escaped(parts, quoted)
        elif letter == "'" and not quoted:
            self._single(parts)
        elif letter == '"' and not quoted:
            self._double(parts)
        elif letter == "`":
            line = self.line
            self._pass(1)
            parts.append(Part("command", self._until("`", line), quoted))
        elif letter == "$":
            self._dollar(parts, quoted)
        else:
            _add(parts, self._pass(1), quoted)

    def _escaped(self, parts: list[Part], quoted: bool) -> None:
        pair = self._pass(2)
        if pair == "\\\n":
            return
        keeps = quoted and pair[1:] not in ("$", "`", '"', "\\")
        # Escaped letters are never split or looked up again: as if quoted.
        _add(parts, pair if keeps else pair[1:], True)

    def _single(self, parts: list[Part]) -> None:
        line = self.line
        self._pass(1)
        _add(parts, self._until("'", line), True)

    def _double(self, parts: list[Part]) -> None:
        line = self.line
        self._pass(1)
        _add(parts, "", True)
        while self.at < len(self.text) and self.text[self.at] != '"':
            self._piece(parts, quoted=True)
        if self.at >= len(self.text):
            raise BadInput(f'{self.where}: line {line}: the " that opens here is never closed')
        self._pass(1)

    def _until(self, mark: str, line: int) -> str:
        end = self.text.find(mark, self.at)
        if end < 0:
            raise BadInput(f"{self.where}: line {line}: the {mark} that opens here is never closed")
        inside = self._pass(end - self.at)
        self._pass(1)
        return inside

    def _dollar(self, parts: list[Part], quoted: bool) -> None:
        line = self.line
        if self.text.startswith("$((", self.at):
            self._pass(1)
            inside = self._balanced("(", ")", line)
            arithmetic = inside.startswith("(") and inside.endswith(")")
            kind: Literal["arithmetic", "command"] = "arithmetic" if arithmetic else "command"
            parts.append(Part(kind, inside[1:-1] if arithmetic else inside, quoted))
        elif self.text.startswith("$(", self.at):
            self._pass(1)
            parts.append(Part("command", self._balanced("(", ")", line), quoted))
        elif self.text.startswith("${", self.at):
            self._pass(1)
            parts.append(Part("parameter", self._balanced("{", "}", line), quoted))
        elif self.text.startswith("$'", self.at) and not quoted:
            self._pass(1)
            self._single(parts)
        else:
            self._pass(1)
            name = _NAME.match(self.text, self.at)
            if name:
                parts.append(Part("parameter", self._pass(len(name.group(0))), quoted))
            else:
                _add(parts, "$", quoted)

    def _balanced(self, opens: str, closes: str, line: int) -> str:
        """What is between a bracket, which is next, and the one that closes it."""
        depth, start, text = 0, self.at + 1, self.text
        at, mark = self.at, ""
        while at < len(text):
            letter = text[at]
            if letter == "\\":
                at += 1
            elif mark:
                mark = "" if letter == mark else mark
            elif letter in "'\"":
                mark = letter
            elif letter in (opens, closes):
                depth += 1 if letter == opens else -1
                if depth == 0:
                    self._pass(at + 1 - self.at)
                    return text[start:at]
            at += 1
        raise BadInput(f"{self.where}: line {line}: the {opens} that opens here is never closed")


def _add(parts: list[Part], text: str, quoted: bool) -> None:
    last = parts[-1] if parts else None
    if last is not None and last.kind == "text" and last.quoted == quoted:
        parts[-1] = Part("text", last.text + text, quoted)
    else:
        parts.append(Part("text", text, quoted))
