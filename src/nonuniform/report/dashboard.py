"""`nonuniform train --dashboard`: the page of a run that keeps itself up to date.

In: a port or an address, the run's folder. Out: a server in a process of its own, which ends with
this one, however that ends. The port is bound here, before the run starts, so a port that is
taken is bad input and nothing else happens. The run never waits for the server: it does not know
of it, and all that the server does is read the folder. Knows nothing of HTTP.
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from nonuniform.errors import BadInput
from nonuniform.report.follow import summary_mark

LOOPBACK = "127.0.0.1"
BACKLOG = 16
# The page hears that the run is over, then the server leaves; longer than that nobody waits for it.
END_S = 4.0


@dataclass(frozen=True)
class Served:
    """A dashboard that is up. `url`: where people find it."""

    url: str
    pid: int


@contextlib.contextmanager
def open_dashboard(wish: str, folder: Path, planned: int = 0, lang: str = "en") -> Iterator[Served]:
    """Serve the folder while the context lasts. `wish`: "PORT" or "HOST:PORT"; `planned`: steps."""
    host, port = parse_address(wish)
    with _listen(wish, host, port) as listener:
        url = _url(host, listener.getsockname()[1])
        process = _start(listener, host, folder, planned, lang)
    try:
        yield Served(url, process.pid)
    finally:
        _end(process)


def parse_address(wish: str) -> tuple[str, int]:
    """ "8080", "0.0.0.0:8080", "[::1]:8080"; loopback unless another host is named."""
    host, colon, port = wish.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") if colon else LOOPBACK
    if not host or not (port.isascii() and port.isdecimal()) or int(port) > 65535:
        raise BadInput(f"--dashboard {wish}: expected PORT or HOST:PORT, with a port up to 65535")
    return host, int(port)


def _listen(wish: str, host: str, port: int) -> socket.socket:
    listener = None
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM
        )[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
        return listener
    except OSError as error:
        if listener is not None:
            listener.close()
        raise BadInput(f"--dashboard {wish}: {error.strerror or error}") from None
    except UnicodeError:
        raise BadInput(f"--dashboard {wish}: {host!r} is not the name of a host") from None


def _url(host: str, port: int) -> str:
    everywhere = {"0.0.0.0": LOOPBACK, "::": "[::1]"}
    shown = everywhere.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{shown}:{port}/"


def _start(
    listener: socket.socket, host: str, folder: Path, planned: int, lang: str
) -> subprocess.Popen[bytes]:
    """Its standard input is the thread of life: it ends when this process closes it or is gone.
    In a session of its own Ctrl-C does not reach it."""
    number = listener.fileno()
    path = folder.resolve()
    arguments = [str(number), host, str(path), str(planned), lang, summary_mark(path)]
    return subprocess.Popen(
        [sys.executable, "-m", "nonuniform.report.live_server", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=[number],
        start_new_session=True,
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    with contextlib.suppress(OSError):
        process.stdin.close()
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
