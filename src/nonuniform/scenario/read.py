"""SCENARIO.toml and the keys of the command line, as a `Scenario`.

In: a file, and values that replace some of its keys. Out: a frozen value whose numbers agree with
each other, and with what `cluster` and `placement` can do. Whatever is wrong is one line. DESIGN
"Outside contract". Knows nothing of how a scenario is run.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from pydantic import TypeAdapter, ValidationError

from nonuniform.config_errors import describe
from nonuniform.errors import BadInput
from nonuniform.placement.policy import Kind
from nonuniform.scenario.build import check_fit, in_section
from nonuniform.scenario.check import KINDS, problems
from nonuniform.scenario.keys import with_keys
from nonuniform.scenario.sections import PolicySection, Scenario
from nonuniform.toml_file import read_toml

_SCENARIO = TypeAdapter(Scenario)


def load_scenario(path: Path, overrides: Mapping[str, object] | None = None) -> Scenario:
    """Read and check a SCENARIO file. `overrides` replaces keys: {"run.seeds": 20}."""
    overrides = overrides or {}
    return check_scenario(with_keys(read_toml(path), overrides), path, overrides.keys())


def check_scenario(
    values: Mapping[str, Any], path: Path, overridden: Collection[str] = ()
) -> Scenario:
    """The same from the file's values; `overridden` are the keys that it did not give."""
    try:
        # Through JSON, since only there does pydantic's strict mode build dataclasses from tables.
        scenario = _SCENARIO.validate_json(json.dumps(values, default=str), strict=True)
    except ValidationError as error:
        raise BadInput(describe(str(path), error, Scenario, overridden)) from None
    except BadInput as error:  # how a log is to be read contradicts itself
        raise BadInput(f"{path}: {in_section(error, 'log:', '[failures.log]')}") from None
    found = problems(scenario)
    if found:
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        raise BadInput(f"{path}: {found[0]}{more}")
    scenario = _with_defaults(scenario, path)
    try:
        check_fit(scenario)
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from None
    return scenario


def _with_defaults(scenario: Scenario, path: Path) -> Scenario:
    given = scenario.policies or {kind: PolicySection() for kind in KINDS}
    policies = {
        # That the name is a kind where no kind is given has been checked.
        name: policy if policy.kind else replace(policy, kind=cast(Kind, name))
        for name, policy in given.items()
    }
    failures, log = scenario.failures, scenario.failures.log
    if log is not None:
        where = _absolute(path, log.path, "[failures.log] path")
        failures = replace(failures, log=replace(log, path=where))
    hardware = scenario.hardware
    if hardware.perf is not None:
        perf = _absolute(path, hardware.perf, "[hardware] perf")
        hardware = replace(hardware, perf=perf)
    if hardware.rack is not None and hardware.rack.endswith(".toml"):
        hardware = replace(hardware, rack=_absolute(path, hardware.rack, "[hardware] rack"))
    return replace(scenario, policies=policies, failures=failures, hardware=hardware)


def _absolute(path: Path, other: str, key: str) -> str:
    try:
        return str((path.parent / other).resolve())
    except (OSError, RuntimeError, ValueError) as error:  # a loop of links, a name too long
        reason = str(error).replace("\n", " ")
        raise BadInput(f"{path}: {key}: cannot be followed: {reason}") from None
