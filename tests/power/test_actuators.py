"""Each way to set watts: what reaches the outside, and what is refused. NVML is a stand-in."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from nonuniform.errors import BadInput
from nonuniform.power.actuators.base import (
    Actuator,
    ActuatorRefused,
    LimitsW,
    Reading,
    lower,
    read_before,
    restore,
)
from nonuniform.power.actuators.choose import ActuatorChoice, choose
from nonuniform.power.actuators.command_line import CommandLine, parse_template, run
from nonuniform.power.actuators.coolant_valve import CooledGpus, Valve
from nonuniform.power.actuators.dry_run import DryRun
from nonuniform.power.actuators.fake import FakeGpus
from nonuniform.power.actuators.lanes import Lanes
from nonuniform.power.actuators.nvml import Nvml

LIMITS = LimitsW(200.0, 1000.0)


@pytest.fixture
def gpus(tmp_path: Path) -> FakeGpus:
    fake = FakeGpus(tmp_path, LIMITS)
    fake.put("0", 700.0)
    return fake


# ------------------------------------------------------------------------------------ lowering


def test_lowering_never_raises(gpus: FakeGpus) -> None:
    assert lower(gpus, "0", 900.0, 1.0).watts == 700.0
    assert not (gpus.folder / "set.log").exists()
    assert lower(gpus, "0", 700.5, 1.0).watts == 700.0
    gpus.put("0", 900.0)
    assert lower(gpus, "0", 700.0, 1.0).watts == 700.0


def test_lowering_is_ordered_though_it_reads_as_lowered(gpus: FakeGpus) -> None:
    """An older order to raise it may be on its way, and must not be the last one."""
    assert lower(gpus, "0", 700.0, 1.0).watts == 700.0
    assert (gpus.folder / "set.log").read_text() == "0 700\n"


@pytest.mark.parametrize("lie", [0.0, -5.0, 150.0])
def test_a_reading_that_no_gpu_can_be_at_is_not_believed(gpus: FakeGpus, lie: float) -> None:
    gpus.put("0", lie)
    assert lower(gpus, "0", 700.0, 1.0) == Reading(700.0, math.inf, 200.0)


def test_lowering_tries_though_reading_fails(gpus: FakeGpus) -> None:
    gpus.put("0", 900.0)
    (gpus.folder / "0.silent").touch()
    with pytest.raises(ActuatorRefused, match="does not answer"):
        lower(gpus, "0", 700.0, 1.0)
    assert (gpus.folder / "0.w").read_text() == "700.0\n"


# ----------------------------------------------------------------------------------- a command


def manager(tmp_path: Path) -> CommandLine:
    """A power manager: a script that keeps the watts in a file."""
    script = tmp_path / "manager.py"
    script.write_text(
        "import sys, pathlib\n"
        "what, gpu, *watts = sys.argv[1:]\n"
        "file = pathlib.Path(__file__).with_name('watts of ' + gpu.replace('/', '-'))\n"
        "if what == 'set': file.write_text(watts[0])\n"
        "else: print(file.read_text(), 'W')\n"
    )
    command = f"'{sys.executable}' '{script}'"
    return CommandLine(
        parse_template("--set-command", f"{command} set {{gpu}} {{watts}}", ("gpu", "watts")),
        parse_template("--read-command", f"{command} get {{gpu}}", ("gpu",)),
        LIMITS,
        timeout_s=60.0,
    )


@pytest.mark.parametrize("gpu", ["0", "0/3", "$(touch x); `y` {watts} \"'"])
def test_a_command_gets_its_arguments_as_they_are(tmp_path: Path, gpu: str) -> None:
    actuator = manager(tmp_path)
    actuator.set_w(gpu, 812.4)
    assert actuator.read_w(gpu) == 812.0
    assert not (Path.cwd() / "x").exists()
    assert actuator.limits_w(gpu) == LIMITS


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["/nowhere/pm"], "does not start"),
        (["sh", "-c", "echo no such GPU >&2; exit 3"], "ended with status 3: no such GPU"),
    ],
)
def test_a_command_that_fails_says_how(command: list[str], said: str) -> None:
    with pytest.raises(ActuatorRefused, match=said):
        run(command, 60.0)


def test_a_command_that_hangs_ends_with_all_it_started(tmp_path: Path) -> None:
    began = time.monotonic()
    child = f"(sleep 60; touch '{tmp_path}/late') & sleep 60"  # the child holds the pipe open
    with pytest.raises(ActuatorRefused, match=r"no answer within 0\.5 s"):
        run(["sh", "-c", child], 0.5)
    assert time.monotonic() - began < 20


def dead(pid: int) -> bool:
    """Or a zombie that nobody has waited for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("Z")
    except OSError:
        return True


def until_dead(file: Path) -> None:
    end_s = time.monotonic() + 60
    while not dead(int(file.read_text())):
        assert time.monotonic() < end_s
        time.sleep(0.01)


def test_what_a_command_leaves_in_its_group_is_ended(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    run(["sh", "-c", f"(sleep 600 >/dev/null 2>&1) & echo $! > '{file}'"], 60.0)
    until_dead(file)


def test_a_command_does_not_outlive_who_ran_it(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    code = (
        "from nonuniform.power.actuators.command_line import run\n"
        f'run([\'sh\', \'-c\', \'echo $$ > "{file}.new"; mv "{file}.new" "{file}"; '
        "exec sleep 600'], 600)"
    )
    with subprocess.Popen([sys.executable, "-c", code]) as runner:
        end_s = time.monotonic() + 60
        while not file.exists():
            assert time.monotonic() < end_s
            time.sleep(0.01)
        assert not dead(int(file.read_text()))
        os.kill(runner.pid, signal.SIGKILL)
    until_dead(file)


@pytest.mark.parametrize("said", ["", "nan", "inf W", "watts: 700", "700 800", "700 mW"])
def test_only_a_number_is_a_reading(said: str) -> None:
    reading = parse_template("--read-command", f"echo '{said}' {{gpu}}", ("gpu",))
    actuator = CommandLine(reading, reading, LIMITS, 60.0)
    with pytest.raises(ActuatorRefused, match="a number of W was expected"):
        actuator.read_w("x")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("", r"\{gpu\} and \{watts\} missing"),
        ("pm {gpu}", r"\{watts\} missing"),
        ("pm {gpu} {watts} {host}", r"\{host\} is not known"),
        ("pm {gpu} {watts} {gpu.__class__}", "is not known"),
        ("pm '{gpu} {watts}", "No closing quotation"),
        ("{gpu} {watts}", "the command itself must be fixed"),
    ],
)
def test_a_wrong_template_is_one_line(line: str, said: str) -> None:
    with pytest.raises(BadInput, match=said) as caught:
        parse_template("--set-command", line, ("gpu", "watts"))
    assert str(caught.value).startswith("--set-command")


# ------------------------------------------------------------------------------------- coolant


def cooled(
    gpus: FakeGpus, opens_to: str = '"$1"', fails: str = "", flow: str = "1.5"
) -> CooledGpus:
    """The valve writes into the log of the GPUs, so that the order is seen."""
    log, file = gpus.folder / "set.log", gpus.folder / "flow"
    file.write_text(f"{flow}\n")
    script = gpus.folder / "valve.sh"
    script.write_text(f'{fails}\necho "valve $1" >> "{log}"\necho {opens_to} > "{file}"\n')
    return CooledGpus(
        gpus,
        Valve(
            parse_template(
                "--valve-set-command", f"sh '{script}' {{flow}} {{gpu}}", ["flow", "gpu"]
            ),
            parse_template("--valve-read-command", f"sh -c 'cat \"{file}\"' {{gpu}}", ["gpu"]),
            l_per_min_per_w=0.002,
            timeout_s=60.0,
        ),
    )


def test_coolant_comes_before_the_power_and_goes_after_it(gpus: FakeGpus) -> None:
    actuator = cooled(gpus)
    assert read_before(actuator, "0") == Reading(700.0, 1000.0, 200.0, 1.5)
    actuator.set_w("0", 900.0)
    assert restore(actuator, "0", 700.0, 1.0, 1.5).watts == 700.0
    lines = (gpus.folder / "set.log").read_text().splitlines()
    assert lines == ["valve 1.8", "0 900", "0 700", "valve 1.5"]
    assert actuator.read_w("0") == 700.0


def test_a_valve_that_is_open_wider_is_left_alone(gpus: FakeGpus) -> None:
    actuator = cooled(gpus, flow="3.0")
    actuator.set_w("0", 900.0)
    restore(actuator, "0", 700.0, 1.0, 3.0)
    assert (gpus.folder / "set.log").read_text() == "0 900\n0 700\n"
    with pytest.raises(ActuatorRefused, match="0 l/min flow, which is none"):
        read_before(cooled(gpus, flow="0"), "0")


def test_coolant_is_not_given_back_before_the_gpu_is_down(gpus: FakeGpus) -> None:
    actuator = cooled(gpus)
    actuator.set_w("0", 900.0)
    (gpus.folder / "0.refuses").touch()
    with pytest.raises(ActuatorRefused, match="no permission"):
        restore(actuator, "0", 700.0, 1.0, 1.5)
    assert (gpus.folder / "flow").read_text() == "1.8\n"
    (gpus.folder / "0.refuses").unlink()
    with pytest.raises(ActuatorRefused, match=r"no valve to give 1\.5 l/min"):
        restore(gpus, "0", 900.0, 1.0, 1.5)


def test_without_coolant_no_power(gpus: FakeGpus) -> None:
    with pytest.raises(ActuatorRefused, match=r"1\.5 l/min flow, 900 W need 1\.8"):
        cooled(gpus, opens_to="1.5").set_w("0", 900.0)
    with pytest.raises(ActuatorRefused, match="status 7"):
        cooled(gpus, fails="exit 7").set_w("0", 900.0)
    assert gpus.read_w("0") == 700.0


def test_a_valve_that_will_not_close_keeps_no_power_up(gpus: FakeGpus) -> None:
    gpus.put("0", 900.0)
    actuator = cooled(gpus, fails="exit 7")
    (gpus.folder / "flow").write_text("1.8\n")
    with pytest.raises(ActuatorRefused):
        restore(actuator, "0", 700.0, 1.0, 1.5)
    assert gpus.read_w("0") == 700.0
    with pytest.raises(ActuatorRefused, match=r"1\.8 l/min flow, it was to go back to 1\.5"):
        restore(cooled(gpus, opens_to="1.8", flow="1.8"), "0", 700.0, 1.0, 1.5)


# ---------------------------------------------------------------------------------------- NVML


class NVMLError(Exception):
    pass


class StandIn(ModuleType):
    """One GPU as NVML shows it, in milliwatts."""

    NVMLError = NVMLError

    def __init__(self) -> None:
        super().__init__("pynvml")
        self.limit_mw = 700_000
        self.elsewhere_mw = 10_000_000
        self.root = True
        self.starts = True

    def nvmlInit(self) -> None:  # noqa: N802
        if not self.starts:
            raise NVMLError("Driver Not Loaded")

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:  # noqa: N802
        if index != 3:
            raise NVMLError("Invalid Argument")
        return "GPU-abc"

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:  # noqa: N802
        if uuid != "GPU-abc":
            raise NVMLError("Not Found")
        return uuid

    def nvmlDeviceGetUUID(self, handle: str) -> str:  # noqa: N802
        return handle

    def nvmlDeviceGetPowerManagementLimit(self, handle: str) -> int:  # noqa: N802
        return self.limit_mw

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: str) -> int:  # noqa: N802
        return min(self.limit_mw, self.elsewhere_mw)

    def nvmlDeviceGetPowerManagementLimitConstraints(self, handle: str) -> list[int]:  # noqa: N802
        return [200_000, 1_000_000]

    def nvmlDeviceSetPowerManagementLimit(self, handle: str, limit_mw: int) -> None:  # noqa: N802
        if not self.root:
            raise NVMLError("Insufficient Permissions")
        assert isinstance(limit_mw, int)
        self.limit_mw = limit_mw


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    module = StandIn()
    monkeypatch.setitem(sys.modules, "pynvml", module)
    return module


def test_nvml_speaks_milliwatts_and_names_that_stay(nvml: StandIn) -> None:
    actuator = Nvml()
    actuator.set_w("3", 812.5)
    assert nvml.limit_mw == 812_500
    assert actuator.read_w("GPU-abc") == 812.5
    assert actuator.limits_w("3") == LIMITS
    assert actuator.uuids(["3"]) == ("GPU-abc",)
    with pytest.raises(BadInput, match=r"--gpus: .*GPU 4: Invalid Argument"):
        actuator.uuids(["4"])


def test_nvml_refuses_what_the_gpu_would_not_obey(nvml: StandIn) -> None:
    nvml.elsewhere_mw = 650_000
    with pytest.raises(ActuatorRefused, match="set to 900 W and obeys a limit of 650 W"):
        Nvml().set_w("3", 900.0)
    nvml.root = False
    with pytest.raises(ActuatorRefused, match="Insufficient Permissions"):
        Nvml().set_w("3", 900.0)
    with pytest.raises(ActuatorRefused, match="Not Found"):
        Nvml().read_w("GPU-def")


def test_nvml_is_only_needed_where_it_is_chosen(
    monkeypatch: pytest.MonkeyPatch, nvml: StandIn
) -> None:
    nvml.starts = False
    with pytest.raises(BadInput, match="does not start here: Driver Not Loaded"):
        choose(ActuatorChoice("nvml"))
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(BadInput, match=r"pip install 'nonuniform\[ops\]'"):
        choose(ActuatorChoice("nvml"))


# ------------------------------------------------------------------------------- choice, lanes


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        (ActuatorChoice("magic"), "--actuator magic: expected one of dry-run"),
        (ActuatorChoice("dry-run"), "--lowest-w 0 and --highest-w 0 are no limits"),
        (ActuatorChoice("fake", highest_w=1000.0), "--fake-folder is missing"),
        (ActuatorChoice("command", highest_w=1000.0), "--set-command ''"),
        (
            ActuatorChoice("dry-run", highest_w=1000.0, valve_set_command="v"),
            "--l-per-min-per-w is missing",
        ),
    ],
)
def test_a_wrong_choice_is_one_line(choice: ActuatorChoice, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        choose(choice)


def test_a_dry_run_tells_and_remembers() -> None:
    said: list[str] = []
    actuator: Actuator = DryRun(700.0, LIMITS, said.append)
    assert actuator.read_w("0") == 700.0
    actuator.set_w("0", 900.0)
    assert actuator.read_w("0") == 900.0
    assert said == ["dry run: GPU 0 would be set to 900 W"]


def test_a_call_that_hangs_keeps_its_lane_and_no_other() -> None:
    lanes = Lanes(within_s=0.3)
    go = threading.Event()
    order: list[str] = []

    def hangs() -> Reading:
        go.wait(30)
        order.append("old")
        return Reading(900.0, 1000.0)

    def newer() -> Reading:
        order.append("new")
        return Reading(700.0, 1000.0)

    def broken() -> Reading:
        raise KeyError("driver")

    first: dict[str, Any] = lanes.answers({"0": hangs, "1": newer, "2": broken})
    assert "no answer within 0.3 s" in str(first["0"])
    assert first["1"] == Reading(700.0, 1000.0)
    assert "KeyError" in str(first["2"])
    assert "still hangs" in str(lanes.answers({"0": newer})["0"])
    go.set()
    for _ in range(200):
        if isinstance(lanes.answers({"0": newer})["0"], Reading):
            break
        time.sleep(0.01)
    assert order[1:3] == ["old", "new"]
