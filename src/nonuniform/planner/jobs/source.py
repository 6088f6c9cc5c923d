"""A job's file as text or plain values, or one line that says why not.

In: a path. Out: text with ends of lines of one kind; TOML, JSON and YAML as plain values.
Whatever the file holds, reading it is bounded and runs nothing. DESIGN "Outside contract". Knows
nothing of what the values mean.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from nonuniform.errors import BadInput
from nonuniform.planner.jobs.fact import shown

LARGEST_BYTES = 1 << 18
MOST_KEYS = 20_000
DEEPEST = 40


def read_text(path: Path) -> str:
    """UTF-8 without control characters; `path` is named in every refusal."""
    if path.is_dir():
        raise BadInput(f"{path}: is a folder, expected a file")
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST_BYTES + 1)
    except FileNotFoundError:
        raise BadInput(f"{path}: no such file") from None
    except (OSError, ValueError) as error:
        raise BadInput(f"{path}: cannot be read: {getattr(error, 'strerror', error)}") from None
    if len(data) > LARGEST_BYTES:
        raise BadInput(f"{path}: is larger than {LARGEST_BYTES >> 10} KiB, too large for a job")
    if b"\0" in data:
        raise BadInput(f"{path}: is not text (byte {data.index(0)} is 0)")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}: is not UTF-8 text (byte {error.start})") from None
    if not text.strip():
        raise BadInput(f"{path}: the file is empty")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def parse_toml(path: Path, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"{path}: is not valid TOML: {shown(str(error))}") from None
    except (RecursionError, ValueError) as error:
        raise BadInput(f"{path}: is not valid TOML: {_reason(error)}") from None


def parse_json(path: Path, text: str) -> dict[str, Any]:
    try:
        value = json.loads(text, object_pairs_hook=_no_twins)
    except json.JSONDecodeError as error:
        line = f"line {error.lineno}: {error.msg}"
        raise BadInput(f"{path}: is not valid JSON: {line}") from None
    except (RecursionError, ValueError) as error:
        raise BadInput(f"{path}: is not valid JSON: {_reason(error)}") from None
    return _table(path, value, "JSON")


def parse_yaml(path: Path, text: str) -> dict[str, Any]:
    try:
        value = yaml.load(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        line = f" line {error.problem_mark.line + 1}:" if error.problem_mark else ""
        problem = shown(error.problem or "cannot be read")
        raise BadInput(f"{path}: is not valid YAML:{line} {problem}") from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise BadInput(f"{path}: is not valid YAML: {_reason(error)}") from None
    return _table(path, value, "YAML")


def flatten(path: Path, values: dict[str, Any]) -> list[tuple[str, object]]:
    """(dotted key, value) of all leaves; lists are leaves. Bounded, also where a YAML file
    refers to one block again and again."""
    leaves: list[tuple[str, object]] = []
    stack: list[tuple[str, object, int]] = [("", values, 0)]
    while stack:
        prefix, value, depth = stack.pop()
        if not isinstance(value, dict):
            leaves.append((prefix, value))
        elif depth > DEEPEST:
            raise BadInput(f"{path}: {shown(prefix, 60)} is nested more than {DEEPEST} deep")
        else:
            dot = f"{prefix}." if prefix else ""
            stack += [(f"{dot}{key}", item, depth + 1) for key, item in reversed(value.items())]
        if len(leaves) + len(stack) > MOST_KEYS:
            raise BadInput(f"{path}: holds more than {MOST_KEYS} keys, too many for a job")
    return leaves


def _table(path: Path, value: object, kind: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadInput(f"{path}: the {kind} is a {type(value).__name__}, expected keys and values")
    return {str(key): item for key, item in value.items()}


def _reason(error: Exception) -> str:
    return "nested too deep" if isinstance(error, RecursionError) else shown(str(error))


def _no_twins(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    table: dict[str, Any] = {}
    for key, value in pairs:
        if key in table and table[key] != value:
            raise ValueError(f"{shown(key, 60)} is given twice, with different values")
        table[key] = value
    return table


class _Loader(yaml.SafeLoader):
    """A safe loader that refuses a key which is given twice with different values."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        own: dict[str, object] = {}
        for key, value in node.value:
            name = key.value if isinstance(key, yaml.ScalarNode) else ""
            # Only plain values are compared: a block may refer to others without end.
            told = value.value if isinstance(value, yaml.ScalarNode) else value
            if name not in ("", "<<") and own.setdefault(name, told) != told:
                raise ValueError(
                    f"line {key.start_mark.line + 1}: {shown(name, 60)} is given twice, "
                    "with different values"
                )
        return super().construct_mapping(node, deep)
