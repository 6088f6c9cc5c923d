"""`nonuniform boost`: what it says, and a boost held by real processes until Ctrl-C."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nonuniform.errors import BadInput, RunFailed
from nonuniform.power.actuators.base import LimitsW
from nonuniform.power.actuators.choose import ActuatorChoice
from nonuniform.power.actuators.fake import FakeGpus
from nonuniform.power.boost_command import (
    BoostWishes,
    default_file,
    hold,
    plan,
    plan_json,
    plan_text,
)
from nonuniform.power.lease_file import LeaseFile

WAIT_S = 60.0
RACK = """
[domain]
rack = "gb200_nvl72"
survive = 4
[gpu]
nominal_w = 1000
[rack]
ramp_w_per_s = 2000
[cooling]
inlet_c = 30
"""

HOLD = """
import sys
from pathlib import Path
from nonuniform.errors import NonuniformError
from nonuniform.power import boost_command
from nonuniform.power.actuators.choose import ActuatorChoice
from nonuniform.power.boost_command import BoostWishes, hold, plan

rack, file, folder = map(Path, sys.argv[1:4])
boost_command._RESTORE_S = float(sys.argv[4])
choice = ActuatorChoice("fake", fake_folder=folder, call_s=1.0)
wishes = BoostWishes(2, 2.0, choice, file, ("0", "1"), settle_s=0.5)
try:
    hold(plan(rack, wishes), wishes, lambda line: print(line, flush=True))
except NonuniformError as error:
    print(error, flush=True)
    sys.exit(error.exit_status)
"""


@pytest.fixture
def rack_file(tmp_path: Path) -> Path:
    path = tmp_path / "rack.toml"
    path.write_text(RACK)
    return path


def wishes(tmp_path: Path, failed: int, gpus: tuple[str, ...] | None = None) -> BoostWishes:
    return BoostWishes(failed, 10.0, ActuatorChoice("dry-run"), tmp_path / "boost.json", gpus)


def test_set_points_and_the_reason(rack_file: Path, tmp_path: Path) -> None:
    made = plan(rack_file, wishes(tmp_path, 2))
    values = plan_json(made)
    assert values["granted"]
    assert values["need"] == pytest.approx(72 / 70)
    assert len(values["set_points_w"]) == values["living_gpus"] == 70
    (watts,) = set(values["set_points_w"].values())
    assert 1000 < watts < 1200
    assert values["fall_back"] is None
    assert values["ramp_s"] == pytest.approx(70 * (watts - 1000) / 2000)
    assert values["needed_w"]["low"] < watts < values["needed_w"]["high"]
    assert values["extrapolated"]
    assert values["granted_at_high"]
    assert json.loads(json.dumps(values, allow_nan=False)) == values
    text = plan_text(made)
    assert f"{watts:.1f} W each, nominal 1000 W" in text
    assert f"needs        {watts:.1f} W [" in text
    assert "(extrapolated)" in text
    assert f"granted: {values['reason']}" in text
    assert "GPU 0 ... 69 (70)" in text


def test_a_boost_that_fits_by_the_middle_of_the_band_only(rack_file: Path, tmp_path: Path) -> None:
    made = plan(rack_file, wishes(tmp_path, 4))
    assert plan_json(made)["granted"]
    assert not plan_json(made)["granted_at_high"]
    assert "boost        perhaps, not by the upper edge of the band: " in plan_text(made)


def test_nothing_lost_nothing_set(rack_file: Path, tmp_path: Path) -> None:
    made = plan(rack_file, wishes(tmp_path, 0))
    assert "boost        none: none needed" in plan_text(made)
    hold(made, wishes(tmp_path, 0), print)  # returns at once
    assert not (tmp_path / "boost.json.socket").exists()


def test_a_refusal_falls_back_to_ntp(rack_file: Path, tmp_path: Path) -> None:
    rack_file.write_text(RACK.replace("nominal_w = 1000", "nominal_w = 1200"))
    made = plan(rack_file, wishes(tmp_path, 4))
    assert plan_json(made)["fall_back"] == "ntp"
    assert "refused, fall back to ntp" in plan_text(made)
    with pytest.raises(RunFailed, match="fall back to ntp: gpu ceiling"):
        hold(made, wishes(tmp_path, 4), print)


@pytest.mark.parametrize(
    ("failed", "gpus", "lease_s", "said"),
    [
        (5, None, 10.0, "--failed 5: .* from 0 to 4"),
        (-1, None, 10.0, "--failed -1"),
        (1, ("-x",), 10.0, "--gpus: '-x' cannot be"),
        (1, ("0", "0"), 10.0, "--gpus: 2 names"),
        (1, (), 10.0, "--gpus: 0 names"),
        (1, None, 0.0, "--lease-s 0"),
        (1, None, float("nan"), "--lease-s nan"),
    ],
)
def test_wrong_wishes_are_one_line(
    rack_file: Path,
    tmp_path: Path,
    failed: int,
    gpus: tuple[str, ...] | None,
    lease_s: float,
    said: str,
) -> None:
    choice = ActuatorChoice("dry-run")
    with pytest.raises(BadInput, match=said):
        plan(rack_file, BoostWishes(failed, lease_s, choice, tmp_path / "b", gpus))


def test_wrong_options_are_told_before_anything_starts(rack_file: Path, tmp_path: Path) -> None:
    for choice, said in (
        (ActuatorChoice("command"), "--set-command"),
        (ActuatorChoice("magic"), "--actuator magic"),
        (ActuatorChoice("dry-run", l_per_min_per_w=-1.0), "--l-per-min-per-w -1: there is no"),
        (ActuatorChoice("nvml", l_per_min_per_w=math.nan), "--l-per-min-per-w nan: there is no"),
        (
            ActuatorChoice("nvml", valve_set_command="v {gpu} {flow}"),
            "--l-per-min-per-w is missing",
        ),
        (
            ActuatorChoice("nvml", valve_set_command="v {gpu} {flow}", l_per_min_per_w=-1.0),
            "--l-per-min-per-w -1: must be a number above 0",
        ),
        (
            ActuatorChoice("dry-run", valve_read_command="v {gpu}", l_per_min_per_w=0.1),
            "--valve-set-command",
        ),
    ):
        bad = BoostWishes(2, 10.0, choice, tmp_path / "boost.json")
        with pytest.raises(BadInput, match=said):
            plan(rack_file, bad)
    assert list(tmp_path.iterdir()) == [rack_file]


def test_the_record_is_where_the_next_command_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert default_file() == Path("/state/nonuniform/boost.json")


# ----------------------------------------------------------------------------- held for real


class Held:
    """A command that holds a boost of two fake GPUs, and the supervisor that it started."""

    def __init__(self, rack: Path, folder: Path, restore_s: float) -> None:
        self.gpus = FakeGpus(folder / "gpus", LimitsW(200.0, 1200.0))
        self.gpus.folder.mkdir()
        for gpu in "01":
            self.gpus.put(gpu, 1000.0)
        self.file = folder / "boost.json"
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOLD, rack, self.file, self.gpus.folder, str(restore_s)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def watts(self) -> list[float]:
        return [self.gpus.read_w(gpu) for gpu in "01"]

    def until(self, happened: Callable[[], bool]) -> None:
        end_s = time.monotonic() + WAIT_S
        while not happened():
            assert time.monotonic() < end_s, self.watts()
            time.sleep(0.02)

    def supervisor(self) -> int:
        """Its process, from the lock that it holds."""
        for status in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = status.read_bytes().split(b"\0")
            except OSError:
                continue
            if b"nonuniform.power.supervisor" in words and f"--file={self.file}".encode() in words:
                return int(status.parent.name)
        return 0

    def close(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=WAIT_S)
        self.until(lambda: self.supervisor() == 0)  # it ends when nobody holds anything


@pytest.fixture
def restore_s() -> float:
    return 30.0


@pytest.fixture
def held(rack_file: Path, tmp_path: Path, restore_s: float) -> Iterator[Held]:
    held = Held(rack_file, tmp_path, restore_s)
    assert "held: 2 GPUs were set and read back" in held.line()
    assert min(held.watts()) > 1000.0
    yield held
    held.close()


def test_ctrl_c_gives_it_back(held: Held) -> None:
    held.process.send_signal(signal.SIGINT)
    out, _ = held.process.communicate(timeout=WAIT_S)
    assert out == "all set points are back\n"
    assert held.process.returncode == 0
    assert held.watts() == [1000.0, 1000.0]
    assert LeaseFile(held.file, "fake").read() == ()


@pytest.mark.parametrize("restore_s", [0.0])
def test_ctrl_c_with_a_gpu_that_stays_up_is_no_success(held: Held) -> None:
    refuses = held.gpus.folder / "1.refuses"
    refuses.write_text("busy")
    held.process.send_signal(signal.SIGINT)
    out, _ = held.process.communicate(timeout=WAIT_S)
    refuses.unlink()
    assert f"not all set points are back yet; {held.file} says which" in out
    assert held.process.returncode == 3
    held.until(lambda: held.watts() == [1000.0, 1000.0])


def test_a_supervisor_with_other_options_is_not_used(held: Held, rack_file: Path) -> None:
    before = held.watts()
    for choice, stale_s, said in (
        (
            ActuatorChoice("fake", fake_folder=held.gpus.folder, call_s=1.0),
            5.0,
            "--stale-s 10, not 5",
        ),
        (ActuatorChoice("fake", fake_folder=held.file.parent, call_s=1.0), 10.0, "--fake-folder"),
    ):
        other = BoostWishes(2, 2.0, choice, held.file, ("2", "3"), stale_s=stale_s)
        with pytest.raises(RunFailed, match=said):
            hold(plan(rack_file, other), other, print)
    assert held.watts() == before


def test_a_dry_run_meets_no_supervisor_that_sets_watts(tmp_path: Path) -> None:
    assert wishes(tmp_path, 2).record.path == tmp_path / "boost.json.dry-run"


def test_the_command_is_killed_and_its_supervisor_restores(held: Held) -> None:
    time.sleep(3.0)  # longer than the lease: it is renewed
    assert min(held.watts()) > 1000.0
    held.process.kill()
    held.until(lambda: held.watts() == [1000.0, 1000.0])
    events = (held.file.parent / "boost.json.events").read_text()
    assert "has died" in events


def test_the_supervisor_is_killed_and_the_command_starts_another(held: Held) -> None:
    os.kill(held.supervisor(), signal.SIGKILL)
    out, _ = held.process.communicate(timeout=WAIT_S)
    assert out.startswith(
        "all set points are back\nthe boost has ended, fall back to ntp: the super"
    )
    assert held.process.returncode == 3
    assert held.watts() == [1000.0, 1000.0]


def test_a_gpu_that_clamps_ends_the_command_with_the_reason(held: Held) -> None:
    held.gpus.put("1", 900.0)
    out, _ = held.process.communicate(timeout=WAIT_S)
    assert "reads 900 W" in out
    assert held.process.returncode == 3
    assert held.watts() == [1000.0, 900.0]


def with_news(rack: Path, folder: Path) -> tuple[FakeGpus, BoostWishes]:
    """Two GPUs, and a boost of them that wants news from a file."""
    gpus = FakeGpus(folder / "gpus", LimitsW(200.0, 1200.0))
    gpus.folder.mkdir()
    for gpu in "01":
        gpus.put(gpu, 1000.0)
    news = folder / "news.json"
    tell(news, 1.0)
    choice = ActuatorChoice("fake", fake_folder=gpus.folder, call_s=2.0)
    file = folder / "boost.json"
    return gpus, BoostWishes(2, 60.0, choice, file, ("0", "1"), telemetry=news, stale_s=3.0)


def tell(news: Path, time_s: float) -> None:
    figures = {"time_s": time_s, "temperature_c": 50.0}
    part = news.with_suffix(".part")
    part.write_text(json.dumps({"gpus": {"0": figures, "1": figures}}))
    part.replace(news)


def test_without_any_news_there_is_no_boost(rack_file: Path, tmp_path: Path) -> None:
    """The file is there, and its exporter has died."""
    gpus, wishes = with_news(rack_file, tmp_path)
    with pytest.raises(RunFailed, match=r"fall back to ntp: .*no news of GPU 0"):
        hold(plan(rack_file, wishes), wishes, lambda line: None)
    assert [gpus.read_w(gpu) for gpu in "01"] == [1000.0, 1000.0]


def test_a_boost_ends_when_the_news_end(rack_file: Path, tmp_path: Path) -> None:
    gpus, wishes = with_news(rack_file, tmp_path)
    assert wishes.telemetry is not None
    held, stopped, seen = threading.Event(), threading.Event(), []

    def export(news: Path) -> None:
        """Until two seconds after the boost is there."""
        began, time_s = None, 1.0
        while not stopped.is_set() and (began is None or time.monotonic() < began + 2.0):
            time_s += 1.0
            tell(news, time_s)
            if held.is_set() and began is None:
                began = time.monotonic()
                seen.append([gpus.read_w(gpu) for gpu in "01"])
            time.sleep(0.1)

    exporter = threading.Thread(target=export, args=(wishes.telemetry,))
    exporter.start()
    try:
        with pytest.raises(RunFailed, match=r"the boost has ended, .*no news of GPU"):
            hold(plan(rack_file, wishes), wishes, lambda line: held.set())
    finally:
        stopped.set()
        exporter.join()
    assert min(seen[0]) > 1000.0
    assert [gpus.read_w(gpu) for gpu in "01"] == [1000.0, 1000.0]


def test_telemetry_that_is_not_there_is_told_at_once(rack_file: Path, tmp_path: Path) -> None:
    choice = ActuatorChoice("dry-run")
    bad = BoostWishes(2, 2.0, choice, tmp_path / "boost.json", telemetry=tmp_path / "none.json")
    with pytest.raises(BadInput, match=r"--telemetry .*none\.json: no such file"):
        plan(rack_file, bad)
    bad = BoostWishes(2, 2.0, choice, tmp_path / "boost.json", stale_s=0.5)
    with pytest.raises(BadInput, match=r"--stale-s 0\.5: must be above 1"):
        plan(rack_file, bad)
