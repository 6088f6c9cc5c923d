"""Connections that say little, or that take nothing: they hold up nobody, and not for ever."""

from __future__ import annotations

import contextlib
import http.client
import socket
import time
from collections.abc import Iterator

import pytest

from nonuniform.report.dashboard import Served, open_dashboard
from nonuniform.report.live_server import ANSWER_S, AT_ONCE, REQUEST_S, Open

BOUND_S = 60.0


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with open_dashboard("0", tmp_path_factory.mktemp("run")) as board:
        yield board


def port_of(served: Served) -> int:
    return int(served.url.rstrip("/").rpartition(":")[2])


def ask_s(served: Served) -> float:
    """How long an answer takes."""
    start_s = time.monotonic()
    connection = http.client.HTTPConnection("127.0.0.1", port_of(served), timeout=BOUND_S)
    try:
        connection.request("GET", "/data")
        assert connection.getresponse().status == 200
    finally:
        connection.close()
    return time.monotonic() - start_s


def is_closed(connection: socket.socket) -> bool:
    connection.settimeout(0.01)
    try:
        return connection.recv(100) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


def test_connections_that_trickle_block_nobody(served: Served) -> None:
    """More than are let in at once, each sending a byte now and then."""
    ask_s(served)
    address = ("127.0.0.1", port_of(served))
    with contextlib.ExitStack() as stack:
        slow = [
            stack.enter_context(socket.create_connection(address, timeout=BOUND_S))
            for _ in range(2 * AT_ONCE)
        ]
        for one in slow:
            one.sendall(b"GET /da")
        for _ in range(5):
            assert ask_s(served) < 3.0
            for one in slow[-AT_ONCE:]:
                with contextlib.suppress(OSError):
                    one.sendall(b"x")
            time.sleep(0.1)


def test_a_request_has_a_deadline_however_it_trickles(served: Served) -> None:
    ask_s(served)
    start_s = time.monotonic()
    with socket.create_connection(("127.0.0.1", port_of(served)), timeout=BOUND_S) as slow:
        slow.sendall(b"GET /data?")
        while not is_closed(slow):
            assert time.monotonic() - start_s < REQUEST_S + 5.0
            with contextlib.suppress(OSError):
                slow.sendall(b"0")
            time.sleep(0.2)
    assert time.monotonic() - start_s > REQUEST_S - 1.0


@pytest.fixture
def ends() -> Iterator[list[tuple[socket.socket, socket.socket]]]:
    pairs = [socket.socketpair() for _ in range(4)]
    yield pairs
    for one, other in pairs:
        one.close()
        other.close()


def test_who_has_asked_is_not_the_first_to_go(
    ends: list[tuple[socket.socket, socket.socket]],
) -> None:
    connections = Open(at_once=2)
    connections.enter(ends[0][0], 0.0)
    connections.has_asked(ends[0][0], 0.0)
    connections.enter(ends[1][0], 0.0)
    connections.enter(ends[2][0], 0.0)
    assert [is_closed(other) for _, other in ends] == [False, True, False, False]
    connections.has_asked(ends[2][0], 0.0)
    connections.enter(ends[3][0], 0.0)
    assert [is_closed(other) for _, other in ends] == [True, True, False, False]


def test_deadlines(ends: list[tuple[socket.socket, socket.socket]]) -> None:
    connections = Open()
    for one, _ in ends[:3]:
        connections.enter(one, 0.0)
    connections.has_asked(ends[1][0], 1.0)
    connections.leave(ends[2][0])
    connections.hang_up(REQUEST_S)
    assert [is_closed(other) for _, other in ends] == [True, False, False, False]
    connections.hang_up(1.0 + ANSWER_S)
    assert is_closed(ends[1][1])
    assert not is_closed(ends[2][1])
