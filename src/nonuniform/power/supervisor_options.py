"""The command line of the supervisor.

In: its arguments. Out: everything that it is made of, or `BadInput` with the option's name.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NoReturn

from nonuniform.errors import BadInput
from nonuniform.power.actuators.base import Actuator
from nonuniform.power.actuators.choose import KINDS, ActuatorChoice, choose, supervisor_options
from nonuniform.power.lease_file import LeaseFile
from nonuniform.power.lease_values import LeaseOptions
from nonuniform.power.supervisor import SupervisorOptions
from nonuniform.power.telemetry import TelemetryFile


@dataclass(frozen=True)
class SupervisorWishes:
    options: SupervisorOptions
    choice: ActuatorChoice
    record: LeaseFile
    telemetry: TelemetryFile | None
    events_file: Path | None

    def actuator(self) -> Actuator:
        return choose(self.choice)

    @contextmanager
    def events(self) -> Iterator[IO[bytes]]:
        """Unbuffered: an event is there when it has happened."""
        path = self.events_file
        if path is None:
            with open(1, "wb", buffering=0, closefd=False) as out:
                yield out
            return
        try:
            out = open(path, "ab", buffering=0)  # noqa: SIM115
        except OSError as error:
            raise BadInput(f"--events {path}: {error.strerror}") from None
        with out:
            yield out


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise BadInput(message)


def parse(arguments: Sequence[str] | None) -> SupervisorWishes:
    given = _parser().parse_args(arguments)
    telemetry = given.telemetry is not None
    lease = LeaseOptions(given.stale_s, given.tolerance_w, telemetry, given.settle_s)
    if given.stale_s <= given.period_s:
        raise BadInput(
            f"--stale-s {given.stale_s:g}: must be above --period-s {given.period_s:g}, "
            "or news are always old"
        )
    choice = ActuatorChoice(
        given.actuator,
        given.nominal_w,
        given.lowest_w,
        given.highest_w,
        given.set_command,
        given.read_command,
        given.valve_set_command,
        given.valve_read_command,
        given.l_per_min_per_w,
        given.call_s,
        given.fake_folder,
    )
    told = supervisor_options(choice, given.telemetry, given.stale_s)
    return SupervisorWishes(
        SupervisorOptions(
            lease, given.period_s, choice.order_s, given.stop_s, given.until_idle, told
        ),
        choice,
        LeaseFile(given.file.absolute(), given.actuator),
        TelemetryFile(given.telemetry) if given.telemetry else None,
        given.events,
    )


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -m nonuniform.power.supervisor",
        description="Take boosts back when their leases end, whatever becomes of their holders.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--file", type=Path, required=True, help="the record of what has to be restored")
    add("--events", type=Path, help="add a JSON line per event here; stdout without it")
    add("--period-s", type=_above_0, default=1.0, help="how often everything is looked at")
    add("--stale-s", type=_above_0, default=10.0, help="a boost ends this long after the last news")
    add("--telemetry", type=Path, help="JSON file with news of the GPUs, see the docs")
    add("--tolerance-w", type=_above_0, default=1.0, help="how exactly a set point is read back")
    add("--settle-s", type=_above_0, default=10.0, help="how late a raise may still happen")
    add("--stop-s", type=_above_0, default=30.0, help="how long restoring may take at the end")
    add("--until-idle", action="store_true", help="end when nobody holds or wants a boost")
    add("--actuator", required=True, metavar="|".join(KINDS))
    add("--call-s", type=_above_0, default=5.0, help="how long one command may take")
    add("--set-command", default="", help="with {gpu} and {watts}; no shell")
    add("--read-command", default="", help="with {gpu}; prints watts")
    add("--valve-set-command", default="", help="with {gpu} and {flow} in l/min")
    add("--valve-read-command", default="", help="with {gpu}; prints l/min")
    add("--l-per-min-per-w", type=_above_0, default=0.0, help="coolant flow that a watt needs")
    add("--nominal-w", type=_above_0, default=0.0, help="set point that a dry run starts from")
    add("--lowest-w", type=_above_0, default=0.0)
    add("--highest-w", type=_above_0, default=0.0, help="highest set point; NVML knows it itself")
    add("--fake-folder", type=Path, help="for tests: GPUs that are files")
    return parser


def _above_0(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text}: must be a number above 0")
    return value
