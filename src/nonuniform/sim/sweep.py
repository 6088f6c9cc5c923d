"""One scenario with some keys at several values: all combinations.

In: a scenario as the nested dict of its file, and for dotted keys the values to try. Out: one such
dict for each combination. DESIGN "Outside contract". Knows no key by name: whoever reads the
scenarios says what is wrong with them.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Mapping
from typing import Any

from nonuniform.errors import BadInput

Scenario = dict[str, Any]
Axes = Mapping[str, Any]
"""Dotted key -> list of values, as it was read from a file."""


def settings(axes: Axes) -> list[dict[str, Any]]:
    """All combinations of values, the last key changing fastest."""
    for key, values in axes.items():
        if not isinstance(values, (list, tuple)) or not values:
            raise BadInput(f"[sweep] {key} = {values!r}, expected a list of at least one value")
    return [dict(zip(axes, chosen, strict=True)) for chosen in itertools.product(*axes.values())]


def sweep(base: Mapping[str, Any], axes: Axes) -> list[Scenario]:
    """The scenarios, in the order of `settings`. `base` stays as it is."""
    return [with_settings(base, chosen) for chosen in settings(axes)]


def with_settings(base: Mapping[str, Any], chosen: Mapping[str, Any]) -> Scenario:
    """A copy with these dotted keys set; tables that are not there are made, and a number is the
    place in a list of tables (`failures.cause.0.rate_per_day`)."""
    scenario: Scenario = copy.deepcopy(dict(base))
    for key, value in chosen.items():
        *path, last = key.split(".")
        table: Any = scenario
        for depth, name in enumerate(path):
            table = _within(table, name, ".".join(path[:depth]), key)
        _put(table, last, copy.deepcopy(value), key)
    return scenario


def _within(table: Any, name: str, where: str, key: str) -> Any:
    if isinstance(table, list):
        return table[_place(table, name, key)]
    if not isinstance(table, dict):
        raise BadInput(f"[sweep] {key}: {where} = {table!r} is no table")
    return table.setdefault(name, {})


def _put(table: Any, name: str, value: Any, key: str) -> None:
    if isinstance(table, list):
        table[_place(table, name, key)] = value
    elif isinstance(table, dict) and name:
        table[name] = value
    else:
        raise BadInput(f"[sweep] {key}: no table that could hold it")


def _place(values: list[Any], name: str, key: str) -> int:
    if not name.isdecimal() or int(name) >= len(values):
        raise BadInput(f"[sweep] {key}: {name} is no place in a list of {len(values)}, from 0 on")
    return int(name)
