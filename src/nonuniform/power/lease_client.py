"""The side of who holds a boost: a trainer, or `nonuniform boost`.

In: the path of the supervisor's record. Out: a boost granted or not, and news of its end. `renew`
is the heartbeat: call it at least three times a lease, from where the work is done, so that who
hangs does not renew. No wait without a bound; nothing here raises because the supervisor has gone.

    with LeaseClient(file, within_s=5) as client:
        granted, reason = client.ask(Ask("", wishes, lease_s=10), within_s=30)
        while client.news() == "":
            ...one step...
            client.renew()
"""

from __future__ import annotations

import contextlib
import socket
import time
from pathlib import Path
from types import TracebackType

from nonuniform.errors import RunFailed
from nonuniform.power.lease_messages import (
    BadMessage,
    ask_line,
    parse_answer,
    plain_line,
    socket_path,
)
from nonuniform.power.lease_values import Ask

GONE = "the supervisor has gone"
_AGAIN_S = 0.05


class LeaseClient:
    def __init__(self, file: Path, within_s: float) -> None:
        """Waits so long for a supervisor to be there; RunFailed if there is none."""
        self._pending = b""
        self._news = ""
        self._socket = _connect(socket_path(file), within_s)

    def ask(self, ask: Ask, within_s: float) -> tuple[bool, str]:
        """Granted or not, and why; not granted where no answer comes. RunFailed never."""
        deadline = time.monotonic() + within_s
        self._send(ask_line(ask))
        while not self._news:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                self.release()  # who does not know whether it holds a boost must not hold one
                return False, f"the supervisor did not answer within {within_s:g} s"
            if (answer := self._answer(left_s)) is not None:
                return answer
        return False, self._news

    def renew(self) -> None:
        self._send(plain_line("renew"))

    def release(self) -> None:
        self._send(plain_line("release"))

    def news(self, wait_s: float = 0.0) -> str:
        """Why the boost has ended; empty while it is held."""
        if not self._news and (answer := self._answer(wait_s)) is not None and not answer[0]:
            self._news = answer[1]
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

    def _send(self, line: bytes) -> None:
        try:
            self._socket.settimeout(1.0)
            self._socket.sendall(line)
        except OSError:
            self._news = self._news or GONE

    def _answer(self, wait_s: float) -> tuple[bool, str] | None:
        """The next line; None if none came in time."""
        if b"\n" not in self._pending:
            try:
                self._socket.settimeout(max(wait_s, 1e-3))
                data = self._socket.recv(1 << 16)
            except TimeoutError:
                return None
            except OSError:
                data = b""
            if not data:
                self._news = self._news or GONE
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
