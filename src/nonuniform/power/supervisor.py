"""Takes boosts back, whatever becomes of those who asked for them: a process of its own.

    python -m nonuniform.power.supervisor --file /var/lib/nonuniform/boost.json --actuator nvml

In: asks and signs of life over the socket beside the record, and what the actuator reads. Out: set
points, the record, a JSON line per event (kinds `boost_granted`, `boost_given_up` with
`"fall_back": "ntp"`, `boost_restored`, `boost_not_restored`, `boost_record`). DESIGN "Policies".

A boost is back at the latest `lease_s` after its holder's last sign of life, or `--stale-s` after
the last news of a GPU, plus one period, plus what two orders take (each up to three calls of
`--call-s`, all GPUs at once; usually milliseconds), plus `_DISK_S` where the disk hangs; at once
if the holder dies and no other process has its connection. A period that passes while asks are
carried out is kept between them. If the supervisor itself is killed, the next one restores what the
record says, before it listens to anybody: run it under something that starts it again.

Decides nothing itself (`lease.py` does), and imports no part of the training.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from nonuniform.errors import BadInput, NonuniformError, RunFailed
from nonuniform.power.actuators.base import (
    Actuator,
    ActuatorRefused,
    Reading,
    read,
    read_before,
    restore,
)
from nonuniform.power.actuators.lanes import Lanes
from nonuniform.power.lease import begin, step
from nonuniform.power.lease_file import LeaseFile
from nonuniform.power.lease_messages import socket_path
from nonuniform.power.lease_socket import LeaseSocket
from nonuniform.power.lease_values import (
    Action,
    Ask,
    Event,
    Found,
    HolderEvent,
    LeaseOptions,
    Lower,
    Note,
    NotWritten,
    Order,
    Raise,
    Read,
    RecordLost,
    Refused,
    Sample,
    State,
    Stop,
    Tell,
    Tick,
    Write,
    Written,
)
from nonuniform.power.telemetry import TelemetryFile
from nonuniform.power.watchdog import notify

_LINGER_S = 2.0
_DISK_S = 5.0
_NEWS_S = 1.0
_EVENT_S = 0.2
Stamp = tuple[int, int, int] | None


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
    told: Mapping[str, str] = field(default_factory=dict)
    """The options that holders may expect, by name."""


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
        self._lanes = Lanes[Reading](options.order_s)
        self._disk = Lanes[Stamp](_DISK_S, "")
        self._exporter = Lanes[list[Sample]](_NEWS_S, "")
        self._log = Lanes[None](_EVENT_S, "")
        self.state: State = begin(options.lease, record.read())
        self._stamp = record.stamp()
        self._socket: LeaseSocket | None = None
        self._later: list[HolderEvent] = []
        self._next_s = math.inf

    def run(self, told_to_stop: Callable[[], bool]) -> None:
        """Until told to stop, and then until all is restored; RunFailed where that fails."""
        try:
            self.hear([Tick()])  # what is owed comes before what is asked
            path = socket_path(self._record.path)
            with closing(LeaseSocket(path, self._options.told)) as self._socket:
                notify("READY=1")
                self._serve(self._socket, told_to_stop)
        except NonuniformError:
            raise
        except Exception:  # a defect of this program must not leave a GPU raised
            self._lower_all()
            raise

    def _serve(self, asked: LeaseSocket, told_to_stop: Callable[[], bool]) -> None:
        period_s = self._options.period_s
        busy_s = time.monotonic()
        self._next_s = busy_s + period_s
        stop_by_s = 0.0
        while True:
            later, self._later = self._later, []
            wait_s = 0.0 if later else self._next_s - time.monotonic()
            self.hear([*later, *asked.events(wait_s)])
            now_s = time.monotonic()
            if now_s >= self._next_s:
                self.hear(self._period([]))
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

    def _lower_all(self) -> None:
        """Without the machine first, as it may be what failed; then the record, if it still can."""
        self._socket, self._next_s = None, math.inf
        raised = [x for x in self.state.leases if x.phase not in ("reading", "recording")]
        self._lanes.answers({x.gpu: self._call(x.lower) for x in raised})
        stop_by_s = time.monotonic() + self._options.stop_s
        event: Event = Stop()
        while not self.state.idle and time.monotonic() < stop_by_s:
            with suppress(Exception):
                self.hear([event])
            event = Tick()
            time.sleep(min(0.1, self._options.period_s))

    def _period(self, waiting: Sequence[Event]) -> list[Event]:
        """What is due once a period: signs of life that have come, news, and a tick. What somebody
        asks for comes after it, and after an ask whatever else that holder said."""
        self._next_s = time.monotonic() + self._options.period_s
        notify("WATCHDOG=1")
        asking = {event.holder for event in (*waiting, *self._later) if isinstance(event, Ask)}
        events: list[Event] = []
        for heard in self._socket.events(0.0) if self._socket else ():
            if isinstance(heard, Ask):
                asking.add(heard.holder)
            (self._later if heard.holder in asking else events).append(heard)
        stamp = self._disk.answer("the record", self._record.stamp)
        if not isinstance(stamp, ActuatorRefused) and stamp != self._stamp:
            self._stamp = stamp
            events.append(RecordLost())
        if self._telemetry:
            news = self._exporter.answer("the telemetry", self._telemetry.samples)
            events += [] if isinstance(news, ActuatorRefused) else news
        return [*events, Tick()]

    def hear(self, events: Sequence[Event]) -> None:
        """Each event, what it leads to, and what that leads to. Where that takes longer than a
        period, a tick comes between: one who asks delays nobody else's end."""
        waiting = list(events)
        while waiting:
            if time.monotonic() >= self._next_s:
                waiting[:0] = self._period(waiting)
            self.state, actions, _ = step(self.state, waiting.pop(0), time.monotonic())
            waiting += self._carry_out(actions)

    def _carry_out(self, actions: Sequence[Action]) -> list[Event]:
        """GPUs first and all at once, as lowering must not wait for the disk. The machine never
        orders a write and a raise that needs it in one go."""
        calls: dict[str, Callable[[], Reading]] = {}
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

    def _call(self, order: Read | Raise | Lower) -> Callable[[], Reading]:
        actuator, gpu = self._actuator, order.gpu
        tolerance_w = self._options.lease.tolerance_w

        def call() -> Reading:
            if isinstance(order, Lower):
                return restore(actuator, gpu, order.watts, tolerance_w, order.flow_l_per_min)
            if isinstance(order, Read) and order.before:
                return read_before(actuator, gpu)
            if isinstance(order, Raise):
                actuator.set_w(gpu, order.watts)
            return read(actuator, gpu)

        return call

    def _event(self, order: Read | Raise | Lower, said: Reading | ActuatorRefused) -> Event:
        after = _after(order)
        if isinstance(said, ActuatorRefused):
            return Refused(order.gpu, str(said), after)
        return Found(order.gpu, said.watts, after, *said[1:])

    def _write(self, write: Write) -> Event:
        def call() -> Stamp:
            self._record.write(write.owed)
            return self._record.stamp()

        stamp = self._disk.answer("the record", call)
        if isinstance(stamp, ActuatorRefused):
            return NotWritten(str(stamp))
        self._stamp = stamp
        return Written(write.owed)

    def _tell(self, tell: Tell) -> None:
        if self._socket is not None:
            self._socket.tell(tell.holder, tell.granted, tell.reason, tell.number)
        if tell.granted:
            self._note("boost_granted", tell.reason, holder=tell.holder)
        else:
            self._note("boost_given_up", tell.reason, holder=tell.holder, fall_back="ntp")

    def _note(self, kind: str, reason: str, **more: str) -> None:
        """Dropped where the log is full, or nobody reads it: it restores no GPU."""
        event = {"time_s": time.time(), "kind": kind, **more, "reason": reason}
        self._log.answer("the events", lambda: self._say(event))


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
