"""The process that serves the page of a run under way.

In: a socket that listens already, the folder of the run. Out: the page at `/` and what is new at
`/data?step=S&events=E&epoch=P&thinned=T`, and nothing else: no other path or method, no file by
name. A request must name this server in its Host header, so that a page from elsewhere, whose name
leads to this address all of a sudden, gets nothing. Ends when standard input does. Writes nothing.

    python -m nonuniform.report.live_server FD HOST FOLDER STEPS LANG BEFORE
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from nonuniform.report.follow import Asked, Follower

NICE = 10
# For the whole of a request, and then for the whole of its answer, however it trickles.
REQUEST_S, ANSWER_S = 10.0, 60.0
AT_ONCE = 16
# After the run has ended: as long as pages that are open need to hear of it.
LINGER_S = 2.0
WATCHED_S = 3.0
LONGEST_QUERY = 200
DIGITS = re.compile("[0-9]+")
EXPECTED = {"epoch": re.compile("[0-9a-f]{0,32}")}
HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "frame-ancestors 'none'",
}


class Open:
    """The connections that are open, oldest first, and when each must be through. Where one is too
    many, the oldest that has not even asked goes; so those who say nothing block nobody."""

    def __init__(self, at_once: int = AT_ONCE) -> None:
        self._at_once = at_once
        self._lock = threading.Lock()
        self._due_s: dict[socket.socket, float] = {}
        self._asked: set[socket.socket] = set()

    def enter(self, connection: socket.socket, now_s: float) -> None:
        with self._lock:
            if len(self._due_s) >= self._at_once:
                waiting = (one for one in self._due_s if one not in self._asked)
                self._drop(next(waiting, next(iter(self._due_s))))
            self._due_s[connection] = now_s + REQUEST_S

    def has_asked(self, connection: socket.socket, now_s: float) -> None:
        with self._lock:
            if connection in self._due_s:
                self._due_s[connection] = now_s + ANSWER_S
                self._asked.add(connection)

    def leave(self, connection: socket.socket) -> None:
        with self._lock:
            self._due_s.pop(connection, None)
            self._asked.discard(connection)

    def hang_up(self, now_s: float) -> None:
        with self._lock:
            for connection in [one for one, due_s in self._due_s.items() if due_s <= now_s]:
                self._drop(connection)

    def _drop(self, connection: socket.socket) -> None:
        """Its thread wakes up and ends."""
        del self._due_s[connection]
        self._asked.discard(connection)
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)


class LiveServer(ThreadingHTTPServer):
    """On a socket that others have bound."""

    daemon_threads = True

    def __init__(self, listener: socket.socket, host: str, page: bytes, follower: Follower) -> None:
        super().__init__(("", 0), Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self.server_address = listener.getsockname()
        self.names = names_of(host)
        self.page = page
        self.follower = follower
        self.asked_s = -WATCHED_S
        self.end_is_told = False
        self.open = Open()

    def process_request(self, request: Any, client_address: Any) -> None:
        self.open.enter(request, time.monotonic())
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.open.leave(request)

    def service_actions(self) -> None:
        """Twice a second, and after each connection."""
        self.open.hang_up(time.monotonic())

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Whoever asked has gone."""

    def news(self, asked: Asked) -> dict[str, Any]:
        self.asked_s = time.monotonic()
        answer = self.follower.news(asked)
        self.end_is_told = answer["status"] in ("done", "failed")
        return answer


class Handler(BaseHTTPRequestHandler):
    """One request, then the connection is closed."""

    server: LiveServer
    timeout = ANSWER_S
    server_version = "nonuniform"
    sys_version = ""

    def parse_request(self) -> bool:
        """The request is here as a whole."""
        whole = super().parse_request()
        self.server.open.has_asked(self.connection, time.monotonic())
        return whole

    def do_GET(self) -> None:
        if not host_is_known(self.headers.get_all("Host") or [], self.server.names):
            return self._say(HTTPStatus.FORBIDDEN, b"this server has another name\n")
        try:
            where = urlsplit(self.path)
        except ValueError:
            return self._say(HTTPStatus.BAD_REQUEST, b"no such address\n")
        if where.path == "/":
            return self._say(HTTPStatus.OK, self.server.page, "text/html; charset=utf-8")
        if where.path != "/data":
            return self._say(HTTPStatus.NOT_FOUND, b"only / and /data are here\n")
        asked = parse_asked(where.query)
        if asked is None:
            return self._say(HTTPStatus.BAD_REQUEST, b"expected step=S&events=E&epoch=P\n")
        answer = json.dumps(self.server.news(asked), allow_nan=False).encode()
        return self._say(HTTPStatus.OK, answer, "application/json")

    def _refuse(self) -> None:
        self._say(HTTPStatus.METHOD_NOT_ALLOWED, b"only GET\n", more={"Allow": "GET"})

    do_HEAD = do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = _refuse  # noqa: N815

    def _say(
        self,
        status: HTTPStatus,
        body: bytes,
        kind: str = "text/plain; charset=utf-8",
        more: Mapping[str, str] | None = None,
    ) -> None:
        self.send_response(status)
        for name, value in {**HEADERS, **(more or {}), "Content-Type": kind}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """There is nobody to read it."""


def names_of(host: str) -> frozenset[str]:
    """What this server may be called beside its addresses."""
    return frozenset({"localhost", host.lower(), socket.gethostname().lower()})


def host_is_known(headers: list[str], names: frozenset[str]) -> bool:
    """Exactly one Host, and it is ours. An address cannot be made to lead elsewhere, a name can."""
    if len(headers) != 1:
        return False
    try:
        host = urlsplit(f"//{headers[0]}").hostname or ""
    except ValueError:
        return False
    if host in names:
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def parse_asked(query: str) -> Asked | None:
    """None for what is not a question of the page."""
    if len(query) > LONGEST_QUERY:
        return None
    values: dict[str, Any] = {"step": 0, "events": 0, "epoch": "", "thinned": 0}
    for name, given in parse_qs(query, keep_blank_values=True).items():
        word = given[0]
        if name not in values or not EXPECTED.get(name, DIGITS).fullmatch(word):
            return None
        values[name] = word if name == "epoch" else int(word)
    return Asked(**values)


def leave_with_parent(server: LiveServer) -> None:
    """Wait for the end of standard input, then until open pages have heard of the end."""
    while os.read(0, 4096):
        pass
    limit_s = time.monotonic() + LINGER_S
    watched = time.monotonic() - server.asked_s < WATCHED_S
    while watched and time.monotonic() < limit_s:
        if server.end_is_told:
            time.sleep(0.1)  # the answer is under way
            break
        time.sleep(0.02)
    os._exit(0)


def main(arguments: list[str]) -> None:
    number, host, folder, planned, lang, before = arguments
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(NICE)
    from nonuniform.report.live_page import live_html

    listener = socket.socket(fileno=int(number))
    path = Path(folder)
    page = live_html(path.name, "ja" if lang == "ja" else "en").encode()
    server = LiveServer(listener, host, page, Follower(path, int(planned), before))
    threading.Thread(target=leave_with_parent, args=(server,), daemon=True).start()
    server.serve_forever()


if __name__ == "__main__":
    main(sys.argv[1:])
