"""RACK.toml, the answer of `nonuniform rack`, and the sheet."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nonuniform.errors import BadInput
from nonuniform.power.policy import boost
from nonuniform.power.rack_answer import answer
from nonuniform.power.rack_command import rack
from nonuniform.power.rack_file import load_rack_file
from nonuniform.power.show import rack_text, spec_sheet
from nonuniform.power.thermal import steady

EXAMPLE = Path(__file__).parents[2] / "examples" / "rack.toml"
HUGE = 10**400
DOMAIN = '[domain]\nrack = "gb200_nvl72"\nsurvive = 4\n'
CAPPED = DOMAIN + "[gpu]\nnominal_w = 1000\n"


def ask(tmp_path: Path, text: str) -> dict[str, Any]:
    path = tmp_path / "rack.toml"
    path.write_text(text)
    return rack(path)[0]


def test_the_example_answers_for_each_loss(tmp_path: Path) -> None:
    values, text = rack(EXAMPLE, tmp_path / "sheet.md")
    json.dumps(values, allow_nan=False)
    assert [row["failed"] for row in values["rows"]] == [0, 1, 2, 3, 4]
    assert "extrapolated" in text
    assert len(text.splitlines()) > 12
    sheet = (tmp_path / "sheet.md").read_text()
    for word in ("headroom", "W/s", "shelves", "flow", "sensor", "period", "extrapolated"):
        assert word in sheet


def test_what_is_needed_is_enough_and_not_too_much() -> None:
    """The policy grants the hardest row with the flow that is asked for, and not with less."""
    file = load_rack_file(EXAMPLE)
    needed = answer(file)["needed"]
    hurt, cooling = file.entry.rack, file.entry.cooling
    for share, granted in ((1.0 + 1e-6, True), (0.98, False)):
        there = replace(cooling, flow_l_per_min=needed["flow_l_per_min_gpu"] * share)
        state = steady(there, hurt.gpu.nominal_w)
        assert boost(file.need[4], hurt, 4, state, 1e6).granted is granted
    for extra, granted in ((1e-3, True), (-1.0, False)):
        fed = replace(hurt, feed_w=hurt.nominal_w + needed["headroom_w"] + extra)
        state = steady(cooling, hurt.gpu.nominal_w)
        assert boost(file.need[4], fed, 4, state, 1e6).granted is granted


def test_the_shelves_that_are_needed_carry_and_one_less_does_not() -> None:
    """Shelves of 27 kW: four carry the nominal rack, but not the boosted one."""
    file = load_rack_file(EXAMPLE)
    hurt = replace(file.entry.rack, shelf_w=27_000.0)
    small = replace(file, entry=replace(file.entry, rack=hurt))
    needed = answer(small)["needed"]["shelves"]
    state = steady(file.entry.cooling, hurt.gpu.nominal_w)
    for shelves, granted in ((needed, True), (needed - 1, False)):
        found = boost(file.need[4], replace(hurt, shelves=shelves), 4, state, 1e6)
        assert found.granted is granted
        assert found.limit == ("gpu ceiling" if granted else "rack budget")


def test_more_losses_never_need_less(tmp_path: Path) -> None:
    rows = ask(tmp_path, CAPPED.replace("4", "12"))["rows"]
    for key in ("need", "headroom_w", "flow_l_per_min_gpu"):
        column = [row[key] for row in rows]
        assert column == sorted(column), key
    granted = [row["granted"] for row in rows]
    assert granted == sorted(granted, reverse=True)


def test_a_gpu_at_its_ceiling_binds_first(tmp_path: Path) -> None:
    values = ask(tmp_path, DOMAIN)
    first = values["binds_first"]
    assert (first["limit"], first["failed"], first["reached"]) == ("gpu ceiling", 1, True)
    assert values["needed"]["losses"] == 0
    assert values["rows"][1]["batch_share"] == pytest.approx(71 / 72)


def test_a_warm_inlet_binds_and_the_time_is_told(tmp_path: Path) -> None:
    values = ask(tmp_path, CAPPED + "[cooling]\ninlet_c = 50\n[need]\nseconds = 2\n")
    last = values["rows"][-1]
    assert last["lasts_s"] is not None
    assert 0 < values["needed"]["lasts_s"] < 100
    lasting = ask(tmp_path, CAPPED + "[cooling]\ninlet_c = 50\n")
    assert lasting["binds_first"]["limit"] == "temperature"


def test_a_table_of_need_replaces_the_ratio(tmp_path: Path) -> None:
    values = ask(tmp_path, CAPPED + "[need]\nperformance = [1.0, 1.01, 1.02, 1.03]\n")
    assert [row["need"] for row in values["rows"]] == [1.0, 1.0, 1.01, 1.02, 1.03]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "[domain] is missing"),
        ("[domian]\n", "unknown section [domian]"),
        (DOMAIN.replace("4", "72"), "survive = 72: must be from 0 to 71"),
        (DOMAIN.replace("gb200_nvl72", "nvl"), "unknown rack 'nvl'"),
        (DOMAIN + "[gpu]\nnominal = 1\n", "unknown key nominal, did you mean nominal_w?"),
        (DOMAIN + "[gpu]\nnominal_w = 1300\n", "[gpu]: nominal_w = 1300 is above"),
        (DOMAIN + "[gpu]\nnominal_w = '1'\n", "must be a finite number"),
        (DOMAIN + "[rack]\nshelves = 2.5\n", "shelves = 2.5: must be a whole number"),
        (DOMAIN + "[rack]\ndomain_gpus = 36\n", "needs other_w, feed_w of its own"),
        (DOMAIN + "[cooling]\ninlet_c = 90\n", "inlet_c = 90: must be below throttle_c = 87"),
        (DOMAIN + "[cooling]\nflow_l_per_min = 1e-300\n", "must be from 1e-12 to 1e+12"),
        (DOMAIN + "[cooling]\nplate_j_per_c = 1e300\n", "must be from 1e-12 to 1e+12"),
        (DOMAIN + "[need]\nperformance = [1.1]\n", "has 1 numbers, [domain] survive = 4"),
        (DOMAIN + "[need]\nperformance = [1.1, 1, 1, 1]\n", "must not fall"),
        (DOMAIN + "[need]\nperformance = [1.1, 1.2, 1.3, 1e300]\n", "has 1e+300 after 1.3"),
        (DOMAIN + f"[need]\nperformance = [1.1, 1.2, 1.3, {HUGE}]\n", "has inf after 1.3"),
        (DOMAIN + "[need]\nseconds = 0\n", "seconds = 0: must be finite seconds above 0"),
        (DOMAIN + f"[need]\nseconds = {HUGE}\n", "seconds = inf: must be finite seconds above 0"),
        (DOMAIN + "[need]\nreach_s = inf\n", "reach_s = inf: must be finite seconds above 0"),
        (DOMAIN + "[need]\nreach_s = true\n", "reach_s = True: must be finite seconds above 0"),
        (DOMAIN + f"[rack]\nshelves = {HUGE}\n", "[rack]: shelves: must be 1,000,000 at most"),
        (DOMAIN + "[rack]\nreach_s = 3\n", "[rack]: unknown key reach_s"),
    ],
)
def test_files_that_cannot_be(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "rack.toml"
    path.write_text(text)
    with pytest.raises(BadInput) as error:
        rack(path)
    assert told in str(error.value)
    assert "\n" not in str(error.value)


def test_a_sheet_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"--spec .*nowhere"):
        rack(EXAMPLE, tmp_path / "nowhere" / "sheet.md")


SMALL_SHELVES = CAPPED + "[rack]\nshelves = 6\nshelf_w = 28000\n"


@pytest.mark.parametrize("survive", [4, 8])
def test_a_lost_shelf_is_judged_where_it_is_worst(tmp_path: Path, survive: int) -> None:
    """With 4 lost the boost is at 1192 W; with 5 it is refused, and the set point is lower."""
    text = SMALL_SHELVES.replace("survive = 4", f"survive = {survive}")
    values = ask(tmp_path, text + "overload_s = 0.5\n")
    loss = values["shelf_loss"]
    assert (loss["failed"], loss["needed"], loss["rack_down"]) == (4, True, False)
    assert loss["from_w"] == pytest.approx(1192.2, abs=0.1)
    assert 68 * loss["set_point_w"] == pytest.approx(4 * 28_000 - 33_600 - 4 * 343)
    assert loss["w_per_s"] == pytest.approx(68 * (loss["from_w"] - loss["set_point_w"]) / 0.5)


def test_the_sheet_asks_for_the_ramp_of_lost_shelves_too(tmp_path: Path) -> None:
    values = ask(tmp_path, SMALL_SHELVES + "overload_s = 0.5\n")
    needed = values["needed"]
    assert needed["ramp_w_per_s"] == pytest.approx(68 * 192.2 / 10, rel=1e-3)
    assert needed["ramp_high_w_per_s"] == pytest.approx(68 * 200 / 10)
    assert needed["ramp_down_w_per_s"] == values["shelf_loss"]["w_per_s"]
    sheet = spec_sheet(values)
    assert "| ramp, up | 1307 W/s | 1360 W/s |" in sheet
    assert "| ramp, down | 8092 W/s | 8092 W/s |" in sheet
    assert "within 0.5 s, sooner than a supervisor that looks once a second" in sheet
    assert "| ramp, down | at once | at once |" in spec_sheet(ask(tmp_path, SMALL_SHELVES))
    slow = spec_sheet(ask(tmp_path, SMALL_SHELVES + "overload_s = 5\n"))
    assert "within 5 s\n" in slow


def test_shelves_that_leave_less_than_idle_take_the_rack_down(tmp_path: Path) -> None:
    values = ask(tmp_path, CAPPED + "[rack]\nshelves = 2\nshelf_w = 120000\n")
    assert values["shelf_loss"]["rack_down"]
    assert "2 shelves lost at 1192 W: the rack goes down, 0 W per GPU" in rack_text(values)


def test_a_ramp_that_is_too_slow_binds_first(tmp_path: Path) -> None:
    values = ask(tmp_path, CAPPED + "[rack]\nramp_w_per_s = 100\n[need]\nreach_s = 10\n")
    first = values["binds_first"]
    assert (first["limit"], first["failed"], first["reached"]) == ("ramp", 1, True)
    assert first["set_point_w"] == pytest.approx(1000 + 100 * 10 / 71)
    assert values["needed"]["ramp_s"] == pytest.approx(130.7, abs=0.1)


def test_a_nominal_that_is_too_hot_is_told_and_still_has_a_set_point(tmp_path: Path) -> None:
    near, hot = (
        ask(tmp_path, f"{CAPPED}[cooling]\ninlet_c = {inlet_c}\ninlet_step_c = 3\n")
        for inlet_c in (53.9, 54.1)
    )
    assert near["boost_ceiling"]["set_point_w"] == pytest.approx(1001.8, abs=0.1)
    assert hot["boost_ceiling"]["set_point_w"] == pytest.approx(995.7, abs=0.1)
    assert "nominal is already too hot" not in rack_text(near)
    for said in (rack_text(hot), spec_sheet(hot)):
        assert "nominal is already too hot" in said
        assert "995.7 W end below" in said


def test_the_sheet_says_that_no_flow_is_enough(tmp_path: Path) -> None:
    sheet = spec_sheet(ask(tmp_path, CAPPED + "[cooling]\ninlet_c = 86\n"))
    assert "| flow of the domain, for good | no flow is enough | no flow is enough |" in sheet
    assert "not known" not in sheet


def test_the_sheet_has_feed_row_ceiling_inlet_and_time(tmp_path: Path) -> None:
    row = "[rack]\nrow_budget_w = 430000\nracks_in_row = 4\nboosted_racks = 2\n"
    values = ask(tmp_path, CAPPED + row + "[cooling]\ninlet_step_c = 3\n[need]\nseconds = 600\n")
    sheet, needed = spec_sheet(values), values["needed"]
    assert needed["row"]["needed_w"] == pytest.approx(4 * 105_600 + 2 * needed["headroom_w"])
    assert "| row of 4 racks, 2 of them boosted, of 430.00 kW | 443.29 kW | 444.92 kW |" in sheet
    assert "| whole rack, from a feed of 120.00 kW | 116.05 kW | 116.86 kW |" in sheet
    assert "| freed by 4 failed GPUs | 2.63 kW |" in sheet
    assert "| performance there, nominal is 1 (extrapolated) | 1.0313 | 1.0233 |" in sheet
    assert "must last 600 s and be in place within 10 s" in sheet
    assert "which may rise by 3 degC before anybody reads it" in sheet
    assert "| a boost lasts | for good | for good |" in sheet
    assert "row of" not in spec_sheet(ask(tmp_path, CAPPED))


def test_every_figure_above_nominal_is_marked(tmp_path: Path) -> None:
    """Also where nothing is asked for: the highest performance is never a measured one."""
    values = ask(tmp_path, CAPPED.replace("survive = 4", "survive = 0"))
    assert values["note"]
    (row,) = [line for line in rack_text(values).splitlines() if line.startswith("     0")]
    assert row.endswith(f"{values['rows'][0]['ceiling']['performance']['value']:.4f} *")
