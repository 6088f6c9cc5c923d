"""The supervisor as a process: who is killed or stopped, and what becomes of the watts.

GPUs are files, so that every process sees the same ones. Every wait has a bound.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nonuniform.errors import RunFailed
from nonuniform.power.actuators.base import LimitsW
from nonuniform.power.actuators.fake import FakeGpus
from nonuniform.power.lease_client import GONE, SILENT, LeaseClient
from nonuniform.power.lease_file import LeaseFile
from nonuniform.power.lease_messages import ask_line
from nonuniform.power.lease_values import Ask, Owed, Wish
from nonuniform.power.supervisor import main
from nonuniform.power.telemetry import TelemetryFile

WAIT_S = 60.0  # for what takes milliseconds where nobody else is busy
PERIOD_S = 0.1
LEASE_S = 2.0
SETTLE_S = 2.0

TRAINER = """
import sys, time
from pathlib import Path
from nonuniform.power.lease_client import LeaseClient
from nonuniform.power.lease_messages import ask_line
from nonuniform.power.lease_values import Ask, Wish

file, lease_s, *gpus = sys.argv[1:]
with LeaseClient(Path(file), within_s=30) as client:
    wishes = tuple(Wish(gpu, 900.0, 700.0) for gpu in gpus)
    print(*client.ask(Ask("", wishes, float(lease_s)), within_s=30), flush=True)
    while not client.news(0.05):
        client.renew()
    print(client.news(), flush=True)
"""


class Rack:
    """GPUs, a record, and the processes of one test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.gpus = FakeGpus(folder / "gpus", LimitsW(200.0, 1000.0))
        self.gpus.folder.mkdir()
        for gpu in "01":
            self.gpus.put(gpu, 700.0)
        self.file = folder / "boost.json"
        self.record = LeaseFile(self.file, "fake")
        self.started: list[subprocess.Popen[str]] = []

    def supervisor(self, *more: str) -> subprocess.Popen[str]:
        return self._start(
            *("-m", "nonuniform.power.supervisor", f"--file={self.file}", "--actuator=fake"),
            *(f"--fake-folder={self.gpus.folder}", "--highest-w=1000", f"--period-s={PERIOD_S}"),
            *(f"--events={self.folder / 'events'}", "--call-s=0.5", "--stale-s=30"),
            *(f"--settle-s={SETTLE_S}", *more),
        )

    def by_command(self, setting: str) -> tuple[str, ...]:
        """The same GPUs by way of a power manager: a script of `$gpu`, `$watts` and `put`."""
        script = self.folder / "manager.sh"
        file = f"{self.gpus.folder}/$gpu.w"
        put = f'put() {{ echo "$watts" > {file}.$$; mv {file}.$$ {file}; }}'
        script.write_text(f"gpu=$1 watts=$2\n{put}\n{setting}\n")
        return (
            "--actuator=command",
            f"--set-command=sh {script} {{gpu}} {{watts}}",
            f"--read-command=sh -c 'cat {self.gpus.folder}/$0.w' {{gpu}}",
        )

    def trainer(self, lease_s: float = LEASE_S, code: str = TRAINER) -> subprocess.Popen[str]:
        trainer = self._start("-c", code, str(self.file), str(lease_s), "0", "1")
        assert trainer.stdout is not None
        assert trainer.stdout.readline() == "True 2 GPUs were set and read back\n"
        assert self.watts() == [900.0, 900.0]
        return trainer

    def _start(self, *arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "PYTHONWARNINGS": "error"},
        )
        self.started.append(process)
        return process

    def watts(self) -> list[float]:
        return [self.gpus.read_w(gpu) for gpu in "01"]

    def restored_in_s(self) -> float:
        """How long it takes from now; GPUs first, then the record."""
        began_s = time.monotonic()
        self.until(lambda: self.watts() == [700.0, 700.0])
        took_s = time.monotonic() - began_s
        self.until(lambda: self.record.read() == ())
        return took_s

    def children_of(self, process: subprocess.Popen[str]) -> list[int]:
        """Also when it is dead: those of its group that are left."""
        group = []
        for status in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                words = status.read_bytes().split(b"\0")
                if str(self.file).encode() in words and int(status.parent.name) != process.pid:
                    group.append(int(status.parent.name))
        return group

    def until(self, happened: Callable[[], bool]) -> None:
        end_s = time.monotonic() + WAIT_S
        while not happened():
            assert time.monotonic() < end_s, (self.watts(), self.events())
            time.sleep(0.01)

    def events(self, kind: str = "") -> list[dict[str, Any]]:
        lines = (self.folder / "events").read_text().splitlines()
        return [event for event in map(json.loads, lines) if kind in ("", event["kind"])]

    def close(self) -> None:
        for process in self.started:
            process.kill()
            process.communicate(timeout=WAIT_S)


@pytest.fixture
def rack(tmp_path: Path) -> Iterator[Rack]:
    rack = Rack(tmp_path)
    yield rack
    rack.close()


def kill(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait(WAIT_S)


# ------------------------------------------------------------------------------- who is killed


def test_a_trainer_that_is_killed_is_missed_at_once(rack: Rack) -> None:
    rack.supervisor()
    trainer = rack.trainer(lease_s=1000.0)  # so that it is not the lease that ends it
    assert {line.gpu: line.restore_w for line in rack.record.read()} == {"0": 700.0, "1": 700.0}
    kill(trainer)
    rack.restored_in_s()
    (given_up,) = rack.events("boost_given_up")
    assert "has died" in given_up["reason"]
    assert given_up["fall_back"] == "ntp"
    assert {event["gpu"] for event in rack.events("boost_restored")} == {"0", "1"}


def test_a_trainer_that_is_stopped_loses_its_lease(rack: Rack) -> None:
    rack.supervisor()
    trainer = rack.trainer()
    time.sleep(1.5 * LEASE_S)
    assert rack.watts() == [900.0, 900.0]  # it renews
    trainer.send_signal(signal.SIGSTOP)
    took_s = rack.restored_in_s()
    assert took_s > LEASE_S / 2
    assert "no sign of life" in rack.events("boost_given_up")[0]["reason"]
    trainer.send_signal(signal.SIGCONT)
    out, _ = trainer.communicate(timeout=WAIT_S)
    assert "no sign of life" in out  # it learns of it when it goes on
    assert rack.watts() == [700.0, 700.0]


def test_a_supervisor_that_is_killed_is_made_up_for_by_the_next(rack: Rack) -> None:
    first = rack.supervisor()
    trainer = rack.trainer(lease_s=1000.0)
    kill(first)
    out, _ = trainer.communicate(timeout=WAIT_S)
    assert out == f"{GONE}\n"
    assert rack.watts() == [900.0, 900.0]  # nobody is there to do it
    rack.supervisor()
    rack.restored_in_s()
    rack.trainer()  # and it serves as before


def test_both_are_killed_and_the_record_remains(rack: Rack) -> None:
    supervisor = rack.supervisor()
    trainer = rack.trainer()
    for process in (supervisor, trainer):
        process.send_signal(signal.SIGSTOP)  # so that neither sees the other die
    for process in (supervisor, trainer):
        kill(process)
    assert rack.watts() == [900.0, 900.0]
    rack.supervisor()
    rack.restored_in_s()


def test_killed_between_the_record_and_the_set_point(rack: Rack) -> None:
    """The record names both GPUs before the first is raised; here only one ever is."""
    (rack.gpus.folder / "0.hangs").touch()
    supervisor = rack.supervisor("--call-s=60")
    with LeaseClient(rack.file, WAIT_S), socket.socket(socket.AF_UNIX) as door:
        door.connect(f"{rack.file}.socket")
        door.sendall(ask_line(Ask("", tuple(Wish(gpu, 900.0, 700.0) for gpu in "01"), 1000.0)))
        rack.until(lambda: rack.record.read() != ())
        rack.until(lambda: rack.watts() == [700.0, 900.0])  # GPU 0 is never reached
        kill(supervisor)
    (rack.gpus.folder / "0.hangs").unlink()
    rack.supervisor()
    rack.restored_in_s()


def test_killed_while_a_command_is_about_to_raise(rack: Rack) -> None:
    """The command goes with it: there is nothing left that could raise after the restore."""
    begun = rack.folder / "begun"
    manager = rack.by_command(f'[ "$watts" -le 700 ] || {{ touch {begun}; sleep 1; }}\nput')
    supervisor = rack.supervisor(*manager, "--call-s=30", "--settle-s=0.1")
    with LeaseClient(rack.file, WAIT_S), socket.socket(socket.AF_UNIX) as door:
        door.connect(f"{rack.file}.socket")
        door.sendall(ask_line(Ask("", (Wish("0", 900.0, 700.0),), 1000.0)))
        rack.until(begun.exists)
        kill(supervisor)
    rack.record = LeaseFile(rack.file, "command")
    rack.supervisor(*manager)
    rack.restored_in_s()
    time.sleep(1.5)
    assert rack.watts() == [700.0, 700.0]


def test_a_power_manager_that_acts_late_is_lowered_again(rack: Rack) -> None:
    """Its command has ended, and what it told somebody else happens a second later."""
    file = rack.gpus.folder / "0.w"
    away = rack.folder / "away"
    later = (
        f"setsid sh -c 'touch {away}; sleep 1; echo 900 > {away}; mv {away} {file}' "
        f">/dev/null 2>&1 & "
        f"until [ -e {away} ]; do sleep 0.01; done"
    )
    rack.supervisor(
        *rack.by_command(f'if [ "$watts" -gt 700 ]; then {later}; else put; fi'), "--call-s=30"
    )
    rack.record = LeaseFile(rack.file, "command")
    with LeaseClient(rack.file, WAIT_S) as client:
        granted, reason = client.ask(Ask("", (Wish("0", 900.0, 700.0),), 1000.0), WAIT_S)
        assert not granted
        assert "was set to 900 W and reads 700 W" in reason
        rack.until(lambda: rack.watts() == [900.0, 700.0])
        assert [line.gpu for line in rack.record.read()] == ["0"]
        rack.restored_in_s()


def test_told_to_stop_it_restores_first(rack: Rack) -> None:
    supervisor = rack.supervisor()
    trainer = rack.trainer()
    supervisor.terminate()
    assert supervisor.wait(WAIT_S) == 0
    assert rack.watts() == [700.0, 700.0]
    assert rack.record.read() == ()
    assert "told to stop" in trainer.communicate(timeout=WAIT_S)[0]


def test_told_to_stop_it_says_what_it_could_not_restore(rack: Rack) -> None:
    supervisor = rack.supervisor("--stop-s=0.5")
    rack.trainer()
    (rack.gpus.folder / "1.refuses").write_text("no permission")
    supervisor.terminate()
    out, _ = supervisor.communicate(timeout=WAIT_S)
    assert supervisor.returncode == 3
    assert "not restored: GPU 1 (no permission)" in out
    assert [line.gpu for line in rack.record.read()] == ["1"]
    (rack.gpus.folder / "1.refuses").unlink()
    rack.supervisor()
    rack.restored_in_s()


def test_a_supervisor_that_is_stopped_is_missed(rack: Rack) -> None:
    supervisor = rack.supervisor()
    with LeaseClient(rack.file, WAIT_S) as client:
        assert client.ask(Ask("", (Wish("0", 900.0, 700.0),), LEASE_S), WAIT_S)[0]
        for _ in range(20):
            client.renew()
            assert client.news(0.05) == ""
        supervisor.send_signal(signal.SIGSTOP)
        began_s = time.monotonic()
        while not client.news(0.1):
            client.renew()
            assert time.monotonic() - began_s < WAIT_S
        assert client.news().startswith(SILENT)
        assert time.monotonic() - began_s > LEASE_S / 2
        supervisor.send_signal(signal.SIGCONT)
    rack.restored_in_s()


def test_a_record_that_is_removed_is_written_again(rack: Rack) -> None:
    supervisor = rack.supervisor()
    trainer = rack.trainer(lease_s=1000.0)
    rack.file.unlink()
    rack.until(lambda: rack.record.read() != ())
    assert rack.events("boost_record")
    for process in (supervisor, trainer):
        process.send_signal(signal.SIGSTOP)
    for process in (supervisor, trainer):
        kill(process)
    assert rack.watts() == [900.0, 900.0]
    rack.supervisor()
    rack.restored_in_s()


def test_a_child_of_who_held_it_does_not_keep_it(rack: Rack) -> None:
    """Such as a worker that loads data."""
    rack.supervisor()
    forking = TRAINER.replace(
        "    while",
        "    child = os.fork()\n    if not child:\n"
        "        time.sleep(60)\n        os._exit(0)\n    while",
    )
    trainer = rack.trainer(1000.0, "import os\n" + forking)
    try:
        kill(trainer)
        assert rack.restored_in_s() < 30
    finally:
        for child in rack.children_of(trainer):
            os.kill(child, signal.SIGKILL)


def test_who_asks_again_hears_of_the_second_ask(rack: Rack) -> None:
    rack.supervisor()
    ask = Ask("", (Wish("0", 900.0, 700.0),), 1000.0)
    with LeaseClient(rack.file, WAIT_S) as client:
        assert client.ask(ask, WAIT_S)[0]
        client.release()
        end_s = time.monotonic() + WAIT_S
        while not (answer := client.ask(ask, WAIT_S))[0]:
            assert "being restored" in answer[1]
            assert time.monotonic() < end_s
        assert rack.watts() == [900.0, 700.0]
        assert client.news(0.3) == ""


def test_a_holder_that_expects_other_options_is_refused(rack: Rack) -> None:
    rack.supervisor()
    ask = Ask("", (Wish("0", 900.0, 700.0),), 1000.0)
    with LeaseClient(rack.file, WAIT_S) as client:
        for expects, said in (
            ({"actuator": "dry-run"}, "runs with --actuator fake, not dry-run"),
            ({"telemetry": "/x.json"}, r"--telemetry (none), not /x.json"),
            ({"stale-s": "10"}, "--stale-s 30, not 10"),
        ):
            granted, reason = client.ask(ask, WAIT_S, expects)
            assert not granted
            assert said in reason
        assert client.ask(ask, WAIT_S, {"actuator": "fake", "stale-s": "30"})[0]


def test_coolant_is_given_back_by_the_next_supervisor(rack: Rack) -> None:
    flow = rack.folder / "flow"
    flow.write_text("1.5\n")
    valve = (
        f"--valve-set-command=sh -c 'echo $1 > {flow}.new; mv {flow}.new {flow}' {{gpu}} {{flow}}",
        f"--valve-read-command=sh -c 'cat {flow}' {{gpu}}",
        "--l-per-min-per-w=0.002",
        "--call-s=30",
    )
    supervisor = rack.supervisor(*valve)
    with LeaseClient(rack.file, WAIT_S) as client:
        assert client.ask(Ask("", (Wish("0", 900.0, 700.0),), 1000.0), WAIT_S)[0]
        assert flow.read_text() == "1.8\n"
        assert rack.record.read() == (Owed("0", 700.0, 900.0, 1.5),)
        kill(supervisor)
    rack.supervisor(*valve)
    rack.restored_in_s()
    assert flow.read_text() == "1.5\n"


# ------------------------------------------------------------------------ GPUs and their news


@pytest.mark.parametrize(
    ("fault", "content", "said"),
    [
        ("ceiling", "800", "was set to 900 W and reads 800 W"),
        ("refuses", "no permission", "no permission"),
        ("hangs", "", "no answer within"),
        ("silent", "", "does not answer"),
    ],
)
def test_one_gpu_that_does_not_obey_ends_the_boost(
    rack: Rack, fault: str, content: str, said: str
) -> None:
    path = rack.gpus.folder / f"1.{fault}"
    path.write_text(content)
    rack.supervisor()
    with LeaseClient(rack.file, WAIT_S) as client:
        wishes = tuple(Wish(gpu, 900.0, 700.0) for gpu in "01")
        granted, reason = client.ask(Ask("", wishes, 1000.0), WAIT_S)
        assert not granted
        assert said in reason
        path.unlink()
        rack.restored_in_s()
    rack.until(lambda: rack.events("boost_given_up") != [])
    assert rack.events("boost_given_up")[0]["fall_back"] == "ntp"


def test_a_gpu_that_will_not_come_down_is_tried_until_it_does(rack: Rack) -> None:
    rack.supervisor()
    trainer = rack.trainer()
    (rack.gpus.folder / "0.refuses").write_text("busy")
    kill(trainer)
    log = rack.gpus.folder / "set.log"
    rack.until(lambda: log.read_text().count("0 700\n") > 3)
    assert rack.watts() == [900.0, 700.0]
    (rack.gpus.folder / "0.refuses").unlink()
    rack.restored_in_s()
    assert len(rack.events("boost_not_restored")) == 1  # said once, not every period


def test_a_cap_from_somewhere_else_ends_the_boost_and_stays(rack: Rack) -> None:
    rack.supervisor()
    rack.trainer()
    rack.gpus.put("0", 500.0)
    rack.until(lambda: rack.watts() == [500.0, 700.0])
    rack.until(lambda: rack.record.read() == ())
    assert "reads 500 W" in rack.events("boost_given_up")[0]["reason"]


def test_reading_that_fails_for_long_ends_the_boost(rack: Rack) -> None:
    rack.supervisor("--stale-s=1")
    rack.trainer(lease_s=1000.0)
    silent = rack.gpus.folder / "0.silent"
    silent.touch()
    rack.until(lambda: rack.events("boost_given_up") != [])
    assert "no news of GPU 0" in rack.events("boost_given_up")[0]["reason"]
    silent.unlink()
    rack.restored_in_s()


def test_telemetry_that_stands_still_ends_the_boost(rack: Rack) -> None:
    path = rack.folder / "telemetry.json"

    def export(time_s: float) -> None:
        figures = {"time_s": time_s, "temperature_c": 60.0}
        (rack.folder / "part").write_text(json.dumps({"gpus": dict.fromkeys("01", figures)}))
        os.replace(rack.folder / "part", path)

    export(1.0)
    rack.supervisor("--stale-s=3", f"--telemetry={path}")
    with LeaseClient(rack.file, WAIT_S) as client:
        ask = Ask("", tuple(Wish(gpu, 900.0, 700.0) for gpu in "01"), 1000.0)
        assert "no news of GPU 0" in client.ask(ask, WAIT_S)[1]
        for tries in range(100):
            export(2.0 + tries)
            time.sleep(2 * PERIOD_S)
            if client.ask(ask, WAIT_S)[0]:
                break
        assert rack.watts() == [900.0, 900.0]
        began_s = time.monotonic()
        while not client.news(0.1):  # the exporter writes on, with the last sample it has
            export(2.0 + tries)
            assert time.monotonic() - began_s < WAIT_S
        assert "stale after 3 s" in client.news()
    rack.restored_in_s()


def test_only_later_samples_are_news(tmp_path: Path) -> None:
    path = tmp_path / "telemetry.json"
    telemetry = TelemetryFile(path)
    assert telemetry.samples() == []
    for content, news in (
        ('{"gpus": {"0": {"time_s": 5, "temperature_c": 50}}}', 0),
        ('{"gpus": {"0": {"time_s": 6, "temperature_c": 50}}}', 1),
        ('{"gpus": {"0": {"time_s": 6, "temperature_c": 50}}}', 0),
        ('{"gpus": {"0": {"time_s": 4, "temperature_c": 50}}}', 0),
        ('{"gpus": {"0": {"time_s": NaN, "temperature_c": 50}}}', 0),
        ('{"gpus": {"0": {"time_s": 9, "temperature_c": NaN}}}', 0),
        (f'{{"gpus": {{"0": {{"time_s": 1{"0" * 400}, "temperature_c": 50}}}}}}', 0),
        (f'{{"gpus": {{"0": {{"time_s": 9, "temperature_c": 1{"0" * 400}}}}}}}', 0),
        ('{"gpus": {"0": 3, "1": {}}}', 0),
        ('{"gpus": [1]}', 0),
        ("[]", 0),
        ('{"gpus', 0),
        ('{"gpus": {"0": {"time_s": 7, "temperature_c": 50}}}', 1),
    ):
        path.write_text(content)
        assert len(telemetry.samples()) == news, content


# ------------------------------------------------------------------------- one record, one door


def test_a_second_supervisor_is_refused(rack: Rack) -> None:
    rack.supervisor()
    with LeaseClient(rack.file, WAIT_S):
        out, _ = rack.supervisor().communicate(timeout=WAIT_S)
    assert out == f"supervisor: --file {rack.file}: another supervisor has it\n"


def test_a_watchdog_hears_of_it(rack: Rack, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.settimeout(WAIT_S)
        manager.bind(str(rack.folder / "notify"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(rack.folder / "notify"))
        rack.supervisor()
        assert [manager.recv(100) for _ in range(3)] == [b"READY=1", b"WATCHDOG=1", b"WATCHDOG=1"]


def test_until_idle_it_ends_by_itself(rack: Rack) -> None:
    supervisor = rack.supervisor("--until-idle")
    kill(rack.trainer())
    assert supervisor.wait(WAIT_S) == 0
    assert rack.watts() == [700.0, 700.0]


def test_nonsense_at_the_door_is_answered_and_hurts_nobody(rack: Rack) -> None:
    rack.supervisor()
    trainer = rack.trainer(lease_s=1000.0)
    path = f"{rack.file}.socket"
    assert os.stat(path).st_mode & 0o077 == 0
    for line, said in (
        (b"\xff\n", "not one JSON object"),
        (b"[" * 100_000 + b"\n", "not one JSON object"),
        (b'{"do": "boost"}\n', "nothing that can be asked"),
        (b'{"do": "ask", "gpus": [{"gpu": "-rf"}], "lease_s": 1}\n', "does not name a GPU"),
        (b'{"do": "ask", "gpus": [{"gpu": "../x"}], "lease_s": 1}\n', "does not name a GPU"),
        (b'{"do": "ask", "gpus": [], "lease_s": NaN}\n', "lease_s: nan is not above 0"),
        (b'{"do": "ask", "gpus": [], "lease_s": true}\n', "lease_s: True is not above 0"),
        (
            b'{"do": "ask", "gpus": [], "lease_s": 1%s}\n' % (b"0" * 400),
            "is not above 0 and finite",
        ),
        (b'{"do": "ask", "gpus": [], "lease_s": 1, "expects": 1}\n', "expects: an object"),
        (b'{"do": "ask", "gpus": [], "lease_s": 1}\n', "0 GPUs were named"),
    ):
        with socket.socket(socket.AF_UNIX) as door:
            door.settimeout(WAIT_S)
            door.connect(path)
            door.sendall(line)
            assert said in json.loads(door.makefile().readline())["reason"]
    with socket.socket(socket.AF_UNIX) as door:
        door.settimeout(WAIT_S)
        door.connect(path)
        with pytest.raises(OSError, match=r"Broken pipe|reset"):  # a line without end is cut off
            door.sendall(b"x" * 10_000_000)
    assert trainer.poll() is None
    assert rack.watts() == [900.0, 900.0]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--actuator=fake"], "--file"),
        (["--file=x", "--actuator=magic"], "--actuator magic"),
        (["--file=x", "--actuator=fake", "--period-s=0"], "0: must be a number above 0"),
        (["--file=x", "--actuator=fake", "--period-s=20"], "--stale-s 10: must be above"),
        (["--file=/nowhere/x", "--actuator=fake"], "cannot be opened"),
        (["--file=there", "--actuator=dry-run", "--highest-w=9"], "no socket can be there"),
        (
            [f"--file={'x' * 110}", "--actuator=dry-run", "--highest-w=9"],
            "bytes, a socket's name has 107",
        ),
    ],
)
def test_wrong_options_are_one_line(
    arguments: list[str],
    said: str,
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("there.socket").mkdir()
    kept = {number: signal.getsignal(number) for number in (15, 2, 1)}
    try:
        assert main(arguments) == 2
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)
    complaint = capfd.readouterr().err
    assert complaint.count("\n") == 1
    assert said in complaint


def test_no_supervisor_is_said(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match="no supervisor at"):
        LeaseClient(tmp_path / "boost.json", within_s=0.1)
