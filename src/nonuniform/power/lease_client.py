"""The side of who holds a boost: a trainer, or `nonuniform boost`.

In: the path of the supervisor's record. Out: a boost granted or not, and news of its end. `renew`
is the heartbeat: call it at least three times a lease, from where the work is done, so that who
hangs does not renew. No wait without a bound; nothing here raises because the supervisor has gone.
The connection stays with the process that made it: a child by `os.fork` (a worker that loads data)
loses it, or it would keep the boost of a parent that has died for a whole lease.

    with LeaseClient(file, within_s=5) as client:
        granted, reason = client.ask(Ask("", wishes, lease_s=10), within_s=30)
        while client.news() == "":
            ...one step...
            client.renew()
"""

from __future__ import annotations

import contextlib
import math
import os
import socket
import time
import weakref
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from nonuniform.errors import RunFailed
from nonuniform.power.lease_messages import (
    Answer,
    BadMessage,
    ask_line,
    parse_answer,
    plain_line,
    socket_path,
)
from nonuniform.power.lease_values import Ask

GONE = "the supervisor has gone"
SILENT = "the supervisor has answered no sign of life"
_AGAIN_S = 0.05
_OPEN: weakref.WeakSet[LeaseClient] = weakref.WeakSet()


class LeaseClient:
    def __init__(self, file: Path, within_s: float) -> None:
        """Waits so long for a supervisor to be there; RunFailed if there is none."""
        self._pending = b""
        self._news = ""
        self._gone = ""
        self._number = 0
        self._lease_s = math.inf
        self._unanswered_s: deque[float] = deque()
        self._socket = _connect(socket_path(file), within_s)
        _OPEN.add(self)

    def ask(
        self, ask: Ask, within_s: float, expects: Mapping[str, str] | None = None
    ) -> tuple[bool, str]:
        """Granted or not, and why; not granted where no answer comes. RunFailed never. A
        supervisor whose options are not what the holder `expects` refuses."""
        deadline = time.monotonic() + within_s
        self._number += 1
        self._lease_s, self._news = ask.lease_s, self._gone
        self._unanswered_s.clear()
        self._send(ask_line(replace(ask, number=self._number), expects))
        while not self._news:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                self.release()  # who does not know whether it holds a boost must not hold one
                return False, f"the supervisor did not answer within {within_s:g} s"
            if (answer := self._answer(left_s)) is not None and self._is_mine(answer):
                return answer.granted, answer.reason
        return False, self._news

    def renew(self) -> None:
        if not self.news():
            self._unanswered_s.append(time.monotonic())
            self._send(plain_line("renew"))

    def release(self) -> None:
        self._send(plain_line("release"))

    def news(self, wait_s: float = 0.0) -> str:
        """Why the boost has ended; empty while it is held. A supervisor that takes signs of life
        and has answered none for a lease stands still: whoever holds a boost must not count on
        its being taken back."""
        deadline = time.monotonic() + wait_s
        while not self._news:
            answer = self._answer(deadline - time.monotonic())
            if answer is None:
                break
            if self._is_mine(answer) and not answer.granted:
                self._news = answer.reason
        waits_s = self._unanswered_s and time.monotonic() - self._unanswered_s[0]
        if not self._news and waits_s and waits_s > self._lease_s:
            self._news = f"{SILENT} for {waits_s:.1f} s; set points may still be raised"
        return self._news

    def close(self) -> None:
        """The boost ends with the connection, if it has not ended before."""
        self._socket.close()

    def __enter__(self) -> LeaseClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self.close()

    def _is_mine(self, answer: Answer) -> bool:
        """It is the answer to the last ask, and not to one before or to a sign of life."""
        if answer.renewed and self._unanswered_s:
            self._unanswered_s.popleft()
        return not answer.renewed and answer.number in (0, self._number)

    def _lose(self) -> None:
        self._gone = GONE
        self._news = self._news or GONE

    def _send(self, line: bytes) -> None:
        try:
            self._socket.settimeout(1.0)
            self._socket.sendall(line)
        except OSError:
            self._lose()

    def _answer(self, wait_s: float) -> Answer | None:
        """The next line; None if none came in time."""
        if b"\n" not in self._pending:
            try:
                self._socket.settimeout(max(wait_s, 0.0))
                data = self._socket.recv(1 << 16)
            except (TimeoutError, BlockingIOError):
                return None
            except OSError:
                data = b""
            if not data:
                self._lose()
                return None
            self._pending += data
        line, newline, rest = self._pending.partition(b"\n")
        if not newline:
            return None
        self._pending = rest
        with contextlib.suppress(BadMessage):
            return parse_answer(line)
        return None


def _connect(path: Path, within_s: float) -> socket.socket:
    deadline = time.monotonic() + within_s
    while True:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(str(path))
            return connection
        except OSError as error:
            connection.close()
            if time.monotonic() >= deadline:
                raise RunFailed(f"no supervisor at {path}: {error.strerror}") from None
        time.sleep(_AGAIN_S)


def _close_in_child() -> None:
    for client in list(_OPEN):
        client.close()


os.register_at_fork(after_in_child=_close_in_child)
