"""What a holder and the supervisor say to each other: one JSON object a line, over a unix socket.

    holder      {"do": "ask", "number": int, "gpus": [{"gpu", "set_point_w", "nominal_w",
                 "known_as"}], "lease_s", "lasts_s", "limit_c", "expects": {option: str}}
                {"do": "renew"}   {"do": "release"}
    supervisor  {"granted": bool, "reason": str, "number": int}
                {"renewed": true}             one for each sign of life

`lasts_s` and `limit_c` may be null: no limit; `number`, `known_as` and `expects` may be left out.
`expects` is what the holder takes the supervisor's options to be: another value is a refusal.

In: bytes of the other side, not believed until they fit. Out: events of the machine.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from nonuniform.errors import BadInput
from nonuniform.power.lease_values import Ask, Release, Renew, Wish

LONGEST_LINE = 1 << 18
# A name is put into commands: it must not look like an option, nor leave a folder.
_GPU_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_:.-]*(/[A-Za-z0-9][A-Za-z0-9_:.-]*)*")
_LONGEST_PATH = 107  # bytes of the name of a unix socket on Linux


class BadMessage(Exception):
    """It is not one of the messages above, or is not meant for this supervisor."""

    number = 0


class Answer(NamedTuple):
    granted: bool
    reason: str
    number: int
    renewed: bool = False


def socket_path(file: Path) -> Path:
    """Beside the record."""
    path = file.with_name(file.name + ".socket")
    if (length := len(str(path).encode())) > _LONGEST_PATH:
        raise BadInput(f"{path}: {length} bytes, a socket's name has {_LONGEST_PATH} at the most")
    return path


def is_gpu_name(name: object) -> bool:
    return isinstance(name, str) and len(name) <= 80 and bool(_GPU_NAME.fullmatch(name))


def ask_line(ask: Ask, expects: Mapping[str, str] | None = None) -> bytes:
    return _line(
        {
            "do": "ask",
            "number": ask.number,
            "expects": dict(expects or {}),
            "gpus": [asdict(wish) for wish in ask.wishes],
            "lease_s": ask.lease_s,
            "lasts_s": ask.lasts_s if math.isfinite(ask.lasts_s) else None,
            "limit_c": ask.limit_c if math.isfinite(ask.limit_c) else None,
        }
    )


def plain_line(do: str) -> bytes:
    return _line({"do": do})


def answer_line(granted: bool, reason: str, number: int) -> bytes:
    return _line({"granted": granted, "reason": reason, "number": number})


def renewed_line() -> bytes:
    return _line({"renewed": True})


def parse_answer(line: bytes) -> Answer:
    content = _object(line)
    number, reason = _number(content), str(content.get("reason", ""))
    return Answer(content.get("granted") is True, reason, number, content.get("renewed") is True)


def parse_request(
    line: bytes, holder: str, options: Mapping[str, str] | None = None
) -> Ask | Renew | Release:
    content = _object(line)
    match content.get("do"):
        case "renew":
            return Renew(holder)
        case "release":
            return Release(holder)
        case "ask":
            try:
                _check_expected(content.get("expects"), options or {})
                return _ask(content, holder)
            except BadMessage as error:
                error.number = _number(content)
                raise
        case other:
            raise BadMessage(f"{other!r} is nothing that can be asked for")


def _ask(content: dict[str, Any], holder: str) -> Ask:
    lines = content.get("gpus")
    if not isinstance(lines, list):
        raise BadMessage("gpus: a list was expected")
    lasts_s, limit_c = content.get("lasts_s"), content.get("limit_c")
    return Ask(
        holder,
        tuple(_wish(line) for line in lines),
        _positive(content.get("lease_s"), "lease_s"),
        math.inf if lasts_s is None else _positive(lasts_s, "lasts_s"),
        math.inf if limit_c is None else _positive(limit_c, "limit_c"),
        _number(content),
    )


def _number(content: dict[str, Any]) -> int:
    number = content.get("number")
    return number if isinstance(number, int) else 0


def _check_expected(expected: object, options: Mapping[str, str]) -> None:
    """A holder must not be served by a supervisor that does other things than it believes."""
    if expected is None:
        return
    if not isinstance(expected, dict):
        raise BadMessage("expects: an object was expected")
    for name, value in options.items():
        if name in expected and expected[name] != value:
            raise BadMessage(
                f"the supervisor that is there runs with --{name} {value or '(none)'}, "
                f"not {str(expected[name])[:80] or '(none)'}: end it, or ask for what it does"
            )


def _wish(line: Any) -> Wish:
    if not isinstance(line, dict) or not is_gpu_name(line.get("gpu")):
        raise BadMessage(f"gpus: {str(line)[:80]} does not name a GPU")
    return Wish(
        line["gpu"],
        _positive(line.get("set_point_w"), "set_point_w"),
        _positive(line.get("nominal_w"), "nominal_w"),
        _known_as(line.get("known_as")),
    )


def _known_as(name: object) -> str:
    if not name:
        return ""
    if not isinstance(name, str) or not is_gpu_name(name):
        raise BadMessage(f"known_as: {str(name)[:80]} does not name a GPU")
    return name


def _positive(value: object, key: str) -> float:
    number = math.nan
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf  # an integer of hundreds of digits
    if not 0 < number < math.inf:
        raise BadMessage(f"{key}: {str(value)[:40]} is not above 0 and finite")
    return number


def _object(line: bytes) -> dict[str, Any]:
    try:
        content = json.loads(line)
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise BadMessage("a line is not one JSON object")
    return content


def _line(content: dict[str, Any]) -> bytes:
    return json.dumps(content, allow_nan=False).encode() + b"\n"
