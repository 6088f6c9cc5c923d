"""How fast a hurt replica is, and how far it can be boosted, from models of time and power.

In: the options of a policy, the job, `[hardware]`. Out: the options with what the models say where
the policy says nothing itself. DESIGN "Two arrows": placement -> step time -> watts -> outcome.
Knows neither how a step time nor how a power budget comes about.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from nonuniform.errors import BadInput
from nonuniform.perf.config_file import load_config
from nonuniform.perf.nonuniform import hurt_slowdown
from nonuniform.placement.job import TrainingJob
from nonuniform.placement.policy import PolicyOptions
from nonuniform.power.catalog import load_rack
from nonuniform.power.ceiling import max_performance
from nonuniform.power.curve import Estimate
from nonuniform.power.rack_file import load_rack_file
from nonuniform.scenario.sections import HardwareSection

ByDegree = tuple[tuple[int, float], ...]
Bands = tuple[tuple[int, Estimate], ...]


def on_hardware(
    options: PolicyOptions, job: TrainingJob, hardware: HardwareSection, given: Collection[str]
) -> PolicyOptions:
    """`given`: the keys that the policy has of its own."""
    if hardware.perf is not None and options.reduces and "speed_at" not in given:
        options = replace(options, speed_at=speeds(hardware.perf, job.degree, job.stages))
    if hardware.rack is not None and boost_bands(options, job, hardware, given):
        options = replace(options, speedup_at=speedups(hardware.rack, job.degree))
    return options


def boost_bands(
    options: PolicyOptions, job: TrainingJob, hardware: HardwareSection, given: Collection[str]
) -> Bands:
    """What the rack lets GPUs reach, by degree; () where it is not asked."""
    own = {"speedup_at", "max_speedup"}.intersection(given)
    if hardware.rack is None or not options.boosts or own:
        return ()
    return speedup_bands(hardware.rack, job.degree)


@lru_cache(maxsize=64)
def speeds(path: str, degree: int, stages: int) -> ByDegree:
    """By degree, of a replica with one such stage against a whole one. Where whole heads make a
    lower degree no slower than a higher one, they are equally fast."""
    config = load_config(Path(path))
    p = config.parallel
    for key, here, wanted in (("tensor", p.tensor, degree), ("pipeline", p.pipeline, stages)):
        if here != wanted:
            name = "degree" if key == "tensor" else "stages"
            raise BadInput(
                f"hardware: perf: {path} has [parallel] {key} = {here}, but [job] {name} = {wanted}"
            )
    found: list[tuple[int, float]] = []
    most = 1.0
    for reduced in range(degree - 1, 0, -1):
        slowdown = hurt_slowdown(config.machine, config.work, p, reduced, config.cut)
        most = min(most, 1 / slowdown)
        found.append((reduced, most))
    return tuple(reversed(found))


def speedups(rack: str, degree: int) -> ByDegree:
    """The middle of the band, and never below the nominal set point."""
    return tuple((at, max(1.0, band.value)) for at, band in speedup_bands(rack, degree))


@lru_cache(maxsize=64)
def speedup_bands(rack: str, degree: int) -> Bands:
    """By degree, of the GPUs of a domain that has lost the others. GPUs that a domain holds beyond
    the degree are left out: what they do not draw is not counted on."""
    is_file = rack.endswith(".toml")
    entry = load_rack_file(Path(rack)).entry if is_file else load_rack(rack)
    if degree > entry.rack.domain_gpus:
        raise BadInput(
            f"hardware: rack: {rack} has domains of {entry.rack.domain_gpus} GPUs, fewer than "
            f"[job] degree = {degree}"
        )
    return tuple(
        (reduced, max_performance(entry.rack, degree - reduced, entry.cooling))
        for reduced in range(1, degree)
    )
