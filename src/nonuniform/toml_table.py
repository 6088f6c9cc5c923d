"""A table of a TOML file as a frozen dataclass, or one line that says which key is wrong.

In: the class, the table, where it stands. Out: the value. Knows nothing of what the keys mean.
"""

from __future__ import annotations

import difflib
import math
from dataclasses import MISSING, fields
from typing import Any, TypeVar, get_type_hints

from nonuniform.errors import BadInput

Table = dict[str, Any]
T = TypeVar("T")


def from_table(
    kind: type[T],
    table: Table,
    where: str,
    hidden: tuple[str, ...] = (),
    least: float = -math.inf,
) -> T:
    """`where` begins every line, such as `rack.toml: [gpu]`. `hidden`: keys that the caller adds
    and a person doesn't know of. `least`: of any number. What
    the class itself refuses gets `where` too."""
    hints = get_type_hints(kind)
    known = {field.name: field for field in fields(kind) if field.init}  # type: ignore[arg-type]
    told = [key for key in known if key not in hidden]
    for key in table:
        if key not in known:
            near = difflib.get_close_matches(key, told, n=1, cutoff=0.4)
            more = f"did you mean {near[0]}?" if near else f"known are {', '.join(told)}"
            raise BadInput(f"{where}: unknown key {key}, {more}")
    missing = [key for key, f in known.items() if key not in table and f.default is MISSING]
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        raise BadInput(f"{where}: {', '.join(missing)} {verb} missing")
    values = {
        key: value if key in hidden else _typed(where, key, value, hints[key], least)
        for key, value in table.items()
    }
    try:
        return kind(**values)
    except BadInput as error:
        raise BadInput(f"{where}: {error}") from None


def _typed(where: str, key: str, value: object, hint: object, least: float) -> object:
    """Whole numbers, finite numbers and true or false are what they say; all else is text."""
    wanted = {int: "a whole number", float: "a finite number", bool: "true or false"}
    name = wanted.get(hint, "text")  # type: ignore[call-overload]
    if hint is int or hint is bool:
        right = type(value) is hint
    elif hint is float:
        right = type(value) in (int, float) and math.isfinite(float(str(value)))
    else:
        right = isinstance(value, str)
    if not right:
        raise BadInput(f"{where}: {key} = {value!r}: must be {name}")
    if hint in (int, float) and float(str(value)) < least:
        raise BadInput(f"{where}: {key} = {value}: must be {least:g} or more")
    return float(str(value)) if hint is float else value
