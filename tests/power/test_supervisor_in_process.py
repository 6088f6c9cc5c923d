"""The supervisor in this process: what it does when the disk, the log or itself fails."""

from __future__ import annotations

import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from nonuniform.errors import BadInput
from nonuniform.power import supervisor as supervisor_module
from nonuniform.power.actuators.base import LimitsW
from nonuniform.power.actuators.fake import FakeGpus
from nonuniform.power.lease_client import LeaseClient
from nonuniform.power.lease_file import LeaseFile
from nonuniform.power.lease_messages import ask_line
from nonuniform.power.lease_values import Ask, Gone, LeaseOptions, Owed, Wish
from nonuniform.power.supervisor import Supervisor, SupervisorOptions

WAIT_S = 60.0


def test_when_a_set_point_rises_the_record_is_on_disk(tmp_path: Path) -> None:
    record = LeaseFile(tmp_path / "boost.json", "watched")
    raised: list[str] = []

    class Watched(FakeGpus):
        def set_w(self, gpu: str, watts: float) -> None:
            if watts > 700.0:
                assert Owed(gpu, 700.0, 900.0) in record.read()
                raised.append(gpu)
            super().set_w(gpu, watts)

    gpus = Watched(tmp_path, LimitsW(200.0, 1000.0))
    for gpu in "01":
        gpus.put(gpu, 700.0)
    options = SupervisorOptions(LeaseOptions(10.0, 1.0), 1.0, WAIT_S, 1.0)
    said: list[dict[str, Any]] = []
    supervisor = Supervisor(options, gpus, record, said.append)
    supervisor.hear([Ask("h", tuple(Wish(gpu, 900.0, 700.0) for gpu in "01"), 10.0)])
    assert sorted(raised) == ["0", "1"]
    assert [event["kind"] for event in said] == ["boost_granted"]


def test_a_record_of_another_actuator_is_not_touched(tmp_path: Path) -> None:
    LeaseFile(tmp_path / "boost.json", "nvml").write([Owed("0", 700.0, 900.0)])
    gpus = FakeGpus(tmp_path, LimitsW(200.0, 1000.0))
    options = SupervisorOptions(LeaseOptions(10.0, 1.0), 1.0, 1.0, 1.0)
    with pytest.raises(BadInput, match="raised with the actuator nvml"):
        Supervisor(options, gpus, LeaseFile(tmp_path / "boost.json", "dry-run"), print)


def in_process(folder: Path, **options: Any) -> tuple[Supervisor, FakeGpus]:
    gpus = FakeGpus(folder, LimitsW(200.0, 1000.0))
    gpus.put("0", 700.0)
    spans = {"period_s": 0.1, "order_s": WAIT_S, "stop_s": 5.0} | options.pop("spans", {})
    lease = LeaseOptions(WAIT_S, 1.0, settle_s=0.1)
    record = options.pop("record", LeaseFile(folder / "boost.json", "fake"))
    say = options.pop("say", lambda event: None)
    gpus = options.pop("gpus", gpus)
    return Supervisor(SupervisorOptions(lease, **spans), gpus, record, say), gpus


BOOST = Ask("h", (Wish("0", 900.0, 700.0),), 1000.0)


def test_a_defect_of_the_supervisor_takes_everything_back(tmp_path: Path) -> None:
    supervisor, gpus = in_process(tmp_path)
    supervisor.hear([BOOST])
    assert gpus.read_w("0") == 900.0
    with pytest.raises(ZeroDivisionError):
        supervisor.run(lambda: 1 // 0 > 0)
    assert gpus.read_w("0") == 700.0
    assert LeaseFile(tmp_path / "boost.json", "fake").read() == ()


def test_a_log_that_nobody_reads_delays_nothing(tmp_path: Path) -> None:
    never = threading.Event()
    supervisor, gpus = in_process(tmp_path, say=lambda event: never.wait(WAIT_S) and None)
    began_s = time.monotonic()
    supervisor.hear([BOOST])
    assert gpus.read_w("0") == 900.0
    supervisor.hear([Gone("h")])
    assert gpus.read_w("0") == 700.0
    assert time.monotonic() - began_s < WAIT_S / 2
    never.set()


def test_a_disk_that_hangs_is_a_record_that_was_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor_module, "_DISK_S", 0.5)
    never = threading.Event()

    class Hanging(LeaseFile):
        def write(self, owed: Any) -> None:
            never.wait(WAIT_S)

    said: list[dict[str, Any]] = []
    record = Hanging(tmp_path / "boost.json", "fake")
    supervisor, gpus = in_process(tmp_path, record=record, say=said.append)
    supervisor.hear([BOOST])
    never.set()
    assert "no record of it: the record: no answer within 0.5 s" in said[0]["reason"]
    assert gpus.read_w("0") == 700.0


def test_others_who_ask_delay_nobodys_end(tmp_path: Path) -> None:
    """Twenty asks wait, each for a GPU that does not answer: six seconds, and a tick between."""

    class Slow(FakeGpus):
        def read_w(self, gpu: str) -> float:
            if gpu != "0":
                time.sleep(2.0)
            return super().read_w(gpu)

    gpus = Slow(tmp_path, LimitsW(200.0, 1000.0))
    supervisor, _ = in_process(tmp_path, gpus=gpus, spans={"order_s": 0.3})
    stop = threading.Event()
    thread = threading.Thread(target=supervisor.run, args=(stop.is_set,), daemon=True)
    thread.start()
    file = tmp_path / "boost.json"
    with LeaseClient(file, WAIT_S) as silent, socket.socket(socket.AF_UNIX) as door:
        door.connect(f"{file}.socket")
        assert silent.ask(Ask("", BOOST.wishes, 0.5), WAIT_S)[0]
        wishes = [(Wish(f"slow{number}", 900.0, 700.0),) for number in range(20)]
        door.sendall(b"".join(ask_line(Ask("", wish, 1000.0)) for wish in wishes))
        began_s = time.monotonic()
        while gpus.read_w("0") != 700.0:
            assert time.monotonic() - began_s < 5.0
            time.sleep(0.01)
        stop.set()
        thread.join(WAIT_S)
