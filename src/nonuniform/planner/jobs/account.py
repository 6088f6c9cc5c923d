"""What a file says of a job, in the words of this package and before anything is worked out.

In: values with the place they are from. Out: `Account`, the same for every format. DESIGN
"Outside contract". Knows nothing of formats, nor whether the values go together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from nonuniform.errors import BadInput
from nonuniform.planner.jobs.fact import Kind, shown

Value = int | float | str | bool
LARGEST = 10**15  # no count of a job is larger

COUNTS = (
    *("tensor", "pipeline", "context", "expert", "data", "interleave", "micro_batch"),
    *("accumulation", "sequences", "length", "gpus", "nodes", "gpus_per_node", "domain"),
    *("steps", "samples", "checkpoint_every_steps", "chunk_layers", "extra_layers"),
    *("layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab"),
)
NAUGHT = ("window", "experts", "experts_per_token", "extra_layers", "zero")  # may be 0


@dataclass(frozen=True)
class Word:
    """`note`: the flag or key, and its line where lines are known."""

    value: Value
    note: str
    kind: Kind = "stated"

    @property
    def whole(self) -> int:
        return int(self.value)


@dataclass(frozen=True)
class Account:
    """`said`: by our names. `defaults`: what the program takes where its file is silent.

    `uneven`: layers need not divide by the stages. `model_name`: of the catalog, if it is one.
    `text_notes`: further facts as (name, text, note).
    """

    path: str
    format: str
    program: str
    said: Mapping[str, Word]
    unknown: tuple[str, ...] = ()
    defaults: Mapping[str, Value] = field(default_factory=lambda: MappingProxyType({}))
    uneven: str = ""
    model_name: str = ""
    notes: tuple[tuple[str, str, str], ...] = ()


def whole(where: str, value: object, least: int = 1) -> int:
    """A count as shells, YAML and JSON write it: 8, "8", 1_000, 1e5. `where`: file and key."""
    number: int | float | None = None
    if isinstance(value, bool):
        number = None
    elif isinstance(value, int | float):
        number = value
    elif isinstance(value, str) and len(value) < 40:
        number = _number(value)
    if number is None or number != number or abs(number) > LARGEST or number != int(number):
        raise BadInput(f"{where} = {shown(repr(value), 60)}: must be a whole number")
    if number < least:
        raise BadInput(f"{where} = {int(number)}: must be at least {least}")
    return int(number)


def real(where: str, value: object) -> float:
    """A number above 0."""
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else None
    if isinstance(value, str) and len(value) < 40:
        number = _number(value)
    if number is None or not 0 < number < float("inf") or number > 1e30:
        raise BadInput(f"{where} = {shown(repr(value), 60)}: must be a number above 0")
    return float(number)


def _number(text: str) -> int | float | None:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return None
