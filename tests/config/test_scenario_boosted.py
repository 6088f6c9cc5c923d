"""How often a scenario calls for a boost, and what that costs: against a case done by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nonuniform.cluster.fleet import Fleet
from nonuniform.cluster.trace import make_trace
from nonuniform.errors import BadInput
from nonuniform.power.curve import watts_for
from nonuniform.power.rack_file import load_rack_file
from nonuniform.scenario.boosted import boosted, boosted_text, losses, spent_in

RACK = """
[domain]
rack = "gb200_nvl72"
survive = 2
[gpu]
nominal_w = 1000
"""
SCENARIO = """
[cluster]
gpus = 720
domain = 72
[job]
sequences_per_replica = 16
[failures]
rate_per_gpu_day = 1e-3
repair_h = 48
[run]
days = 30
seeds = 3
"""
FLEET = Fleet(288, 72, 8)


def rack_of(folder: Path) -> Path:
    path = folder / "rack.toml"
    path.write_text(RACK)
    return path


def test_one_failure_is_one_boost(tmp_path: Path) -> None:
    """GPU 80 is down for 10 of 100 hours; three GPUs of the last domain, too many, for 5."""
    trace = make_trace(100.0, [20.0, 50.0], [30.0, 55.0], [80, 216], [1, 3], [0, 0], ("x",))
    times_s, lost = losses(trace, FLEET)
    assert times_s.tolist() == [0, 20 * 3600, 30 * 3600, 50 * 3600, 55 * 3600]
    assert np.array_equal(lost[:, 1], [0, 1, 0, 0, 0])
    assert np.array_equal(lost[:, 3], [0, 0, 0, 3, 0])
    rack = load_rack_file(rack_of(tmp_path))
    spent = spent_in(rack, FLEET, trace)
    need = 72 / 71
    assert rack.need[1] == pytest.approx(need)
    assert spent.share_ever_boosted == 1 / 4
    assert spent.share_of_time_boosted == pytest.approx(10 / 400)
    assert spent.refused_domain_s == pytest.approx(5 * 3600)
    assert spent.saved_share == pytest.approx((1 - 1 / need) * 10 / 400)
    watts = watts_for(rack.entry.rack.gpu, need).value
    assert spent.energy_j == pytest.approx(71 * (watts - 1000) * 36_000)


def test_over_the_seeds_of_a_scenario(tmp_path: Path) -> None:
    path = tmp_path / "scenario.toml"
    path.write_text(SCENARIO)
    values = boosted(rack_of(tmp_path), path)
    assert (values["seeds"], values["days"], values["domains"]) == (3, 30, 10)
    ever = values["share_ever_boosted"]
    assert 0 < ever["low"] <= ever["mean"] <= ever["high"] <= 1
    assert values["energy_mwh"]["low"] < values["energy_mwh"]["mean"] < values["energy_mwh"]["high"]
    assert values["energy_times_usual"] > 1, "above the nominal set point power buys less"
    text = boosted_text(values)
    assert "in 30 days of 10 domains, 3 histories" in text
    assert "extrapolated" in text


def test_another_size_of_domain_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "scenario.toml"
    path.write_text(SCENARIO.replace("domain = 72", "domain = 36"))
    with pytest.raises(BadInput, match=r"domain = 36, but the rack of .* has domains of 72 GPUs"):
        boosted(rack_of(tmp_path), path)
