"""What `nonuniform boost RACK.toml --failed N` does: say what boost keeps up, and hold it.

In: the rack's file, how many GPUs of the domain are lost, which actuator. Out: set points with the
reason; then a lease that is held until Ctrl-C by way of the supervisor, which is started if none is
there and outlives this command. A boost that ends for any other reason ends the command with that
reason: the replica falls back to `ntp`.

Does not know the temperatures of now: a boost is judged from those of the nominal set point.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from nonuniform.errors import BadInput, RunFailed
from nonuniform.power.actuators.choose import (
    ActuatorChoice,
    check,
    check_kind,
    choose,
    supervisor_options,
)
from nonuniform.power.actuators.nvml import Nvml
from nonuniform.power.curve import GpuPower
from nonuniform.power.lease_client import GONE, SILENT, LeaseClient
from nonuniform.power.lease_file import LeaseFile
from nonuniform.power.lease_messages import is_gpu_name, socket_path
from nonuniform.power.lease_values import NO_NEWS, Ask, Wish
from nonuniform.power.policy import Boost, boost
from nonuniform.power.rack import living_gpus, ramp_s
from nonuniform.power.rack_file import RackFile, load_rack_file
from nonuniform.power.thermal import steady

Values = dict[str, Any]
Say = Callable[[str], None]
_START_S = 15.0
_RESTORE_S = 15.0
_AGAIN_S = 0.2


@dataclass(frozen=True)
class BoostWishes:
    """`gpus`: those of the domain that are set from this machine; None: all living ones, by
    index. `file`: the record of the supervisor. `telemetry`: news of the GPUs, without which a
    boost ends after `stale_s`; without a file, set points that are read are the news."""

    failed: int
    lease_s: float
    choice: ActuatorChoice
    file: Path
    gpus: tuple[str, ...] | None = None
    shelves_lost: int = 0
    telemetry: Path | None = None
    stale_s: float = 10.0
    settle_s: float = 10.0

    @property
    def for_supervisor(self) -> tuple[str, ...]:
        """Options of one that is started here."""
        news = [f"--telemetry={self.telemetry.absolute()}"] if self.telemetry else []
        spans = [f"--stale-s={self.stale_s!r}", f"--settle-s={self.settle_s!r}"]
        return (*self.choice.arguments, *spans, *news)

    @property
    def expects(self) -> dict[str, str]:
        """What one that is there already must do."""
        return supervisor_options(self.choice, self.telemetry, self.stale_s)

    @property
    def restore_s(self) -> float:
        """Within which set points are back, or something is wrong."""
        return _RESTORE_S + self.choice.order_s + self.settle_s

    @property
    def record(self) -> LeaseFile:
        """A dry run has one of its own, so that it never meets a supervisor that sets watts."""
        path, kind = self.file.absolute(), self.choice.kind
        return LeaseFile(path.with_name(f"{path.name}.{kind}") if kind == "dry-run" else path, kind)


def default_file() -> Path:
    """The same wherever the command is run, so that the next one finds what is owed."""
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state) / "nonuniform" / "boost.json"


@dataclass(frozen=True)
class Plan:
    rack: RackFile
    boost: Boost
    gpus: tuple[str, ...]
    need: float
    living: int

    @property
    def needed(self) -> bool:
        return self.boost.granted and self.boost.limit != "none needed"


def plan(path: Path, wishes: BoostWishes) -> Plan:
    rack_file = load_rack_file(path)
    if not 0 <= wishes.failed <= rack_file.survive:
        raise BadInput(
            f"--failed {wishes.failed}: {path} says what is needed from 0 to "
            f"{rack_file.survive} lost GPUs"
        )
    check_kind(wishes.choice)
    if not 0 < wishes.lease_s < math.inf:
        raise BadInput(f"--lease-s {wishes.lease_s:g}: must be above 0")
    if not 1 < wishes.stale_s < math.inf:
        raise BadInput(f"--stale-s {wishes.stale_s:g}: must be above 1, the supervisor's period")
    if wishes.telemetry is not None and not wishes.telemetry.is_file():
        raise BadInput(f"--telemetry {wishes.telemetry}: no such file")
    rack, need = rack_file.entry.rack, rack_file.need[wishes.failed]
    check(_limited(wishes.choice, rack.gpu))
    living = living_gpus(rack, wishes.failed)
    start = steady(rack_file.entry.cooling, rack.gpu.nominal_w)
    found = boost(need, rack, wishes.failed, start, rack_file.seconds, wishes.shelves_lost)
    return Plan(rack_file, found, _gpus(wishes.gpus, living), need, living)


def _limited(choice: ActuatorChoice, gpu: GpuPower) -> ActuatorChoice:
    """Within what the file of the rack says of the GPU."""
    highest_w = choice.highest_w or gpu.ceiling_w
    return replace(choice, nominal_w=gpu.nominal_w, highest_w=highest_w)


def _gpus(named: tuple[str, ...] | None, living: int) -> tuple[str, ...]:
    gpus = tuple(map(str, range(living))) if named is None else named
    if wrong := [gpu for gpu in gpus if not is_gpu_name(gpu)]:
        raise BadInput(f"--gpus: {wrong[0]!r} cannot be the name of a GPU")
    if not 1 <= len(set(gpus)) == len(gpus) <= living:
        raise BadInput(f"--gpus: {len(gpus)} names, {living} different living GPUs at the most")
    return gpus


def plan_json(made: Plan) -> Values:
    """What `--json` prints."""
    found, gpu = made.boost, made.rack.entry.rack.gpu
    return {
        "rack": made.rack.entry.name,
        "living_gpus": made.living,
        "need": made.need,
        "needed_w": asdict(found.needed_w),
        "extrapolated": found.needed_w.extrapolated,
        "granted": found.granted,
        "granted_at_high": found.granted_at_high,
        "limit": found.limit,
        "reason": found.reason,
        "nominal_w": gpu.nominal_w,
        "set_points_w": dict.fromkeys(made.gpus, found.set_point_w),
        "performance": found.performance,
        "lasts_s": found.lasts_s if math.isfinite(found.lasts_s) else None,
        "ramp_s": _ramp_s(made),
        "fall_back": None if found.granted else "ntp",
    }


def plan_text(made: Plan) -> str:
    found, nominal_w = made.boost, made.rack.entry.rack.gpu.nominal_w
    needed_w = found.needed_w
    extrapolated = " (extrapolated)" if needed_w.extrapolated else ""
    lasts = f"{found.lasts_s:.0f} s" if math.isfinite(found.lasts_s) else "without end"
    lines = [
        f"rack         {made.rack.entry.name}, {made.living} living GPUs",
        f"set here     GPU {_range(made.gpus)}",
        f"need         {made.need:.4f} of nominal performance, each",
        f"needs        {needed_w.value:.1f} W [{needed_w.low:.1f}, {needed_w.high:.1f}] each"
        f"{extrapolated}",
        f"set point    {found.set_point_w:.1f} W each, nominal {nominal_w:g} W",
        f"performance  {found.performance:.4f}, lasts {lasts}",
        f"boost        {_word(made)}: {found.reason}",
    ]
    if ramp := _ramp_s(made):
        lines.append(f"ramp         the supply takes {ramp:.2f} s; set points are raised at once")
    return "\n".join(lines)


def _range(gpus: tuple[str, ...]) -> str:
    return " ".join(gpus) if len(gpus) <= 4 else f"{gpus[0]} ... {gpus[-1]} ({len(gpus)})"


def _word(made: Plan) -> str:
    if not made.boost.granted:
        return "refused, fall back to ntp"
    if not made.needed:
        return "none"
    return "granted" if made.boost.granted_at_high else "perhaps, not by the upper edge of the band"


def _ramp_s(made: Plan) -> float | None:
    rack = made.rack.entry.rack
    if not (made.needed and rack.ramp_w_per_s):
        return None
    return ramp_s(rack, made.living * rack.gpu.nominal_w, made.living * made.boost.set_point_w)


def hold(made: Plan, wishes: BoostWishes, say: Say) -> None:
    """Until Ctrl-C; RunFailed with the reason where the boost ends before, or never begins."""
    if not made.boost.granted:
        raise RunFailed(f"no boost, fall back to ntp: {made.boost.reason}")
    if not made.needed:
        return
    gpu = made.rack.entry.rack.gpu
    choice = _limited(wishes.choice, gpu)
    choose(choice, say)  # a wrong option is told here, and not by another process
    names = Nvml().uuids(made.gpus) if choice.kind == "nvml" else made.gpus
    ask = Ask(
        "",
        tuple(
            Wish(name, made.boost.set_point_w, gpu.nominal_w, given if given != name else "")
            for name, given in zip(names, made.gpus, strict=True)
        ),
        wishes.lease_s,
        made.rack.seconds,
        made.rack.entry.cooling.throttle_c,
    )
    wishes = replace(wishes, choice=choice)
    record = wishes.record
    with reach(record, wishes) as client:
        try:
            why = _held(client, ask, wishes, say)
        except KeyboardInterrupt:
            client.release()
            if not _wait_restored(record, ask, wishes.restore_s, say):
                raise RunFailed("the boost was given back, and is not back yet") from None
            return
    if why == GONE:
        _restore_by_another(record, wishes)
    if not why.startswith(SILENT):  # who stands still restores nothing, and lets nobody else do it
        _wait_restored(record, ask, wishes.restore_s, say)
    raise RunFailed(f"the boost has ended, fall back to ntp: {why}")


def _held(client: LeaseClient, ask: Ask, wishes: BoostWishes, say: Say) -> str:
    """Why the boost ended, or never began."""
    within_s = 3 * wishes.choice.order_s + _START_S
    granted, reason = client.ask(ask, within_s, wishes.expects)
    last_s = time.monotonic() + wishes.stale_s
    while not granted and NO_NEWS in reason and time.monotonic() < last_s:
        time.sleep(_AGAIN_S)  # a supervisor that has just begun has seen nothing move yet
        granted, reason = client.ask(ask, within_s, wishes.expects)
    if not granted:
        return reason
    say(f"held: {reason}; Ctrl-C gives the boost back")
    while not (why := client.news(ask.lease_s / 4)):
        client.renew()
    return why


def reach(record: LeaseFile, wishes: BoostWishes) -> LeaseClient:
    """The supervisor of this record, which is started if there is none."""
    socket_path(record.path)  # a name that is too long is told before anything is started
    try:
        return LeaseClient(record.path, within_s=0.0)
    except RunFailed:
        pass
    try:
        record.path.parent.mkdir(parents=True, exist_ok=True)
        with open(record.path.with_name(record.path.name + ".log"), "wb") as log:
            process = _start(record.path, wishes.for_supervisor, log.fileno())
    except OSError as error:
        raise BadInput(f"--file {record.path}: {error.strerror}") from None
    deadline = time.monotonic() + _START_S + wishes.choice.order_s
    while True:
        try:
            return LeaseClient(record.path, within_s=0.2)
        except RunFailed:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RunFailed(_last_words(record.path)) from None


def _start(path: Path, options: tuple[str, ...], log: int) -> subprocess.Popen[bytes]:
    """In a session of its own: Ctrl-C and the end of a terminal are not meant for it."""
    command = [sys.executable, "-m", "nonuniform.power.supervisor", "--until-idle"]
    events = path.with_name(path.name + ".events")
    return subprocess.Popen(
        [*command, f"--file={path}", f"--events={events}", *options],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
    )


def _last_words(path: Path) -> str:
    log = path.with_name(path.name + ".log")
    said = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return f"the supervisor does not start: {said[-1] if said else f'see {log}'}"


def _restore_by_another(record: LeaseFile, wishes: BoostWishes) -> None:
    """Whatever supervisor comes next restores what the record says. One that is just dying may
    still take a connection, and still have the lock."""
    deadline = time.monotonic() + wishes.restore_s
    while record.read() and time.monotonic() < deadline:
        try:
            with reach(record, wishes) as client:
                while record.read() and time.monotonic() < deadline and not client.news(0.1):
                    pass
        except RunFailed:
            if time.monotonic() >= deadline:
                raise
            time.sleep(0.1)


def _wait_restored(record: LeaseFile, ask: Ask, within_s: float, say: Say) -> bool:
    """Those of this boost: others may hold theirs."""
    gpus = {wish.gpu for wish in ask.wishes}
    deadline = time.monotonic() + within_s
    while any(line.gpu in gpus for line in record.read()):
        if time.monotonic() > deadline:
            say(f"not all set points are back yet; {record.path} says which")
            return False
        time.sleep(0.1)
    say("all set points are back")
    return True
