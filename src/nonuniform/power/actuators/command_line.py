"""A command that sets watts, as power managers of a data centre have one.

In: argument lists in which `{gpu}` and `{watts}` stand for what is set, such as
`("pm", "cap", "--gpu={gpu}", "--watts={watts}")`. Out: the command, told whole watts, run without a
shell, with nothing to read and within a time. Reading: one number on the output, perhaps with ` W`
behind it.

Does not know whether a command that ran out of time will still have its way later.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import shlex
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nonuniform.errors import BadInput
from nonuniform.power.actuators.base import ActuatorRefused, LimitsW

_PLACE = re.compile(r"\{([^{}]*)\}")
_DYING_S = 1.0


@dataclass(frozen=True)
class Template:
    """One command; `argv` may hold only the places that it was parsed for."""

    argv: tuple[str, ...]

    def filled(self, values: Mapping[str, str]) -> list[str]:
        """In one pass, so that braces in a value stay what they are."""
        return [_PLACE.sub(lambda place: values[place[1]], word) for word in self.argv]


def parse_template(option: str, line: str, places: Sequence[str]) -> Template:
    """The words of a command line, each of `places` in it, and nothing else in braces."""
    try:
        argv = shlex.split(line)
    except ValueError as error:
        raise BadInput(f"{option} {line!r}: {error}") from None
    found = {name for word in argv for name in _PLACE.findall(word)}
    if missing := [f"{{{name}}}" for name in places if name not in found]:
        raise BadInput(f"{option} {line!r}: {' and '.join(missing)} missing")
    if unknown := sorted(found.difference(places)):
        raise BadInput(f"{option} {line!r}: {{{unknown[0]}}} is not known there")
    if _PLACE.search(argv[0]):
        raise BadInput(f"{option} {line!r}: the command itself must be fixed")
    return Template(tuple(argv))


@dataclass(frozen=True)
class CommandLine:
    setting: Template
    reading: Template
    limits: LimitsW
    timeout_s: float

    def read_w(self, gpu: str) -> float:
        return number(run(self.reading.filled({"gpu": gpu}), self.timeout_s), "W")

    def set_w(self, gpu: str, watts: float) -> None:
        run(self.setting.filled({"gpu": gpu, "watts": f"{watts:.0f}"}), self.timeout_s)

    def limits_w(self, gpu: str) -> LimitsW:
        return self.limits


def number(text: str, unit: str) -> float:
    """The one finite number in an answer, or a refusal that quotes it."""
    said = " ".join(text.split())
    try:
        value = float(said.removesuffix(unit))
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ActuatorRefused(f"a number of {unit} was expected, and {said[:80]!r} came")
    return value


def run(argv: Sequence[str], timeout_s: float) -> str:
    """What the command prints; it and all that it started are gone when this returns."""
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise ActuatorRefused(f"{argv[0]} does not start: {error}") from None
    try:
        out, complaint = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        _end(process)
        raise ActuatorRefused(f"{argv[0]} gave no answer within {timeout_s:g} s") from None
    if process.returncode != 0:
        said = " ".join(complaint.split())[:200]
        raise ActuatorRefused(f"{argv[0]} ended with status {process.returncode}: {said}")
    return out


def _end(process: subprocess.Popen[str]) -> None:
    """The whole group: a child of the command may hold the pipes open for ever."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.communicate(timeout=_DYING_S)
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
