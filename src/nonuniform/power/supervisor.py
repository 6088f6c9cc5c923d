"""Takes boosts back, whatever becomes of those who asked for them: a process of its own.

    python -m nonuniform.power.supervisor --file /var/lib/nonuniform/boost.json --actuator nvml

In: asks and signs of life over the socket beside the record, and what the actuator reads. Out: set
points, the record, a JSON line per event (kinds `boost_granted`, `boost_given_up` with
`"fall_back": "ntp"`, `boost_restored`, `boost_not_restored`, `boost_record`). DESIGN "Policies".

A boost is back at the latest `lease_s` after its holder's last sign of life, or `--stale-s` after
the last news of a GPU, plus one period, plus what two orders take (each up to three calls of
`--call-s`, all GPUs at once; usually milliseconds); at once if the holder dies. If the supervisor
itself is killed, the next one restores what the record says, before it listens to anybody: run it
under something that starts it again.

Decides nothing itself (`lease.py` does), and imports no part of the training.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from nonuniform.errors import BadInput, NonuniformError, RunFailed
from nonuniform.power.actuators.base import Actuator, ActuatorRefused, Reading, lower, read
from nonuniform.power.actuators.lanes import Answer, Call, Lanes
from nonuniform.power.lease import begin, step
from nonuniform.power.lease_file import LeaseFile
from nonuniform.power.lease_messages import socket_path
from nonuniform.power.lease_socket import LeaseSocket
from nonuniform.power.lease_values import (
    Action,
    Event,
    Found,
    LeaseOptions,
    Lower,
    Note,
    NotWritten,
    Order,
    Raise,
    Read,
    Refused,
    State,
    Stop,
    Tell,
    Tick,
    Write,
    Written,
)
from nonuniform.power.telemetry import TelemetryFile

_LINGER_S = 2.0


@dataclass(frozen=True)
class SupervisorOptions:
    lease: LeaseOptions
    period_s: float
    order_s: float
    """How long one order, for all GPUs at once, may take."""
    stop_s: float
    """How long restoring may take once it was told to stop."""
    until_idle: bool = False
    """End by itself when nobody holds or wants a boost and nothing is owed."""


class Supervisor:
    """`say` writes one event; `told_to_stop` is asked once a period."""

    def __init__(
        self,
        options: SupervisorOptions,
        actuator: Actuator,
        record: LeaseFile,
        say: Callable[[dict[str, Any]], None],
        telemetry: TelemetryFile | None = None,
    ) -> None:
        self._options = options
        self._actuator = actuator
        self._record = record
        self._say = say
        self._telemetry = telemetry
        self._lanes = Lanes(options.order_s)
        self.state: State = begin(options.lease, record.read())
        self._socket: LeaseSocket | None = None

    def run(self, told_to_stop: Callable[[], bool]) -> None:
        """Until told to stop, and then until all is restored; RunFailed where that fails."""
        self.hear([Tick()])  # what is owed comes before what is asked
        self._socket = LeaseSocket(socket_path(self._record.path))
        try:
            self._serve(self._socket, told_to_stop)
        finally:
            self._socket.close()

    def _serve(self, asked: LeaseSocket, told_to_stop: Callable[[], bool]) -> None:
        period_s = self._options.period_s
        next_s = time.monotonic() + period_s
        busy_s = time.monotonic()
        stop_by_s = 0.0
        while True:
            self.hear(asked.events(next_s - time.monotonic()))
            now_s = time.monotonic()
            if now_s >= next_s:
                next_s = now_s + period_s
                self.hear(self._telemetry.samples() if self._telemetry else [])
                self.hear([Tick()])
            if told_to_stop() and not stop_by_s:
                stop_by_s = now_s + self._options.stop_s
                self.hear([Stop(), Tick()])
            if not (self.state.idle and asked.empty):
                busy_s = now_s
            if stop_by_s and self.state.idle:
                return
            if stop_by_s and now_s >= stop_by_s:
                raise RunFailed(_still_owed(self.state, self._record.path))
            if self._options.until_idle and now_s - busy_s > max(_LINGER_S, 2 * period_s):
                return

    def hear(self, events: Sequence[Event]) -> None:
        """Each event, what it leads to, and what that leads to."""
        waiting = list(events)
        while waiting:
            self.state, actions, _ = step(self.state, waiting.pop(0), time.monotonic())
            waiting += self._carry_out(actions)

    def _carry_out(self, actions: Sequence[Action]) -> list[Event]:
        """GPUs first and all at once, as lowering must not wait for the disk. The machine never
        orders a write and a raise that needs it in one go."""
        calls: dict[str, Call] = {}
        orders: dict[str, Read | Raise | Lower] = {}
        for action in actions:
            if isinstance(action, Read | Raise | Lower):
                orders[action.gpu] = action
                calls[action.gpu] = self._call(action)
        answers = self._lanes.answers(calls)
        events: list[Event] = [self._event(orders[gpu], said) for gpu, said in answers.items()]
        for action in actions:
            if isinstance(action, Write):
                events.append(self._write(action))
            elif isinstance(action, Tell):
                self._tell(action)
            elif isinstance(action, Note):
                self._note(action.kind, action.reason, gpu=action.gpu)
        return events

    def _call(self, order: Read | Raise | Lower) -> Call:
        actuator, gpu = self._actuator, order.gpu
        tolerance_w = self._options.lease.tolerance_w

        def call() -> Reading:
            if isinstance(order, Lower):
                return lower(actuator, gpu, order.watts, tolerance_w)
            if isinstance(order, Raise):
                actuator.set_w(gpu, order.watts)
            return read(actuator, gpu)

        return call

    def _event(self, order: Read | Raise | Lower, said: Answer) -> Event:
        after = _after(order)
        if isinstance(said, ActuatorRefused):
            return Refused(order.gpu, str(said), after)
        return Found(order.gpu, said.watts, after, said.highest_w, said.lowest_w)

    def _write(self, write: Write) -> Event:
        try:
            self._record.write(write.owed)
        except OSError as error:
            return NotWritten(str(error))
        return Written(write.owed)

    def _tell(self, tell: Tell) -> None:
        if self._socket is not None:
            self._socket.tell(tell.holder, tell.granted, tell.reason)
        if tell.granted:
            self._note("boost_granted", tell.reason, holder=tell.holder)
        else:
            self._note("boost_given_up", tell.reason, holder=tell.holder, fall_back="ntp")

    def _note(self, kind: str, reason: str, **more: str) -> None:
        with suppress(OSError):  # a log that is full restores no GPU
            self._say({"time_s": time.time(), "kind": kind, **more, "reason": reason})


def _after(order: Read | Raise | Lower) -> Order:
    if isinstance(order, Read):
        return "read"
    return "raise" if isinstance(order, Raise) else "lower"


def _still_owed(state: State, path: Path) -> str:
    gpus = ", ".join(lease.gpu for lease in state.leases)
    why = next((lease.trouble for lease in state.leases if lease.trouble), "no answer")
    return f"not restored: GPU {gpus or 'none'} ({why}); {path} says what is owed"


@contextmanager
def only_one(record: Path) -> Iterator[None]:
    """Two supervisors of one record would undo each other."""
    path = record.with_name(record.name + ".lock")
    try:
        lock = open(path, "a", encoding="utf-8")  # noqa: SIM115
    except OSError as error:
        raise BadInput(f"--file {record}: {path} cannot be opened: {error.strerror}") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BadInput(f"--file {record}: another supervisor has it") from None
        yield


def event_line(out: IO[bytes]) -> Callable[[dict[str, Any]], None]:
    def say(event: dict[str, Any]) -> None:
        out.write(json.dumps(event).encode() + b"\n")

    return say


def main(arguments: Sequence[str] | None = None) -> int:
    from nonuniform.power.supervisor_options import parse

    stops: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: stops.append(number))
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        wishes = parse(arguments)
        with only_one(wishes.record.path), wishes.events() as out:
            supervisor = Supervisor(
                wishes.options, wishes.actuator(), wishes.record, event_line(out), wishes.telemetry
            )
            supervisor.run(lambda: bool(stops))
    except NonuniformError as error:
        with suppress(OSError):
            os.write(2, f"supervisor: {error}\n".encode())
        return error.exit_status
    return 0


if __name__ == "__main__":
    sys.exit(main())
