"""All checks of this machine, in the order in which a person wants to read them.

The part that torch must answer is bounded in time and runs in processes of its own: a hanging
round trip is a finding, not a hanging doctor.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from nonuniform.doctor import judge, measure
from nonuniform.doctor.verdict import Check

if TYPE_CHECKING:
    from nonuniform.train.probe import RoundTrip, TorchFacts

CORE_PACKAGES = ("numpy", "scipy", "pydantic", "typer", "rich")


def examine(folder: Path) -> tuple[Check, ...]:
    """Check this machine; `folder` is where runs would write."""
    return tuple(_checks(folder))


def _checks(folder: Path) -> Iterator[Check]:
    yield judge.judge_platform(platform.system(), platform.python_version())
    yield judge.judge_packages(measure.package_versions(CORE_PACKAGES))
    version = measure.package_version("torch")
    facts, problem = (None, "") if version is None else _ask_torch()
    yield judge.judge_torch(version, problem)
    yield judge.judge_picture(measure.package_version("matplotlib"))
    yield judge.judge_cores(measure.usable_cores())
    available_gib = measure.available_memory_gib()
    if available_gib is not None:
        yield judge.judge_memory(available_gib)
    gpus = facts.gpus if facts else ()
    yield judge.judge_gpus(measure.gpu_device_files(), gpus)
    for trip in _round_trips(facts):
        yield judge.judge_round_trip(trip.backend, trip.seconds, trip.problem)
    yield judge.judge_open_files(measure.open_file_limit())
    free, problem = measure.loopback_ports(judge.PORTS_PROBED)
    yield judge.judge_ports(free, problem=problem)
    yield judge.judge_disk(measure.free_disk_gib(folder), str(folder))
    yield judge.judge_shared_memory(measure.shared_memory_gib(), bool(gpus))


def _ask_torch() -> tuple[TorchFacts | None, str]:
    try:
        from nonuniform.train import probe

        return probe.torch_facts(), ""
    except Exception as error:  # a broken torch fails in ways of its own, and that is the finding
        return None, (str(error).splitlines() or [type(error).__name__])[0]


def _round_trips(facts: TorchFacts | None) -> Iterator[RoundTrip]:
    if facts is None:
        return
    from nonuniform.train import probe

    yield probe.round_trip("gloo", members=2)
    if facts.gpus:
        yield probe.round_trip("nccl", members=min(2, len(facts.gpus)))
