"""What a person reads when a value in a JOB file is wrong: one line.

In: pydantic's list of complaints about nested dataclasses. Out: one line that names the file, the
section, the key, what it must be and what it is; with several complaints the first, and a count.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
from collections.abc import Container, Mapping
from typing import Any, get_type_hints

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
    dotted = ".".join(str(part) for part in path[:2])
    source = "command line" if dotted in overridden else file
    more = f" (and {len(complaints) - 1} more)" if len(complaints) > 1 else ""
    is_table = first["type"] != _UNKNOWN or isinstance(first["input"], dict)
    line = f"{source}: {_place(path, is_table)}: {_complaint(first, root)}{more}"
    return line.replace("\n", "\\n")  # a quoted TOML key may hold one


def _place(path: tuple[Any, ...], is_table: bool) -> str:
    section, *keys = path
    if not keys:
        return f"[{section}]" if is_table else f"{section}"
    name = str(keys[0])
    for position in keys[1:]:
        name += f"[{position}]"
    return f"[{section}] {name}"


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
    known = _fields(root) if at_root else _fields(_section_type(root, path[0]))
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


def _section_type(root: type, section: str) -> type:
    kind = get_type_hints(root)[section]
    assert isinstance(kind, type)
    return kind


def _shown(value: object) -> str:
    """As TOML would write it, short."""
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "..."
