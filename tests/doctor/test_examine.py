"""The doctor on the machine that runs the tests, and on one whose processes cannot talk."""

from __future__ import annotations

import importlib.metadata
import io
import json
import os
import shutil
import socket
import sys
import time
from pathlib import Path
from typing import NoReturn

import pytest
from rich.console import Console

from nonuniform.doctor import measure
from nonuniform.doctor.examine import examine
from nonuniform.doctor.show import print_table, summary, to_json
from nonuniform.doctor.verdict import Check, Status


def test_every_check_of_this_machine_is_reported(tmp_path: Path) -> None:
    checks = examine(tmp_path)
    names = [check.name for check in checks]
    assert len(names) == len(set(names))
    assert {"platform", "torch", "cores", "open files", "loopback ports", "disk"} <= set(names)
    by_name = {check.name: check for check in checks}
    if by_name["torch"].status is Status.OK:
        assert by_name["gloo round trip"].status is not Status.FAIL
    assert json.loads(json.dumps(to_json(checks)))["checks"][0]["name"] == "platform"


def test_measures_are_plausible(tmp_path: Path) -> None:
    assert measure.usable_cores() > 0
    assert (measure.available_memory_gib() or 1) > 0
    assert (measure.free_disk_gib(tmp_path) or 0) > 0
    assert measure.free_disk_gib(tmp_path / "absent") is None
    assert measure.package_version("numpy") is not None
    assert measure.package_version("no-such-package-here") is None
    assert measure.shared_memory_gib(tmp_path / "absent") is None


def test_what_cannot_be_read_is_no_exception(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> NoReturn:
        raise PermissionError(13, "Permission denied")

    for owner, name in (
        (shutil, "disk_usage"),
        (os, "listdir"),
        (Path, "read_text"),
        (Path, "cwd"),
        (importlib.metadata, "version"),
    ):
        monkeypatch.setattr(owner, name, refuse)
    folder = measure.current_folder()
    assert measure.free_disk_gib(folder) is None
    assert measure.shared_memory_gib() is None
    assert measure.available_memory_gib() is None
    assert measure.gpu_device_files() == 0
    assert measure.usable_cores() > 0
    assert measure.package_versions(("numpy",)) == {"numpy": None}


def test_ports_stop_at_the_first_error(monkeypatch: pytest.MonkeyPatch) -> None:
    real, opened = socket.socket, []

    def scarce(*arguments: int) -> socket.socket:
        if len(opened) == 3:
            raise OSError(24, "Too many open files")
        opened.append(real(*arguments))
        return opened[-1]

    monkeypatch.setattr(socket, "socket", scarce)
    assert measure.loopback_ports(10) == (3, "Too many open files")
    assert all(listener.fileno() == -1 for listener in opened)  # closed again


def test_the_table_holds_each_finding_and_its_advice() -> None:
    checks = [
        Check("cores", Status.WARN, "1 usable", "expect [them] to take turns"),
        Check("disk", Status.FAIL, "0.0 GiB free", "free space"),
    ]
    console = Console(file=io.StringIO(), width=60)
    print_table(checks, console)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "-> expect [them] to take turns" in text
    assert "free space" in text
    assert summary(checks) in text
    assert summary(checks[:1]) == "runs work here, 1 with a warning"
    assert summary([]) == "everything a run needs is here"


class TestRoundTrip:
    """The bound and the reason when the members do not answer."""

    probe = pytest.importorskip("nonuniform.train.probe")

    def test_a_member_that_hangs_is_ended_within_the_bound(self) -> None:
        start_s = time.monotonic()
        trip = self.probe.round_trip("gloo", 2, 0.3, lambda *_: ["sleep", "60"])
        assert (trip.seconds, trip.problem) == (None, "no answer within 0.3 s")
        assert time.monotonic() - start_s < 5

    def test_the_last_line_of_a_failing_member_is_the_reason(self) -> None:
        script = "import sys; sys.exit('Traceback\\nRuntimeError: no route to host')"
        trip = self.probe.round_trip("gloo", 2, 20, lambda *_: [sys.executable, "-c", script])
        assert (trip.seconds, trip.problem) == (None, "RuntimeError: no route to host")

    def test_a_member_that_cannot_be_started(self) -> None:
        trip = self.probe.round_trip("gloo", 2, 5, lambda *_: ["/no/such/program"])
        assert trip.seconds is None
        assert "No such file" in trip.problem
