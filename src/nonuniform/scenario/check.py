"""Where two keys of a scenario disagree.

In: sections that are right each by itself. Out: one line per problem, without the file's name, that
names section, key and numbers. What the values of `cluster` and `placement` refuse by themselves is
left to them. Knows nothing of files, nor of what the policies do.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import get_args

from nonuniform.placement.policy import Kind
from nonuniform.scenario.sections import (
    CauseSection,
    FailuresSection,
    KindSection,
    RepairSection,
    Scenario,
)

KINDS: tuple[str, ...] = get_args(Kind)
RATES = ("rate_per_gpu_day", "rate_per_node_day", "rate_per_domain_day", "rate_per_1000_node_days")

BY_DEGREE = ("batch_at", "speed_at", "speedup_at")

_NTP = ("ntp", "ntp-pw")
# A key that would be read and then do nothing is refused.
_ONLY_FOR: dict[str, tuple[str, ...]] = {
    "degrees": _NTP,
    "min_degree": _NTP,
    "one_degree": _NTP,
    "batch_at": _NTP,
    "speed_at": _NTP,
    "max_speedup": ("ntp-pw",),
    "speedup_at": ("ntp-pw",),
    "on_failure": ("uniform",),
}


def problems(scenario: Scenario) -> list[str]:
    return [
        *_failures(scenario.failures),
        *_beside_log(scenario),
        *_policies(scenario),
    ]


# ------------------------------------------------------------------------------------- failures


def _failures(failures: FailuresSection) -> Iterator[str]:
    rates = [name for name in RATES if getattr(failures, name) is not None]
    models = [*rates, *(["catalog"] if failures.catalog else [])]
    if failures.log is not None:
        models += ["cause"] if failures.cause else []
        if models:
            yield f"[failures] log: cannot be together with {models[0]}; choose one"
    elif len(models) > 1:
        yield f"[failures] {models[1]}: cannot be together with {models[0]}; choose one"
    elif not models and not failures.cause:
        yield (
            f"[failures]: does not say how often something fails; give {RATES[0]} (0: never), "
            "catalog, [[failures.cause]] or [failures.log]"
        )
    if failures.log is None:
        yield from _one_rate(failures, bool(rates))
    for position, cause in enumerate(failures.cause):
        yield from _cause(cause, f"[failures.cause[{position}]]")


_DRAWN = ("repair_h", "repair", "hardware", "software", "blast", "blast_gpus", "lemons", "bursts")


def _beside_log(scenario: Scenario) -> Iterator[str]:
    """Keys about drawn failures that a log leaves without a meaning."""
    failures, run = scenario.failures, scenario.run
    if failures.log is None:
        return
    unused = [name for name in _DRAWN if getattr(failures, name) is not None]
    unused += ["steady_start"] if failures.steady_start else []
    unused += ["rate_factor"] if failures.rate_factor != 1 else []
    for name in unused:
        yield f"[failures] {name}: has no meaning beside log"
    if run.days is not None:
        yield "[run] days: has no meaning beside [failures.log], whose window says how long"
    if failures.log.nodes.order != "random" and (run.seeds or 1) > 1:
        yield (
            '[run] seeds: a log happened once, unless [failures.log] nodes.order = "random" '
            f"scatters it anew, got {run.seeds}"
        )


def _one_rate(failures: FailuresSection, has_rate: bool) -> Iterator[str]:
    """The keys that say what one rate is made of."""
    shares = {"hardware": failures.hardware, "software": failures.software}
    given = {name: kind for name, kind in shares.items() if kind is not None}
    repairs = [name for name in ("repair_h", "repair") if getattr(failures, name) is not None]
    if not has_rate:
        for name in (*given, *repairs, *_blast_keys(failures)):
            yield f"[failures] {name}: needs one of {', '.join(RATES)} beside it"
        return
    yield from _blast(failures, "[failures]")
    if given and repairs:
        yield f"[failures] {repairs[0]}: cannot be together with {next(iter(given))}; choose one"
    elif not given:
        yield from _repair(failures, "[failures]")
    total = math.fsum(kind.share for kind in given.values())
    if given and not math.isclose(total, 1):
        shown = " + ".join(f"{name}.share = {kind.share:g}" for name, kind in given.items())
        yield f"[failures] shares: must add up to 1, got {shown}"
    for name, kind in given.items():
        yield from _repair(kind, f"[failures.{name}]")


def _cause(cause: CauseSection, place: str) -> Iterator[str]:
    rates = [name for name in RATES if getattr(cause, name) is not None]
    if len(rates) > 1:
        yield f"{place} {rates[1]}: cannot be together with {rates[0]}; choose one"
    elif not rates:
        yield f"{place}: needs one of {', '.join(RATES)}"
    yield from _blast(cause, place)
    yield from _repair(cause, place)


def _blast_keys(section: FailuresSection | CauseSection) -> list[str]:
    return [name for name in ("blast", "blast_gpus") if getattr(section, name) is not None]


def _blast(section: FailuresSection | CauseSection, place: str) -> Iterator[str]:
    if len(_blast_keys(section)) > 1:
        yield f"{place} blast_gpus: cannot be together with blast; choose one"


def _repair(section: FailuresSection | CauseSection | KindSection, place: str) -> Iterator[str]:
    if section.repair is None:
        if section.repair_h is None:
            yield f"{place} repair_h: is missing"
    elif section.repair_h is not None:
        yield f"{place} repair: cannot be together with repair_h; choose one"
    else:
        table = f"{place[:-1]}.repair]"
        yield from _repair_keys(section.repair, table)


# For each kind the sets of keys that say it in full.
_REPAIR_KEYS: dict[str, tuple[frozenset[str], ...]] = {
    "fixed": (frozenset({"hours"}),),
    "lognormal": (
        frozenset({"median_h", "sigma"}),
        frozenset({"mean_h", "sigma"}),
        frozenset({"mean_h", "median_h"}),
    ),
    "weibull": (frozenset({"scale_h", "shape"}), frozenset({"mean_h", "shape"})),
    "empirical": (frozenset({"samples_h"}),),
}


def _repair_keys(repair: RepairSection, place: str) -> Iterator[str]:
    names = ("hours", "median_h", "mean_h", "sigma", "scale_h", "shape", "samples_h")
    given = frozenset(name for name in names if getattr(repair, name) not in (None, ()))
    wanted = _REPAIR_KEYS[repair.kind]
    if given not in wanted:
        shown = " or ".join(", ".join(sorted(keys)) for keys in wanted)
        got = ", ".join(sorted(given)) or "nothing"
        yield f"{place} kind: {repair.kind} needs {shown}, got {got}"


# ------------------------------------------------------------------------------------- policies


def _policies(scenario: Scenario) -> Iterator[str]:
    for name, policy in scenario.policies.items():
        place = f"[policies.{name}]"
        kind = policy.kind or name
        if kind not in KINDS:
            yield f"{place} kind: is missing, must be one of {', '.join(KINDS)}"
            continue
        for key, kinds in _ONLY_FOR.items():
            if getattr(policy, key) is not None and kind not in kinds:
                yield f"{place} {key}: has a meaning only for {' and '.join(kinds)}, not for {kind}"
        for key in BY_DEGREE:
            wrong = [degree for degree in getattr(policy, key) or {} if not degree.isdecimal()]
            if wrong:
                yield f'{place} {key}: keys must be degrees, such as "30", got "{wrong[0]}"'
