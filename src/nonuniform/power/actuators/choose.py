"""Which actuator, from the words of a command line.

In: the options of `nonuniform boost` and of the supervisor. Out: an actuator; and the same options
as arguments, since the one command starts the other.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from nonuniform.errors import BadInput
from nonuniform.power.actuators.base import Actuator, LimitsW
from nonuniform.power.actuators.command_line import CommandLine, parse_template
from nonuniform.power.actuators.coolant_valve import CooledGpus, Valve
from nonuniform.power.actuators.dry_run import DryRun
from nonuniform.power.actuators.fake import FakeGpus
from nonuniform.power.actuators.nvml import Nvml

KINDS = ("dry-run", "nvml", "command", "fake")


@dataclass(frozen=True)
class ActuatorChoice:
    kind: str
    nominal_w: float = 0.0
    """What a dry run takes as the set point of every GPU."""
    lowest_w: float = 0.0
    highest_w: float = 0.0
    """What `command`, `fake` and `dry-run` are told of the limits; NVML knows them itself."""
    set_command: str = ""
    read_command: str = ""
    valve_set_command: str = ""
    valve_read_command: str = ""
    l_per_min_per_w: float = 0.0
    call_s: float = 5.0
    fake_folder: Path | None = None

    @property
    def order_s(self) -> float:
        """Within which an order is carried out: to set and to read back is up to so many calls."""
        return self.call_s * (6 if self.valve_set_command else 3)

    @property
    def arguments(self) -> list[str]:
        """As the supervisor takes them."""
        words = [f"--actuator={self.kind}", f"--call-s={self.call_s!r}"]
        for option, watts in (
            ("nominal-w", self.nominal_w),
            ("lowest-w", self.lowest_w),
            ("highest-w", self.highest_w),
            ("l-per-min-per-w", self.l_per_min_per_w),
        ):
            words += [f"--{option}={watts!r}"] if watts else []
        for option, text in (
            ("set-command", self.set_command),
            ("read-command", self.read_command),
            ("valve-set-command", self.valve_set_command),
            ("valve-read-command", self.valve_read_command),
            ("fake-folder", str(self.fake_folder or "")),
        ):
            words += [f"--{option}={text}"] if text else []
        return words


def supervisor_options(
    choice: ActuatorChoice, telemetry: Path | None, stale_s: float
) -> dict[str, str]:
    """What a holder counts on, by the names of the options: a supervisor with other ones would set
    other GPUs, by other means, or watch them less."""
    return {
        "actuator": choice.kind,
        "set-command": choice.set_command,
        "read-command": choice.read_command,
        "valve-set-command": choice.valve_set_command,
        "valve-read-command": choice.valve_read_command,
        "l-per-min-per-w": f"{choice.l_per_min_per_w:g}",
        "call-s": f"{choice.call_s:g}",
        "fake-folder": str(choice.fake_folder.absolute()) if choice.fake_folder else "",
        "telemetry": str(telemetry.absolute()) if telemetry else "",
        "stale-s": f"{stale_s:g}",
    }


def check(choice: ActuatorChoice) -> None:
    """All that can be wrong about it without a GPU."""
    _valve(choice)
    if choice.kind != "nvml":
        _power(choice, print)


def check_kind(choice: ActuatorChoice) -> None:
    if choice.kind not in KINDS:
        raise BadInput(f"--actuator {choice.kind}: expected one of {', '.join(KINDS)}")


def choose(choice: ActuatorChoice, say: Callable[[str], None] | None = None) -> Actuator:
    """`say` is for the lines of a dry run; stderr without it."""
    power = _power(choice, say or (lambda line: print(line, file=sys.stderr)))  # noqa: T201
    valve = _valve(choice)
    return power if valve is None else CooledGpus(power, valve)


def _valve(choice: ActuatorChoice) -> Valve | None:
    flow = choice.l_per_min_per_w
    if not (choice.valve_set_command or choice.valve_read_command):
        if flow != 0:
            raise BadInput(f"--l-per-min-per-w {flow:g}: there is no --valve-set-command")
        return None
    if not flow:
        raise BadInput("--l-per-min-per-w is missing: the flow that a watt needs")
    if not 0 < flow < math.inf:
        raise BadInput(f"--l-per-min-per-w {flow:g}: must be a number above 0")
    return Valve(
        parse_template("--valve-set-command", choice.valve_set_command, ("gpu", "flow")),
        parse_template("--valve-read-command", choice.valve_read_command, ("gpu",)),
        flow,
        choice.call_s,
    )


def _power(choice: ActuatorChoice, say: Callable[[str], None]) -> Actuator:
    if choice.kind == "nvml":
        return Nvml()
    check_kind(choice)
    if not 0 <= choice.lowest_w < choice.highest_w:
        raise BadInput(
            f"--lowest-w {choice.lowest_w:g} and --highest-w {choice.highest_w:g} "
            f"are no limits for --actuator {choice.kind}"
        )
    limits = LimitsW(choice.lowest_w, choice.highest_w)
    if choice.kind == "command":
        return CommandLine(
            parse_template("--set-command", choice.set_command, ("gpu", "watts")),
            parse_template("--read-command", choice.read_command, ("gpu",)),
            limits,
            choice.call_s,
        )
    if choice.kind == "fake":
        if choice.fake_folder is None:
            raise BadInput("--fake-folder is missing: where the fake GPUs are")
        return FakeGpus(choice.fake_folder, limits)
    return DryRun(choice.nominal_w, limits, say)
