"""Arguments of a program, whatever file they are in.

In: arguments of a command, or keys of YAML and JSON. Out: `Given`s, and `Notebook`, in which a
reader of a format writes what they mean. DESIGN "Outside contract". Knows no program's names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from nonuniform.errors import BadInput
from nonuniform.planner.jobs.account import NAUGHT, Value, Word, real, whole
from nonuniform.planner.jobs.fact import Kind, shown
from nonuniform.planner.jobs.shell import Argument

# Sizes that no plan can do without: an argument whose value is not known is refused, not left out.
NEEDED = frozenset(
    (
        *("tensor", "pipeline", "context", "expert", "micro_batch", "sequences", "length"),
        *("layers", "hidden", "heads", "kv_heads", "ffn", "experts", "interleave"),
        *("chunk_layers",),
    )
)


@dataclass(frozen=True)
class Given:
    """`name`: words joined by -. `value`: text, or a plain value. `on`: False for a switch that is
    set to false."""

    name: str
    value: object
    note: str
    spelled: str
    on: bool = True
    doubt: str = ""
    missing: tuple[str, ...] = ()
    bare: bool = False  # a switch without a value
    more: str = ""  # what follows the value

    def show(self) -> str:
        text = "" if self.bare else f" {shown(f'{self.value} {self.more}', 80)}"
        return f"{self.spelled}{text}"


def of_command(arguments: Iterable[Argument]) -> list[Given]:
    """Of an argument that is given twice the last counts, as everywhere."""
    found: dict[str, Given] = {}
    for item in arguments:
        bare = not item.value
        found[item.name] = Given(
            item.name,
            item.value,
            item.note,
            item.spelled,
            doubt=item.doubt,
            missing=item.missing,
            bare=bare,
            more=" ".join(field.text for field in item.values[1:]),
        )
    return list(found.values())


def of_keys(leaves: Iterable[tuple[str, object]]) -> list[Given]:
    """Of keys such as `model_parallel.tensor_model_parallel_size` the last part counts."""
    found: list[Given] = []
    for key, value in leaves:
        last = key.rsplit(".", 1)[-1].lstrip("-").replace("_", "-")
        if value is None:
            continue
        switch = isinstance(value, bool)
        found.append(
            Given(last, value, shown(key, 80), shown(key, 80), value is not False, bare=switch)
        )
    return found


@dataclass
class Notebook:
    """What was understood so far. `path` is named in refusals."""

    path: str
    said: dict[str, Word] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)
    notes: list[tuple[str, str, str]] = field(default_factory=list)

    def count(self, key: str, given: Given) -> None:
        """A whole number for `key`."""
        if given.missing:
            self._not_known(key, given)
            return
        value = whole(f"{self.path}: {given.note}", given.value, 0 if key in NAUGHT else 1)
        self.put(key, value, given)

    def number(self, key: str, given: Given) -> None:
        if given.missing:
            self._not_known(key, given)
            return
        self.put(key, real(f"{self.path}: {given.note}", given.value), given)

    def put(self, key: str, value: Value, given: Given) -> None:
        kind: Kind = "assumed" if given.doubt else "stated"
        note = f"{given.note}; {given.doubt}" if given.doubt else given.note
        old = self.said.get(key)
        if old is not None and old.value != value:
            raise BadInput(
                f"{self.path}: {old.note} = {old.value}, but {given.note} = {value}: they mean the "
                "same and disagree"
            )
        self.said[key] = Word(value, note, kind)

    def derive(self, key: str, value: Value, note: str) -> None:
        self.said[key] = Word(value, note, "derived")

    def leave(self, given: Given, why: str = "") -> None:
        self.unknown.append(f"{given.show()} ({why or given.note})")

    def _not_known(self, key: str, given: Given) -> None:
        names = ", ".join(shown(name, 40) for name in given.missing)
        if key in NEEDED:
            text = shown(str(given.value), 60)
            raise BadInput(
                f"{self.path}: {given.note} = {text}: {names} is not set in the file; set it "
                "there, or in the environment"
            )
        self.leave(given, f"{names} is not set in the file")


def by_name(items: Iterable[Given]) -> Mapping[str, Given]:
    return {item.name: item for item in items}
