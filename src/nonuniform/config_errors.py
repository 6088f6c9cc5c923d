"""What a person reads when a value in a JOB or SCENARIO file is wrong: one line.

In: pydantic's list of complaints about nested dataclasses. Out: one line that names the file, the
section, the key, what it must be and what it is; with several complaints the first, and a count.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import types
from collections.abc import Container, Mapping
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from pydantic import ValidationError

_UNKNOWN = "unexpected_keyword_argument"

# pydantic's error type -> what the value must be; {…} are filled from the error's own numbers.
_MUST_BE: Mapping[str, str] = {
    "int_type": "an integer",
    "int_parsing": "an integer",
    "int_from_float": "an integer",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "string_type": "a string",
    "string_too_short": "a string that is not empty",
    "string_pattern_mismatch": "a string without a NUL",
    "tuple_type": "a list",
    "dict_type": "a table",
    "dataclass_type": "a table",
    "literal_error": "{expected}",
    "greater_than_equal": "at least {ge}",
    "greater_than": "more than {gt}",
    "less_than_equal": "at most {le}",
    "less_than": "less than {lt}",
}


def describe(file: str, error: ValidationError, root: type, overridden: Container[str] = ()) -> str:
    """The one line. `overridden` holds the dotted keys that the command line gave."""
    # An unknown key explains a missing one more often than the other way round.
    complaints = sorted(error.errors(include_url=False), key=lambda e: e["type"] != _UNKNOWN)
    first: Mapping[str, Any] = complaints[0]
    path = tuple(first["loc"])
    given = any(".".join(map(str, path[:n])) in overridden for n in range(1, len(path) + 1))
    source = "command line" if given else file
    more = f" (and {len(complaints) - 1} more)" if len(complaints) > 1 else ""
    is_table = first["type"] != _UNKNOWN or isinstance(first["input"], dict)
    line = f"{source}: {_place(path, root, is_table)}: {_complaint(first, root)}{more}"
    return line.replace("\n", "\\n")  # a quoted TOML key may hold one


def _place(path: tuple[Any, ...], root: type, is_table: bool) -> str:
    """`[section] key`, `[section.name] key[2]`: the innermost table in brackets, then the key."""
    depth = len(path)
    if depth > 1:
        tables = [n for n in range(1, depth) if _table_at(root, path[:n]) is not None]
        depth = max(tables, default=1)
    elif not is_table:
        return str(path[0])
    section, key = _joined(path[:depth]), _joined(path[depth:])
    return f"[{section}] {key}" if key else f"[{section}]"


def _joined(path: tuple[Any, ...]) -> str:
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.removeprefix(".")


def _complaint(error: Mapping[str, Any], root: type) -> str:
    kind = error["type"]
    if kind == _UNKNOWN:
        return _unknown(tuple(error["loc"]), root)
    if kind == "missing":
        return "is missing"
    must_be = _MUST_BE.get(kind)
    if must_be is None:
        return f"{error['msg'][0].lower()}{error['msg'][1:]}, got {_shown(error['input'])}"
    limits = {name: _number(value) for name, value in error.get("ctx", {}).items()}
    wanted = must_be.format(**limits)
    return f"must be {wanted}, got {_shown(error['input'])}"


def _unknown(path: tuple[Any, ...], root: type) -> str:
    at_root = len(path) == 1
    table = _table_at(root, path[:-1])
    known = _fields(table) if table is not None else []
    what = "section" if at_root else "key"
    near = difflib.get_close_matches(str(path[-1]), known, n=1)
    if near:
        return f"unknown {what}, did you mean {f'[{near[0]}]' if at_root else near[0]}?"
    if at_root:
        known = [f"[{name}]" for name in known]
    return f"unknown {what}, known are {', '.join(known)}"


def _number(value: object) -> object:
    return f"{value:g}" if isinstance(value, float) else value


def _fields(kind: type) -> list[str]:
    return [entry.name for entry in dataclasses.fields(kind)]


def _table_at(root: type, path: tuple[Any, ...]) -> type | None:
    """The dataclass at a path below the root; None where there is a plain value."""
    kind: Any = root
    for part in path:
        if dataclasses.is_dataclass(kind):
            kind = get_type_hints(kind, include_extras=True).get(part)
        else:  # a table of tables or a list of them: the same type for each
            kind = next((a for a in reversed(get_args(kind)) if a is not Ellipsis), None)
        kind = _bare(kind)
    return kind if isinstance(kind, type) and dataclasses.is_dataclass(kind) else None


def _bare(kind: Any) -> Any:
    """Without `Annotated` and without `| None`."""
    if get_origin(kind) is Annotated:
        return _bare(get_args(kind)[0])
    if get_origin(kind) in (Union, types.UnionType):
        return _bare(next(arm for arm in get_args(kind) if arm is not type(None)))
    return kind


def _shown(value: object) -> str:
    """As TOML would write it, short."""
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "..."
