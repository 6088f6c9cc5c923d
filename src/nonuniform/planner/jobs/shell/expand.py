"""Words of a script with their variables filled in.

In: words, and the variables as far as they are known. Out: `Field`s: arguments as a program would
get them, with the names of variables that are not known, and the doubt that hangs on those set
under a condition nobody can tell. DESIGN "Outside contract". Runs nothing, reads no files.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from nonuniform.errors import BadInput
from nonuniform.planner.jobs.shell.arithmetic import calculate
from nonuniform.planner.jobs.shell.lex import Array, Lexer, Part, Word

LONGEST = 1 << 18  # letters of one expansion
DEEPEST = 12  # of defaults inside defaults
_PARAMETER = re.compile(
    r"^(?P<length>#?)(?P<name>[A-Za-z_]\w*|[0-9]+|[@*#?$!-])(\[(?P<index>[^\]]*)\])?(?P<rest>.*)$",
    re.DOTALL,
)


@dataclass(frozen=True)
class Field:
    """`missing`: variables and commands whose value is not known. `doubts`: (from, to, why) of
    stretches of the text that may be others when the script runs."""

    text: str
    line: int
    missing: tuple[str, ...] = ()
    doubts: tuple[tuple[int, int, str], ...] = ()

    @property
    def doubt(self) -> str:
        return self.doubts[0][2] if self.doubts else ""

    def joined(self, other: Field) -> Field:
        at = len(self.text)
        moved = tuple((start + at, end + at, why) for start, end, why in other.doubts)
        line = self.line if self.text else other.line
        return Field(
            self.text + other.text, line, self.missing + other.missing, self.doubts + moved
        )

    def doubted(self, why: str, start: int = 0) -> Field:
        """With a doubt about everything from `start` on."""
        if not why:
            return self
        kept = tuple(span for span in self.doubts if span[1] <= start)
        return replace(self, doubts=(*kept, (start, len(self.text), why)))

    def words(self) -> list[Field]:
        """Split at white space."""
        return [self._cut(*match.span()) for match in re.finditer(r"\S+", self.text)]

    def _cut(self, start: int, end: int) -> Field:
        spans = tuple((0, end - start, why) for a, b, why in self.doubts if a < end and b > start)
        return Field(self.text[start:end], self.line, self.missing, spans)


@dataclass(frozen=True)
class Variable:
    fields: tuple[Field, ...]
    array: bool = False
    where: str = ""  # "environment" or the scheduler, where not the script


@dataclass
class Scope:
    """The variables of a script so far. `used`: those that came from outside the script."""

    where: str
    variables: dict[str, Variable] = field(default_factory=dict)
    outside: Mapping[str, str] = field(default_factory=dict)
    used: dict[str, str] = field(default_factory=dict)
    _depth: int = 0
    _letters: int = 0

    def look_up(self, name: str) -> Variable | None:
        if name in self.variables:
            return self.variables[name]
        if name in self.outside:
            self.used[name] = self.outside[name]
            return Variable((Field(self.outside[name], 0),))
        return None

    def scalar(self, name: str) -> str | None:
        """A variable's text, None where it or a part of it is not known."""
        variable = self.look_up(name)
        if variable is None or not variable.fields or variable.fields[0].missing:
            return None
        return variable.fields[0].text

    def assign(self, name: str, words: Sequence[Word], append: bool, doubt: str) -> None:
        """NAME=word; a plain assignment is not split into fields."""
        line = words[0].line if words else 0
        new = self.whole(words[0]) if words else Field("", line)
        old = self.variables.get(name)
        before = old.fields[0] if old is not None and old.fields else Field("", line)
        if append:
            new = before.joined(new)
        # What is only put behind the old value leaves that as sure as it was.
        kept = len(before.text) if new.text.startswith(before.text) else 0
        self.variables[name] = Variable((self._bounded(new.doubted(doubt, kept)),))

    def assign_array(self, array: Array, doubt: str) -> None:
        new = [field.doubted(doubt) for word in array.words for field in self.split(word)]
        old = self.variables.get(array.name)
        before = old.fields if array.append and old is not None else ()
        self.variables[array.name] = Variable((*before, *new), array=True)

    def whole(self, word: Word) -> Field:
        """As one text, whatever is in it."""
        result = Field("", word.line)
        for part in word.parts:
            values = self._values(part, word.line)
            for index, value in enumerate(values):
                glue = Field(" " if index else "", word.line)
                result = self._bounded(result.joined(glue).joined(value))
        return result

    def split(self, word: Word) -> list[Field]:
        """As the arguments that it becomes."""
        done: list[Field] = []
        now: Field | None = None
        for part in word.parts:
            values = self._values(part, word.line)
            if part.kind == "text" or (part.quoted and not _is_list(part)):
                for value in values:
                    now = value if now is None else self._bounded(now.joined(value))
                continue
            for piece, starts in _pieces(values, split=not part.quoted):
                if now is not None and starts:
                    done.append(now)
                    now = None
                if piece is not None:
                    now = piece if now is None else self._bounded(now.joined(piece))
        if now is not None:
            done.append(now)
        return [replace(item, line=item.line or word.line) for item in done]

    def _bounded(self, item: Field) -> Field:
        self._letters += len(item.text) if len(item.text) > 4096 else 0
        if len(item.text) > LONGEST or self._letters > 64 * LONGEST:
            raise BadInput(f"{self.where}: line {item.line}: variables grow without end")
        return item

    def _values(self, part: Part, line: int) -> list[Field]:
        if part.kind == "text":
            return [Field(part.text, line)]
        if part.kind == "command":
            shown = f"$({part.text.strip()})"
            return [Field(shown, line, (shown,))]
        if part.kind == "arithmetic":
            value = calculate(part.text, self.scalar)
            shown = f"$(({part.text}))"
            if value is None:
                return [Field(shown, line, (shown,))]
            return [Field(str(value), line).doubted(self._doubt_in(part.text))]
        return self._parameter(part.text, line)

    def _doubt_in(self, text: str) -> str:
        for name in re.findall(r"[A-Za-z_]\w*", text):
            variable = self.variables.get(name)
            if variable and variable.fields and variable.fields[0].doubt:
                return variable.fields[0].doubt
        return ""

    def _parameter(self, text: str, line: int) -> list[Field]:
        match = _PARAMETER.match(text)
        if match is None:
            return [_unknown(text, line)]
        variable = self.look_up(match["name"])
        if match["length"]:
            known = variable is not None and match["index"] in ("@", "*") and not match["rest"]
            count = len(variable.fields) if variable else 0
            return [Field(str(count), line)] if known else [_unknown(text, line)]
        rest = match["rest"]
        if rest:
            return self._operated(match["name"], variable, rest, line)
        if variable is None:
            return [_unknown(text, line)]
        return self._chosen(variable, match["index"], text, line)

    def _chosen(self, variable: Variable, index: str | None, text: str, line: int) -> list[Field]:
        if index in ("@", "*"):
            return list(variable.fields)
        if index is None:
            return [variable.fields[0] if variable.fields else Field("", line)]
        place = calculate(index, self.scalar)
        if place is None or not -len(variable.fields) <= place < len(variable.fields):
            return [_unknown(text, line)]
        return [variable.fields[place]]

    def _operated(self, name: str, variable: Variable | None, rest: str, line: int) -> list[Field]:
        """${NAME:-word} and its kin; patterns are not followed."""
        empty = variable is None or not any(f.text for f in variable.fields)
        match = re.match(r"^(:?)([-=+?])(.*)$", rest, re.DOTALL)
        if match is None:
            return [_unknown(name + rest, line)]
        colon, operator, word = match.groups()
        lacks = empty if colon else variable is None
        if operator == "?":
            return [_unknown(name, line)] if lacks or variable is None else [*variable.fields[:1]]
        if operator == "+":
            return [Field("", line)] if lacks else [self._default(word, line)]
        if not lacks and variable is not None:
            return [variable.fields[0] if variable.fields else Field("", line)]
        value = self._default(word, line)
        if operator == "=":
            self.variables[name] = Variable((value,))
        return [value]

    def _default(self, text: str, line: int) -> Field:
        self._depth += 1
        if self._depth > DEEPEST:
            raise BadInput(f"{self.where}: line {line}: defaults are nested too deep")
        quoted = '"' + text.replace('"', "") + '"'
        tokens = Lexer(self.where, quoted, line).tokens()
        value = self.whole(tokens[0]) if tokens and isinstance(tokens[0], Word) else Field("", line)
        self._depth -= 1
        return value


def _unknown(text: str, line: int) -> Field:
    plain = re.fullmatch(r"\w+|[@*#?$!-]", text)
    return Field(f"${text}" if plain else f"${{{text}}}", line, (text,))


def _is_list(part: Part) -> bool:
    return (part.kind == "parameter" and part.text.endswith("[@]")) or part.text == "@"


def _pieces(values: Sequence[Field], split: bool) -> list[tuple[Field | None, bool]]:
    """(text, whether a new argument starts with it); None only ends the one before."""
    pieces: list[tuple[Field | None, bool]] = []
    for index, value in enumerate(values):
        if not split or value.missing:
            pieces.append((value, index > 0))
            continue
        starts = index > 0 or value.text[:1].isspace()
        for piece in value.words():
            pieces.append((piece, starts))
            starts = True
        if value.text[-1:].isspace():
            pieces.append((None, True))
    return pieces
