"""A script followed from top to bottom: its variables, and the commands that it would run.

In: text. Out: `Script`: commands with their arguments filled in, and what could not be followed.
Of `if`, `case`, `&&` and `||` the branch is taken that the variables lead to; where nobody can
tell, all branches are followed and what they set is marked as doubtful. Nothing is run, no file
is opened. DESIGN "Outside contract". Knows no program's arguments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from nonuniform.planner.jobs.fact import shown
from nonuniform.planner.jobs.shell.conditions import holds, matches
from nonuniform.planner.jobs.shell.expand import Field, Scope, Variable
from nonuniform.planner.jobs.shell.lex import ASSIGNS, Array, Lexer, Op, Token, Word

DEEPEST = 4  # of `bash -c "..."` inside one another
_OPENS = ("if", "while", "until", "for", "select", "case")
_PASSED = ("then", "do", "{", "}", "time", "function", "!")
_DECLARES = ("export", "declare", "local", "readonly", "typeset")
_SHELLS = ("bash", "sh", "zsh", "eval", "/bin/bash", "/bin/sh")


@dataclass(frozen=True)
class Command:
    """`doubt`: why it may not run, if it stands under a condition that is not known."""

    words: tuple[Field, ...]
    line: int
    doubt: str = ""


@dataclass(frozen=True)
class Script:
    """`held`: words of variables by name, for arguments that no command seems to use.

    `outside`: variables from outside the script that were used. `unread`: what was not followed.
    """

    commands: tuple[Command, ...]
    held: Mapping[str, tuple[Field, ...]]
    outside: Mapping[str, str]
    unread: tuple[str, ...]


@dataclass
class _Frame:
    """A branch: whether it is taken, None where nobody can tell, and whether one before it was."""

    kind: str
    taken: bool | None
    before: bool | None = False
    doubt: str = ""
    subject: Field | None = None
    pattern: bool = False  # of `case`: patterns come next


@dataclass
class _Walk:
    where: str
    scope: Scope
    depth: int = 0
    frames: list[_Frame] = field(default_factory=list)
    commands: list[Command] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    patterns: list[Token] = field(default_factory=list)
    last: bool | None = True

    def read(self, text: str, line: int = 1) -> None:
        lexer = Lexer(self.where, text, line)
        words: list[Token] = []
        chain = ""
        for token in [*lexer.tokens(), Op("\n", line)]:
            if not isinstance(token, Op):
                words.append(token)
                continue
            if not self._in_pattern():
                self._simple(words, chain)
            else:
                self.patterns += words
            words, chain = [], token.text
            if self._in_pattern():
                self._choose(token.text)
            elif token.text in (";;", ";&", ";;&") and self.frames:
                self.frames[-1].pattern = self.frames[-1].kind == "case"
        for start, body in lexer.bodies:
            self._nested(body, start)

    def _in_pattern(self) -> bool:
        return bool(self.frames) and self.frames[-1].pattern

    def _nested(
        self, text: str, line: int, outer: Sequence[Field] = (), source: Field | None = None
    ) -> None:
        """A script inside this one. `outer`: the command that starts it. Doubts about `source`
        stay with the flags that are in its doubtful stretches."""
        if self.depth >= DEEPEST or "--" not in text:
            return
        inner = _Walk(self.where, self.scope, self.depth + 1, list(self.frames))
        inner.read(text, line)
        doubts = {
            word: why
            for start, end, why in (source.doubts if source is not None else ())
            for word in text[start:end].split()
            if word.startswith("--")
        }
        for command in inner.commands:
            words = (field.doubted(doubts.get(field.text, "")) for field in command.words)
            self.commands.append(Command((*outer, *words), command.line, command.doubt))
        self.unread += inner.unread

    @property
    def _active(self) -> bool:
        return all(frame.taken is not False for frame in self.frames)

    @property
    def _doubt(self) -> str:
        return next((f.doubt for f in self.frames if f.taken is None), "")

    def _simple(self, tokens: list[Token], chain: str) -> None:
        """One command with what stands before it: reserved words, assignments."""
        tokens = self._reserved(tokens)
        if not tokens or not self._active:
            return
        doubt = self._doubt
        if chain in ("&&", "||"):
            runs = self.last if chain == "&&" else (None if self.last is None else not self.last)
            if runs is False:
                return
            if runs is None:
                doubt = doubt or f"line {tokens[0].line}: runs only if what stands before it holds"
        self._run(tokens, doubt)

    def _reserved(self, tokens: list[Token]) -> list[Token]:
        while tokens and isinstance(tokens[0], Word):
            word = tokens[0].plain
            if word in _OPENS:
                return self._open(word, tokens)
            if word in ("elif", "else", "fi", "done", "esac"):
                return self._close(word, tokens)
            if word not in _PASSED:
                return tokens
            tokens = tokens[1:]
        return tokens

    def _open(self, word: str, tokens: list[Token]) -> list[Token]:
        doubt = f"line {tokens[0].line}: under a condition that is not known here"
        frame = _Frame(word, True, doubt=doubt)
        if word == "if":
            frame.taken = self._condition(tokens[1:])
            frame.before = frame.taken
        elif word == "case":
            subject = tokens[1] if len(tokens) > 1 else None
            frame.subject = self.scope.whole(subject) if isinstance(subject, Word) else None
            frame.taken, frame.pattern = False, True
            self.patterns = tokens[3:]
        else:
            frame.taken = None
            if word == "for" and len(tokens) > 1 and isinstance(tokens[1], Word):
                self.scope.variables.pop(tokens[1].plain, None)
        self.frames.append(frame)
        return []

    def _close(self, word: str, tokens: list[Token]) -> list[Token]:
        if not self.frames:
            return []
        if word in ("fi", "done", "esac"):
            self.frames.pop()
            return []
        frame = self.frames[-1]
        value: bool | None = True
        if word == "elif":
            value = self._condition(tokens[1:])
        self._branch(frame, value)
        return [] if word == "elif" else tokens[1:]

    @staticmethod
    def _branch(frame: _Frame, value: bool | None) -> None:
        """The next branch of `frame`, whose own condition is `value`."""
        before = frame.before
        if before is True or value is False:
            frame.taken = False
        else:
            frame.taken = True if before is False and value is True else None
        if value is True or before is True:
            frame.before = True
        elif value is None:
            frame.before = None

    def _choose(self, operator: str) -> None:
        """Patterns are read up to their `)`; instead of a pattern, `esac` ends it all."""
        words = [token for token in self.patterns if isinstance(token, Word)]
        if words and words[0].plain == "esac":
            self.frames.pop()
            self.patterns = []
        elif operator == ")" and words:
            frame = self.frames[-1]
            texts = [self.scope.whole(word) for word in words]
            subject = frame.subject
            self._branch(frame, matches(subject, texts) if subject is not None else None)
            frame.pattern = False
            self.patterns = []

    def _condition(self, tokens: Sequence[Token]) -> bool | None:
        words = [f for t in tokens if isinstance(t, Word) for f in self._kept(t)]
        return holds(words)

    def _kept(self, word: Word) -> list[Field]:
        """As one argument, also where it is empty: conditions ask for that."""
        return [self.scope.whole(word)]

    def _run(self, tokens: list[Token], doubt: str) -> None:
        rest = self._assignments(tokens, doubt)
        words = [f for token in rest if isinstance(token, Word) for f in self.scope.split(token)]
        if not words:
            self.last = True
            return
        first = words[0].text
        if first in _DECLARES:
            self._declare(rest[1:], doubt)
        elif first in ("source", "."):
            name = words[1].text if len(words) > 1 else ""
            self.unread.append(f"{first} {shown(name, 80)} (line {words[0].line}: not read)")
        elif first in ("[", "[[", "test", "true", "false", ":"):
            self.last = self._condition(rest)
            return
        else:
            self.commands.append(Command(tuple(words), words[0].line, doubt))
            self._inner(words)
        self.last = True

    def _assignments(self, tokens: list[Token], doubt: str) -> list[Token]:
        """Makes those that stand alone. In front of a command they hold for that command only."""
        own = 0
        while own < len(tokens) and _assigned(tokens[own]):
            own += 1
        if own == len(tokens):
            for token in tokens:
                self._assign(token, doubt)
        return tokens[own:]

    def _declare(self, tokens: list[Token], doubt: str) -> None:
        for token in tokens:
            if _assigned(token):
                self._assign(token, doubt)

    def _assign(self, token: Token, doubt: str) -> None:
        if isinstance(token, Array):
            self.scope.assign_array(token, doubt)
        elif isinstance(token, Word):
            name, append, rest = _split_assignment(token)
            self.scope.assign(name, [rest], append, doubt)

    def _inner(self, words: Sequence[Field]) -> None:
        """`bash -c "..."` and `eval ...`: a script of its own."""
        at = next((at for at, word in enumerate(words) if word.text in _SHELLS), None)
        if at is None:
            return
        rest = words[at + 1 :]
        if words[at].text == "eval":
            whole = Field("", words[at].line)
            for field in rest:
                whole = whole.joined(Field(" ", field.line)).joined(field)
            self._nested(whole.text, words[at].line, words[:at], whole)
        elif len(rest) > 1 and rest[0].text.startswith("-") and rest[0].text.endswith("c"):
            self._nested(rest[1].text, words[at].line, words[:at], rest[1])


def follow(where: str, text: str, outside: Mapping[str, str], set_up: Mapping[str, str]) -> Script:
    """`outside`: the environment. `set_up`: variables that the scheduler sets, from its
    directives."""
    scope = Scope(where, outside=outside)
    for name, value in set_up.items():
        scope.variables[name] = Variable((Field(value, 0),))
    walk = _Walk(where, scope)
    walk.read(text)
    held = {
        name: tuple(variable.fields)
        for name, variable in scope.variables.items()
        if name not in set_up
    }
    return Script(tuple(walk.commands), held, dict(scope.used), tuple(walk.unread))


def _assigned(token: Token) -> bool:
    if isinstance(token, Array):
        return True
    return isinstance(token, Word) and _equals(token) >= 0


def _equals(word: Word) -> int:
    """Where the = of NAME= or NAME+= is in the first part, -1 where there is none."""
    if not word.parts or word.parts[0].kind != "text" or word.parts[0].quoted:
        return -1
    text = word.parts[0].text
    at = text.find("=")
    return at if at > 0 and ASSIGNS.match(text[: at + 1]) else -1


def _split_assignment(word: Word) -> tuple[str, bool, Word]:
    at = _equals(word)
    first = word.parts[0]
    name = first.text[:at]
    rest = type(first)(first.kind, first.text[at + 1 :], first.quoted)
    parts = (rest, *word.parts[1:]) if rest.text else word.parts[1:]
    return name.removesuffix("+"), name.endswith("+"), Word(tuple(parts), word.line)
