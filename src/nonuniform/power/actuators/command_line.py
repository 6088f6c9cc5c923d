"""A command that sets watts, as power managers of a data centre have one.

In: argument lists in which `{gpu}` and `{watts}` stand for what is set, such as
`("pm", "cap", "--gpu={gpu}", "--watts={watts}")`. Out: the command, told whole watts, run without a
shell, with nothing to read and within a time. Reading: one number on the output, perhaps with ` W`
behind it.

A command does not outlive this process: the kernel kills it when the thread that started it is
gone, and its group is killed when it has ended. Not so what it leaves in a session of its own, what
runs set-user-id (`sudo`), what a command started when this process is killed, or what it has told
another machine: whether such a thing has its way later is not known here.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import re
import shlex
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from nonuniform.errors import BadInput
from nonuniform.power.actuators.base import ActuatorRefused, LimitsW

_PLACE = re.compile(r"\{([^{}]*)\}")
_DYING_S = 1.0
_PR_SET_PDEATHSIG = 1
_C = ctypes.CDLL(None)  # here, as nothing may be loaded between fork and exec


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
    """What the command prints; it and all that is left of its group are gone when this returns."""
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
            preexec_fn=_dies_with(os.getpid()),
        )
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise ActuatorRefused(f"{argv[0]} does not start: {error}") from None
    try:
        out, complaint = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        _end(process)
        raise ActuatorRefused(f"{argv[0]} gave no answer within {timeout_s:g} s") from None
    _kill_group(process)
    if process.returncode != 0:
        said = " ".join(complaint.split())[:200]
        raise ActuatorRefused(f"{argv[0]} ended with status {process.returncode}: {said}")
    return out


def _dies_with(parent: int) -> Callable[[], None]:
    """For the child, before it becomes the command."""

    def prepare() -> None:
        _C.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        if os.getppid() != parent:  # it died before that was asked for
            os._exit(1)

    return prepare


def _kill_group(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _end(process: subprocess.Popen[str]) -> None:
    """The whole group: a child of the command may hold the pipes open for ever."""
    _kill_group(process)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.communicate(timeout=_DYING_S)
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
