"""Where holders reach the supervisor: a unix socket, a connection per holder.

In: connections of this user's processes. Out: events of the machine. A connection that ends is a
holder that has died: the kernel closes it for a process that was killed, too. A holder that only
stands still keeps it open, and is found by its lease.

Does not know what is done about it.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import struct
from collections.abc import Mapping
from pathlib import Path

from nonuniform.errors import BadInput
from nonuniform.power.lease_messages import (
    LONGEST_LINE,
    BadMessage,
    answer_line,
    parse_request,
    renewed_line,
)
from nonuniform.power.lease_values import Gone, HolderEvent, Renew

_MOST_HOLDERS = 64
_CHUNK = 1 << 16


class LeaseSocket:
    def __init__(self, path: Path, options: Mapping[str, str]) -> None:
        """The caller holds the lock of the record, so what lies there is of a dead supervisor.
        `options` are what holders may expect."""
        self._path = path
        self._options = options
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        mask = os.umask(0o177)
        try:
            path.unlink(missing_ok=True)
            self._listener.bind(str(path))
        except OSError as error:
            self._listener.close()
            raise BadInput(f"{path}: no socket can be there: {error.strerror}") from None
        finally:
            os.umask(mask)
        self._listener.listen(_MOST_HOLDERS)
        self._listener.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._holders: dict[str, _Connection] = {}
        self._count = 0

    @property
    def empty(self) -> bool:
        return not self._holders

    def events(self, wait_s: float) -> list[HolderEvent]:
        """What holders said by now; waits at most so long for the first word."""
        heard: list[HolderEvent] = []
        for key, _ in self._selector.select(max(0.0, wait_s)):
            if key.fileobj is self._listener:
                self._accept()
            else:
                heard += self._hear(key.data)
        return heard

    def tell(self, holder: str, granted: bool, reason: str, number: int = 0) -> None:
        """To one who is still there; who does not take it has to find out by itself."""
        self._send(holder, answer_line(granted, reason, number))

    def _send(self, holder: str, line: bytes) -> None:
        if holder in self._holders:
            with contextlib.suppress(OSError):
                self._holders[holder].socket.send(line)

    def close(self) -> None:
        self._path.unlink(missing_ok=True)
        for connection in self._holders.values():
            connection.socket.close()
        self._listener.close()
        self._selector.close()

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return
        if len(self._holders) >= _MOST_HOLDERS:
            connection.close()
            return
        connection.setblocking(False)
        self._count += 1
        name = f"holder {self._count} (process {_process(connection)})"
        self._holders[name] = _Connection(name, connection)
        self._selector.register(connection, selectors.EVENT_READ, name)

    def _hear(self, name: str) -> list[HolderEvent]:
        connection = self._holders[name]
        try:
            data = connection.socket.recv(_CHUNK)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        connection.pending += data
        *lines, connection.pending = connection.pending.split(b"\n")
        heard: list[HolderEvent] = []
        for line in lines:
            try:
                heard.append(parse_request(line, name, self._options))
            except BadMessage as error:
                self.tell(name, False, str(error), error.number)
                continue
            if isinstance(heard[-1], Renew):
                self._send(name, renewed_line())
        if not data or len(connection.pending) > LONGEST_LINE:
            self._drop(connection)
            heard.append(Gone(name))
        return heard

    def _drop(self, connection: _Connection) -> None:
        self._selector.unregister(connection.socket)
        connection.socket.close()
        del self._holders[connection.name]


class _Connection:
    def __init__(self, name: str, connection: socket.socket) -> None:
        self.name = name
        self.socket = connection
        self.pending = b""


def _process(connection: socket.socket) -> int:
    size = struct.calcsize("3i")
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    return int(struct.unpack("3i", credentials)[0])
