"""A scenario with step times of `nonuniform perf` and the power of a rack."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nonuniform.cli import main
from nonuniform.errors import BadInput
from nonuniform.perf.config_file import load_config
from nonuniform.perf.nonuniform import hurt_slowdown
from nonuniform.power.ceiling import max_performance
from nonuniform.power.rack_file import load_rack_file
from nonuniform.scenario.build import options_of
from nonuniform.scenario.explain import explain
from nonuniform.scenario.hardware import speedup_bands
from nonuniform.scenario.read import load_scenario
from nonuniform.scenario.sections import Scenario
from nonuniform.toml_file import read_toml

PERF = """
[hardware]
gpu = "gb200_nvl72"
gpus = 256
[model]
name = "llama3_70b"
[batch]
sequences = 64
length = 8192
[parallel]
tensor = 8
pipeline = 4
data = 8
"""
RACK = """
[domain]
rack = "dgx_b200"
survive = 1
[rack]
other_w = 5000
feed_w = 12000
"""
CAPPED = RACK + "[gpu]\nnominal_w = 800\n"
SCENARIO = """
[cluster]
gpus = 1024
domain = 8
[job]
stages = 4
sequences_per_replica = 8
[failures]
rate_per_gpu_day = 1e-3
repair_h = 48
[hardware]
perf = "perf.toml"
rack = "rack.toml"
[policies.dp-drop]
[policies.ntp]
[policies.ntp-pw]
"""


def load(folder: Path, text: str = SCENARIO, perf: str = PERF, rack: str = RACK) -> Scenario:
    (folder / "perf.toml").write_text(perf)
    (folder / "rack.toml").write_text(rack)
    path = folder / "scenario.toml"
    path.write_text(text)
    return load_scenario(path)


def test_a_replica_is_as_slow_as_its_step_takes(tmp_path: Path) -> None:
    scenario = load(tmp_path)
    config = load_config(tmp_path / "perf.toml")
    found = dict(options_of("ntp", scenario).speed_at)
    assert sorted(found) == list(range(1, 8))
    slowdown = hurt_slowdown(config.machine, config.work, config.parallel, 7, config.cut)
    assert found[7] == pytest.approx(1 / slowdown)
    assert found[7] < 0.95, "64 heads on 7 ranks leave one with ten"
    assert list(found.values()) == sorted(found.values())
    assert options_of("dp-drop", scenario).speed_at == ()


def test_boost_is_what_the_rack_allows(tmp_path: Path) -> None:
    scenario = load(tmp_path)
    entry = load_rack_file(tmp_path / "rack.toml").entry
    found = dict(options_of("ntp-pw", scenario).speedup_at)
    assert found[7] == max(1.0, max_performance(entry.rack, 1, entry.cooling).value)
    assert options_of("ntp", scenario).speedup_at == ()


def test_what_a_policy_says_itself_stands(tmp_path: Path) -> None:
    scenario = load(tmp_path, SCENARIO + 'max_speedup = 1.2\nspeed_at = { "7" = 0.9 }\n')
    options = options_of("ntp-pw", scenario)
    assert (options.speedup_at, options.max_speedup) == ((), 1.2)
    assert options.speed_at == ((7, 0.9),)


def test_it_is_told(tmp_path: Path) -> None:
    scenario = load(tmp_path)
    facts = explain(scenario, read_toml(tmp_path / "scenario.toml"))
    told = [fact["text"] for fact in facts if fact["about"] == "policies"]
    assert any(text.startswith("ntp: a replica is 0.") and "at 7" in text for text in told)
    assert any(text.startswith("ntp-pw: power makes GPUs 1.") for text in told)


def test_a_boost_that_was_never_measured_is_told_with_its_band(tmp_path: Path) -> None:
    scenario = load(tmp_path, rack=CAPPED)
    band = dict(speedup_bands(str(tmp_path / "rack.toml"), 8))[7]
    assert band.low < band.value < band.high
    facts = explain(scenario, read_toml(tmp_path / "scenario.toml"))
    (fact,) = [fact for fact in facts if "extrapolated" in fact["text"]]
    assert fact["text"].startswith("ntp-pw: extrapolated: no GPU was measured above")
    assert f"{band.value:.3f} [{band.low:.3f}, {band.high:.3f}] at 7" in fact["text"]
    assert fact["assumed"]


def test_the_summary_of_a_simulation_tells_the_band(tmp_path: Path) -> None:
    load(tmp_path, SCENARIO + "[run]\ndays = 5\nseeds = 1\n", rack=CAPPED)
    out = tmp_path / "out"
    with pytest.raises(SystemExit) as caught:
        main(["simulate", str(tmp_path / "scenario.toml"), "--out", str(out), "--quiet"])
    assert caught.value.code == 0
    understood = json.loads((out / "summary.json").read_text())["understood"]
    band = dict(speedup_bands(str(tmp_path / "rack.toml"), 8))[7]
    shown = f"{band.value:.3f} [{band.low:.3f}, {band.high:.3f}] at 7"
    assert [fact for fact in understood if "extrapolated" in fact["text"] and shown in fact["text"]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (SCENARIO.replace("stages = 4", "stages = 2"), "[parallel] pipeline = 4, but [job] stages"),
        (SCENARIO.replace("domain = 8\n", "domain = 16\n"), "tensor = 8, but [job] degree = 16"),
        (SCENARIO.replace("perf.toml", "other.toml"), "other.toml"),
        (SCENARIO.replace("rack.toml", "dgx_b100"), "dgx_b100"),
        (SCENARIO.replace('rack = "rack.toml"', "rack = 3"), "[hardware] rack"),
        (SCENARIO + "speedup_at = { seven = 1.1 }", "speedup_at: keys must be degrees"),
        (
            SCENARIO.replace("[policies.ntp]", '[policies.ntp]\nspeedup_at = { "7" = 1.1 }'),
            "speedup_at: has a meaning only for ntp-pw",
        ),
    ],
)
def test_what_does_not_fit_is_one_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(BadInput) as refused:
        load(tmp_path, text)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)
    assert str(refused.value).startswith(f"{tmp_path / 'scenario.toml'}: ")
