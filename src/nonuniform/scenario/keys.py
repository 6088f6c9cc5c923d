"""Keys that come from the command line: `--set key=value` and `--sweep key=v1,v2`.

In: the text. Out: a dotted key and values as TOML would read them. A value that is no TOML is a
string, so that `job.x=ntp` needs no quotes. Knows nothing of which keys there are.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from nonuniform.errors import BadInput
from nonuniform.sim.sweep import with_settings


def parse_set(flags: Sequence[str]) -> dict[str, Any]:
    """`["run.days=30"]` -> {"run.days": 30}."""
    found: dict[str, Any] = {}
    for flag in flags:
        key, text = _split("--set", flag, found)
        found[key] = _value(text)
    return found


def parse_sweep(flags: Sequence[str]) -> dict[str, list[Any]]:
    """`["run.days=30,60"]` -> {"run.days": [30, 60]}; a list is one value: `[32,30],[32,28]`."""
    found: dict[str, list[Any]] = {}
    for flag in flags:
        key, text = _split("--sweep", flag, found)
        values = _toml(f"[{text}]")
        if values is None:
            values = [_value(part) for part in text.split(",") if part.strip()]
        if not values:
            raise BadInput(f"--sweep {flag}: holds no value for {key}")
        found[key] = values
    return found


def with_keys(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """A copy with some dotted keys replaced; tables on the way that are not there are made."""
    try:
        return with_settings(values, changes)
    except BadInput as error:
        raise BadInput(str(error).replace("[sweep]", "command line:", 1)) from None


def _split(flag: str, text: str, taken: Mapping[str, Any]) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    key, value = key.strip(), value.strip()
    if not (equals and value and key and all(key.split("."))):
        what = "key=v1,v2" if flag == "--sweep" else "key=value"
        raise BadInput(f"{flag} {text}: must be {what}, such as {_EXAMPLE[flag]}")
    if "." not in key:
        raise BadInput(f"{flag} {text}: the key must name its section, such as {_EXAMPLE[flag]}")
    if key in taken:
        raise BadInput(f"{flag} {text}: {key} is given twice")
    return key, value


_EXAMPLE = {"--set": "run.days=30", "--sweep": "cluster.domain=8,32,72"}


def _value(text: str) -> Any:
    value = _toml(text)
    return text.strip() if value is None else value


def _toml(text: str) -> Any:
    """None where it is no TOML value; TOML has no null, so nothing is lost by that."""
    if "\n" in text:
        return None
    try:
        return tomllib.loads(f"v = {text}")["v"]
    except tomllib.TOMLDecodeError:
        return None
