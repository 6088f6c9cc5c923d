"""The page of a run under way: what it serves, to whom, and that it ends with its run."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from nonuniform.errors import BadInput
from nonuniform.report.dashboard import Served, open_dashboard, parse_address
from nonuniform.report.follow import Asked, Follower, summary_mark
from nonuniform.report.live_server import host_is_known, names_of, parse_asked

BOUND_S = 60.0
HURT = "<img src=x onerror=alert(1)>"
PLACED = {"placement": {"0": ["0/0"], "1": ["1/0"]}, "spares": []}


def step(number: int, time_s: float | None = None) -> str:
    row = {"step": number, "loss": 1.0 / number, "tokens": 8, "degrees": [4, 3]}
    row |= {"batch_shares": [7, 5], "time_s": number if time_s is None else time_s}
    return json.dumps(row) + "\n"


def event(kind: str, **more: Any) -> str:
    return json.dumps({"time_s": 1.0, "kind": kind, **more}) + "\n"


def add(folder: Path, steps: str = "", events: str = "") -> None:
    for name, text in (("steps.jsonl", steps), ("events.jsonl", events)):
        with (folder / name).open("a") as file:
            file.write(text)


def ask(
    served: Served, path: str, method: str = "GET", host: str | None = None
) -> tuple[int, bytes, dict[str, str]]:
    """Waits, with a bound, as the server's process may still be starting."""
    address = served.url.removeprefix("http://").rstrip("/")
    connection = http.client.HTTPConnection(address, timeout=BOUND_S)
    try:
        connection.putrequest(method, path, skip_host=host is not None)
        if host is not None:
            connection.putheader("Host", host)
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, answer.read(), dict(answer.getheaders())
    finally:
        connection.close()


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    folder.mkdir()
    add(folder, step(1) + step(2), event("generation", generation=1, **PLACED))
    return folder


@pytest.fixture(scope="module")
def served(run_folder: Path) -> Iterator[Served]:
    with open_dashboard("0", run_folder, planned=30) as board:
        yield board


def gone(pid: int, bound_s: float) -> bool:
    limit_s = time.monotonic() + bound_s
    while time.monotonic() < limit_s:
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.02)
    return False


def test_the_page_is_served_on_loopback(served: Served) -> None:
    assert served.url.startswith("http://127.0.0.1:")
    status, body, headers = ask(served, "/")
    assert status == 200
    assert b"<h1>" in body
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["X-Frame-Options"] == "DENY"
    listening = [
        one.laddr.ip
        for one in psutil.Process(served.pid).net_connections(kind="inet")
        if one.status == psutil.CONN_LISTEN
    ]
    assert listening == ["127.0.0.1"]


def test_only_what_is_new_is_told(served: Served, run_folder: Path) -> None:
    first = json.loads(ask(served, "/data")[1])
    assert [point[0] for point in first["points"]] == [1, 2]
    assert (first["planned"], first["status"], first["anew"]) == (30, "running", True)
    assert first["gpus"] == [["0/0", "working"], ["1/0", "working"]]
    add(run_folder, step(3) + '{"step": 4, "lo', event("failed", gpu="1/0", step=4, reason=HURT))
    query = f"step=2&events={first['told']}&epoch={first['epoch']}"
    news = json.loads(ask(served, f"/data?{query}")[1])
    assert [point[0] for point in news["points"]] == [3]
    assert [(one["kind"], one["reason"]) for one in news["events"]] == [("failed", HURT)]
    assert news["gpus"][1] == ["1/0", "failed"]
    assert not news["anew"]


@pytest.mark.parametrize(
    "path",
    ["/steps.jsonl", "/../run/steps.jsonl", "/data/../../etc/passwd", "//etc/passwd", "/%2e%2e/",
     "/..%2fsummary.json", "/data/", "/index.html"],
)  # fmt: skip
def test_there_is_nothing_else(served: Served, path: str) -> None:
    assert ask(served, path)[0] == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "TRACE"])
def test_only_get(served: Served, method: str) -> None:
    assert ask(served, "/data", method)[0] in (405, 501)


@pytest.mark.parametrize(
    ("host", "status"),
    [("localhost:1", 200), ("127.0.0.1", 200), ("[::1]:8000", 200), ("LOCALHOST", 200),
     ("rebound.example", 403), ("rebound.example:80", 403), ("localhost.rebound.example", 403),
     ("", 403), ("127.0.0.1.rebound.example", 403), ("[::1", 403)],
)  # fmt: skip
def test_whoever_calls_it_by_another_name_gets_nothing(
    served: Served, host: str, status: int
) -> None:
    assert ask(served, "/data", host=host)[0] == status


def test_two_hosts_or_none_are_refused() -> None:
    names = names_of("127.0.0.1")
    assert not host_is_known([], names)
    assert not host_is_known(["localhost", "rebound.example"], names)
    assert host_is_known(["my-host:80"], names_of("my-host"))


@pytest.mark.parametrize(
    "query", ["step=x", "file=/etc/passwd", "step=-1", "step=" + "1" * 300, "epoch=../x", "step="]
)
def test_a_question_of_another_kind_is_refused(served: Served, query: str) -> None:
    assert ask(served, f"/data?{query}")[0] == 400
    assert parse_asked(query) is None


def test_slow_and_broken_requests_stop_nobody(served: Served) -> None:
    address = ("127.0.0.1", int(served.url.rstrip("/").rpartition(":")[2]))
    slow = [socket.create_connection(address, timeout=BOUND_S) for _ in range(3)]
    for one in slow:
        one.sendall(b"GET /da")
    with socket.create_connection(address, timeout=BOUND_S) as odd:
        odd.sendall(b"\x00\xff garbage\r\n\r\n")
        odd.recv(10)
    assert ask(served, "/data")[0] == 200
    for one in slow:
        one.close()


def test_a_port_that_is_taken_is_bad_input(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        says = f"--dashboard {port}: Address already in use"
        with pytest.raises(BadInput, match=says), open_dashboard(port, tmp_path):
            pytest.fail("served on a port that is taken")


@pytest.mark.parametrize("wish", ["", "x", "-1", "70000", ":80", "1.5", "host:", "a b:80x", "٣"])
def test_what_is_no_port_is_bad_input(wish: str) -> None:
    with pytest.raises(BadInput, match="--dashboard"):
        parse_address(wish)


def test_addresses() -> None:
    assert parse_address("8080") == ("127.0.0.1", 8080)
    assert parse_address("0.0.0.0:80") == ("0.0.0.0", 80)
    assert parse_address("[::1]:80") == ("::1", 80)


def test_it_ends_with_the_context_and_frees_its_port(tmp_path: Path) -> None:
    with open_dashboard("0", tmp_path) as board:
        assert ask(board, "/data")[0] == 200
        port = int(board.url.rstrip("/").rpartition(":")[2])
        (tmp_path / "summary.json").write_text('{"status": "done"}')
    assert gone(board.pid, 0.1)
    with socket.socket() as again:
        again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        again.bind(("127.0.0.1", port))


def test_nobody_waits_long_for_a_page_that_is_open(tmp_path: Path) -> None:
    with open_dashboard("0", tmp_path) as board:
        ask(board, "/data")
        start_s = time.monotonic()
    assert time.monotonic() - start_s < 5.0
    assert gone(board.pid, 0.1)


PARENT = """
import sys, time
from pathlib import Path
from nonuniform.report.dashboard import open_dashboard
with open_dashboard("0", Path(sys.argv[1])) as board:
    print(board.pid, board.url, flush=True)
    time.sleep(120)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_it_ends_when_its_run_is_killed(tmp_path: Path, number: int) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert parent.stdout is not None
        pid, url = parent.stdout.readline().split()
        assert ask(Served(url, int(pid)), "/data")[0] == 200
        os.kill(parent.pid, number)
        parent.wait(BOUND_S)
        assert gone(int(pid), BOUND_S)
    finally:
        parent.kill()
        parent.wait()
        assert parent.stdout is not None
        parent.stdout.close()


def test_a_server_that_dies_does_not_hurt_the_run(tmp_path: Path) -> None:
    with open_dashboard("0", tmp_path) as board:
        os.kill(board.pid, signal.SIGKILL)
        assert gone(board.pid, BOUND_S)


# --- following the files


def test_a_log_that_is_rewound_is_told_anew(tmp_path: Path) -> None:
    add(tmp_path, step(1) + step(2) + step(3))
    follower = Follower(tmp_path)
    first = follower.news(Asked())
    (tmp_path / "steps.jsonl").write_text(step(1))
    add(tmp_path, step(2, 50.0) + step(3, 51.0) + step(4, 52.0))
    news = follower.news(Asked(3, 0, first["epoch"]))
    assert news["anew"]
    assert news["epoch"] != first["epoch"]
    assert [point[:2] for point in news["points"]] == [[1, 1.0], [2, 50.0], [3, 51.0], [4, 52.0]]


def test_a_folder_without_a_run_is_waited_for(tmp_path: Path) -> None:
    follower = Follower(tmp_path / "run")
    assert follower.news(Asked())["points"] == []
    (tmp_path / "run").mkdir()
    add(tmp_path / "run", step(1))
    assert len(follower.news(Asked())["points"]) == 1


def test_half_a_line_is_told_when_it_is_whole(tmp_path: Path) -> None:
    follower = Follower(tmp_path)
    add(tmp_path, step(1)[:10])
    assert follower.news(Asked())["points"] == []
    add(tmp_path, step(1)[10:])
    assert len(follower.news(Asked())["points"]) == 1


def test_the_end_is_told_with_its_reason(tmp_path: Path) -> None:
    add(tmp_path, step(1))
    (tmp_path / "summary.json").write_text(json.dumps({"status": "failed", "reason": HURT}))
    news = Follower(tmp_path).news(Asked())
    assert (news["status"], news["reason"]) == ("failed", HURT)


def test_the_end_of_an_earlier_session_is_not_that_of_this_one(tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_text('{"status": "failed"}')
    follower = Follower(tmp_path, before=summary_mark(tmp_path))
    assert follower.news(Asked())["status"] == "running"
    (tmp_path / "new").write_text('{"status": "done"}')
    (tmp_path / "new").replace(tmp_path / "summary.json")
    assert follower.news(Asked())["status"] == "done"


def test_no_two_servers_have_the_same_epoch(tmp_path: Path) -> None:
    one, other = (Follower(tmp_path / name).news(Asked()) for name in "ab")
    assert one["epoch"] != other["epoch"]
    assert one["title"]["en"] == "a, live"
    news = Follower(tmp_path / "b").news(Asked(7, 3, one["epoch"], 2))
    assert (news["anew"], news["title"]["en"]) == (True, "b, live")
