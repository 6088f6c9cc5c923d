"""Whole plans of small clusters: what is in them, and that the answers are right."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import polars as pl
import pytest

from nonuniform.errors import BadInput, RunFailed
from nonuniform.planner import run as run_module
from nonuniform.planner.figure import UNITS, Kind
from nonuniform.planner.run import PlanArgs, plan

from .conftest import Planned, written

TOP = {
    "kind", "version", "status", "created", "command", "time_s", "seeds", "example", "inputs",
    "facts", "unknown", "verdict", "jobs", "portfolio", "recommendation", "marginal", "path",
    "money", "charts",
}  # fmt: skip
JOB = {
    "name", "gpus", "degree", "stages", "replicas", "domain", "gpus_per_replica", "days",
    "step_time", "tp_usage", "blast_gpus", "failures_expected", "failed_share", "candidate",
    "reason", "today", "policies",
}  # fmt: skip
POLICY = {
    "kind", "title", "runnable", "needs", "throughput", "throughput_worst", "loss", "lost",
    "interrupted", "days", "completion", "spares_domains", "gpu_hours", "cost", "one_off",
    "payback_days", "net",
}  # fmt: skip
ADVICE = {
    "job", "policy", "spare_domains", "spares_where", "min_degree", "boost", "checkpoint_every",
    "saved", "net", "margin", "stable", "alternatives", "changes",
}  # fmt: skip
CHARTS = {"throughput", "heatmap", "year", "spares", "frontier", "map", "rack"}
FIGURE = {"value", "low", "high", "unit", "kind", "source"}


def figures(value: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(value, dict):
        if {"value", "unit", "kind"} <= value.keys() and "key" not in value:
            yield path, value
        for key, inner in value.items():
            yield from figures(inner, f"{path}.{key}")
    if isinstance(value, list):
        for place, inner in enumerate(value):
            yield from figures(inner, f"{path}.{place}")


def test_all_keys_of_the_contract_are_there(usual: tuple[dict[str, Any], Path]) -> None:
    summary, _ = usual
    assert summary.keys() >= TOP
    assert summary["charts"].keys() >= CHARTS
    assert summary["recommendation"].keys() >= ADVICE
    for job in summary["jobs"]:
        assert job.keys() >= JOB
        assert list(job["policies"]) == [
            "restart", "dp-drop", "dp-drop-tokens", "ntp", "ntp-tokens", "ntp-pw",
        ]  # fmt: skip
        assert all(own.keys() >= POLICY for own in job["policies"].values())
        assert job["failed_share"].keys() == {"now", "mean", "p95"}


def test_every_figure_is_well_formed(usual: tuple[dict[str, Any], Path]) -> None:
    found = list(figures(usual[0]))
    assert len(found) > 150
    for path, figure in found:
        assert figure.keys() == FIGURE, path
        assert figure["unit"] in UNITS, path
        assert figure["kind"] in get_args(Kind), path
        assert figure["source"], path
        if figure["low"] is not None:
            assert figure["low"] <= figure["value"] + 1e-9, path
            assert figure["value"] <= figure["high"] + 1e-9, path


def test_every_gpu_hour_is_accounted_for(usual: tuple[dict[str, Any], Path]) -> None:
    (job,) = usual[0]["jobs"]
    for own in job["policies"].values():
        hours = {name: figure["value"] for name, figure in own["gpu_hours"].items()}
        gained = hours.pop("gained")
        assert math.fsum(hours.values()) == pytest.approx(job["gpus"] * 8760)
        lost = [hours[name] for name in ("failed", "idled", "transition", "redone")]
        assert math.fsum(lost) - gained == pytest.approx(own["lost"]["value"])
        trained = job["replicas"] * job["gpus_per_replica"] * 8760
        work = own["throughput"]["value"] * trained
        assert work + own["lost"]["value"] + hours["spare"] + hours["unused"] == pytest.approx(
            job["gpus"] * 8760
        )
        parts = [own["cost"][name]["value"] for name in ("lost", "spares", "energy", "operators")]
        assert math.fsum(parts) == pytest.approx(own["cost"]["total"]["value"])


def test_today_is_what_all_are_measured_against(usual: tuple[dict[str, Any], Path]) -> None:
    today = usual[0]["jobs"][0]["policies"]["restart"]
    assert today["net"]["value"] == 0
    assert today["payback_days"] is None
    assert today["one_off"]["value"] == 0


def test_losses_are_in_the_order_that_freedom_gives(usual: tuple[dict[str, Any], Path]) -> None:
    marginal = usual[0]["marginal"]
    assert all(marginal[name]["value"] > 0 for name in ("live", "ntp", "tokens"))
    assert marginal["boost"]["value"] >= 0
    assert marginal["hidden_sync"]["value"] is None


def test_only_what_train_can_do_is_called_runnable(usual: tuple[dict[str, Any], Path]) -> None:
    (job,) = usual[0]["jobs"]
    runnable = {name for name, own in job["policies"].items() if own["runnable"]}
    assert runnable == {"restart", "dp-drop", "ntp"}
    assert job["policies"]["ntp-pw"]["needs"][:2] == ["tokens", "boost"]


def test_a_hurt_cluster_is_told_to_use_ntp(usual: tuple[dict[str, Any], Path]) -> None:
    summary, _ = usual
    assert summary["verdict"]["worth"] == "yes"
    assert summary["verdict"]["policy"].startswith("ntp")
    assert summary["recommendation"]["net"]["low"] > 0
    stable = summary["recommendation"]["stable"]
    assert summary["verdict"]["choice"] == ("clear" if stable else "within-noise")
    same = next(row for row in summary["recommendation"]["changes"] if row["setting"] == "x1")
    assert not same["changed"]


def test_tables_hold_the_same_numbers(usual: tuple[dict[str, Any], Path]) -> None:
    summary, out = usual
    for suffix, read in (("csv", pl.read_csv), ("parquet", pl.read_parquet)):
        rows = read(out / "tables" / f"policies.{suffix}").to_dicts()
        for row in rows:
            own = summary["jobs"][0]["policies"][row["policy"]]
            assert row["lost"] == pytest.approx(own["lost"]["value"])
            assert row["net_low"] == pytest.approx(own["net"]["low"])


def test_charts_have_columns_of_equal_length(usual: tuple[dict[str, Any], Path]) -> None:
    charts = usual[0]["charts"]
    year = charts["year"]
    assert 0 < len(year["time_h"]) <= 2000
    for values in (year["domains_hit"], *year["throughput"].values()):
        assert len(values) == len(year["time_h"])
    for name, axis, group in (
        ("throughput", "failed_share", "policies"),
        ("spares", "domains", "interrupted"),
    ):
        assert all(
            len(values) == len(charts[name][axis]) for values in charts[name][group].values()
        )
    assert all(values[0] == 1 for values in charts["throughput"]["policies"].values())
    assert all(values[-1] == 0 for values in charts["spares"]["interrupted"].values())
    assert len(charts["heatmap"]["loss"]) == len(charts["heatmap"]["degrees"])
    assert len(charts["map"]["lost"]) == 32
    assert any(point["best"] for point in charts["frontier"])


def test_the_course_of_a_year_has_the_mean_of_its_history(planned: Planned) -> None:
    summary = planned(seeds=2)
    course = summary["charts"]["year"]["throughput"]["ntp-tokens"]
    own = summary["jobs"][0]["policies"]["ntp-tokens"]["throughput"]
    assert sum(course) / len(course) == pytest.approx(own["value"], abs=0.02)


# -------------------------------------------------------------------------------- negative answers


def test_without_tensor_parallelism_it_is_not_worth_it(planned: Planned) -> None:
    summary = planned({"degree": 1, "domain": 8, "gpus": 512})
    assert summary["verdict"]["worth"] == "no"
    assert summary["verdict"]["reason"] == "tensor-parallel-1"
    assert not any(name.startswith("ntp") for name in summary["jobs"][0]["policies"])
    (job,) = summary["jobs"]
    assert not job["candidate"]
    assert job["tp_usage"]["value"] == 0
    assert job["blast_gpus"]["value"] == 1
    assert summary["recommendation"]["policy"].startswith("dp-drop")  # helps without degrees too


def test_with_less_than_one_failure_expected_it_is_not_worth_it(planned: Planned) -> None:
    summary = planned({"rate": 1e-6, "days": 30})
    assert summary["jobs"][0]["failures_expected"]["value"] == pytest.approx(1e-6 * 1024 * 30)
    assert summary["verdict"]["worth"] == "no"
    assert summary["verdict"]["reason"] == "few-failures"
    assert summary["portfolio"][0]["reason"] == "few-failures"


def test_where_nothing_fails_nothing_is_lost(planned: Planned) -> None:
    summary = planned({"rate": 0})
    assert summary["verdict"]["reason"] == "few-failures"
    assert summary["jobs"][0]["policies"]["dp-drop"]["loss"]["value"] < 0.01
    assert summary["recommendation"]["checkpoint_every"]["young_daly"]["value"] is None


def test_a_job_of_hours_is_not_worth_it(planned: Planned) -> None:
    assert planned({"days": 0.5})["verdict"]["reason"] == "short-job"


def test_gpus_to_spare_in_every_domain_leave_nothing_to_gain(planned: Planned) -> None:
    summary = planned({"domain": 72, "degree": 64, "gpus": 1152})
    assert summary["verdict"]["worth"] == "no"
    assert summary["verdict"]["reason"] == "no-domain-loss"


def test_work_that_costs_more_than_it_saves_is_refused(planned: Planned, tmp_path: Path) -> None:
    own = tmp_path / "prices.toml"
    own.write_text("engineer_week = 1e9\n")
    summary = planned(prices=own)
    assert summary["verdict"] == {
        "worth": "no", "policy": "restart", "today": "restart", "change": False,
        "reason": "costs-more", "choice": "clear",
    }  # fmt: skip
    marked = [row["key"] for row in summary["money"]["prices"] if row["overridden"]]
    assert marked == ["engineer_week"]


# ---------------------------------------------------------------------------------------- stability


def test_another_seed_changes_no_stable_recommendation(planned: Planned, tmp_path: Path) -> None:
    own = tmp_path / "prices.toml"
    own.write_text("boost_per_gpu = 4000\n")
    found = [planned(seed=seed, seeds=4, prices=own) for seed in (1, 1001, 2002)]
    assert all(summary["recommendation"]["stable"] for summary in found)
    assert {summary["verdict"]["policy"] for summary in found} == {"ntp-tokens"}
    for summary in found:
        advice = summary["recommendation"]
        assert advice["margin"]["low"] > advice["material"]["value"]
    nets = [summary["recommendation"]["net"]["value"] for summary in found]
    assert max(nets) < 1.15 * min(nets)


def test_of_two_that_are_as_good_the_simpler_one_is_taken(planned: Planned) -> None:
    """Boost and its price are about even here: no seed may turn the answer to and fro."""
    found = [planned(seed=seed, seeds=4) for seed in (1, 1001, 2002)]
    for summary in found:
        stable = summary["recommendation"]["stable"]
        assert summary["verdict"]["policy"] == ("ntp-pw" if stable else "ntp-tokens")
        rivals = {
            row["policy"]: row["why_not"] for row in summary["recommendation"]["alternatives"]
        }
        assert stable or rivals["ntp-pw"] == "within-noise"


def test_the_same_arguments_give_the_same_answer(planned: Planned) -> None:
    first, second = planned(seeds=2), planned(seeds=2)
    for summary in (first, second):
        del summary["time_s"]
    assert first == second


# ---------------------------------------------------------------------------------------- bad input


def test_old_results_survive_bad_input(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "summary.json").write_text("old")
    with pytest.raises(BadInput, match="holds other results"):
        plan(PlanArgs(scenario=written(tmp_path)), out)
    for args in (
        PlanArgs(scenario=tmp_path / "none.toml", overwrite=True),
        PlanArgs(scenario=written(tmp_path), prices=tmp_path / "none.toml", overwrite=True),
        PlanArgs(scenario=written(tmp_path), seeds=1, overwrite=True),
        PlanArgs(scenario=written(tmp_path), processes=0, overwrite=True),
        PlanArgs(scenario=written(tmp_path), processes=-7, overwrite=True),
        PlanArgs(overwrite=True),
        PlanArgs(jobs=(tmp_path / "none.sh",), cluster="dgx-h100", gpus=64, overwrite=True),
        PlanArgs(jobs=(tmp_path / "none.sh",), overwrite=True),
        PlanArgs(jobs=(tmp_path / "none.sh",), cluster="dgx-h999", gpus=64, overwrite=True),
        PlanArgs(scenario=written(tmp_path), cluster="dgx-h100", overwrite=True),
        PlanArgs(scenario=written(tmp_path), measured=(tmp_path / "no.jsonl",), overwrite=True),
    ):
        with pytest.raises(BadInput) as caught:
            plan(args, out)
        assert "\n" not in str(caught.value)
    assert (out / "summary.json").read_text() == "old"


def test_a_folder_of_a_training_is_left_alone(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "steps.jsonl").write_text("{}\n")
    with pytest.raises(BadInput, match=r"steps\.jsonl"):
        plan(PlanArgs(scenario=written(tmp_path), overwrite=True), out)


def test_a_failed_plan_is_closed_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> dict[str, Any]:
        raise ZeroDivisionError("of ours")

    monkeypatch.setattr(run_module, "whole_answer", broken)
    out = tmp_path / "out"
    with pytest.raises(RunFailed, match="ZeroDivisionError: of ours"):
        plan(PlanArgs(scenario=written(tmp_path)), out)
    summary = json.loads((out / "summary.json").read_text())
    assert summary["status"] == "failed"
    assert "of ours" in summary["reason"]
    assert (out / "error.log").exists()


def test_the_currency_runs_through_everything(planned: Planned) -> None:
    from nonuniform.planner.prices import Exchange

    dollars = planned(seeds=2)
    yen = planned(seeds=2, exchange=Exchange("JPY", 150.0, "2026-11-30"))
    assert yen["money"]["currency"] == "JPY"
    assert yen["recommendation"]["net"]["value"] == pytest.approx(
        150 * dollars["recommendation"]["net"]["value"]
    )
    assert yen["verdict"] == dollars["verdict"]


def test_a_custom_fleet_of_replaced_rates() -> None:
    """Longer repairs of every kind are what they say."""
    from nonuniform.cluster.sources.repair import Empirical, Fixed, LogNormal, Weibull
    from nonuniform.planner.subject import longer

    for repair in (Fixed(3.0), LogNormal(2.0, 1.0), Weibull(3.0, 0.7), Empirical((1.0, 5.0))):
        assert longer(repair, 2.5).mean_h == pytest.approx(2.5 * repair.mean_h)


def test_a_name_that_is_a_formula_stays_a_name_in_a_spreadsheet(tmp_path: Path) -> None:
    scenario = written(tmp_path)
    scenario = scenario.rename(scenario.with_name("=1+1.toml"))
    out = tmp_path / "out"
    plan(PlanArgs(scenario=scenario, seeds=2), out)
    rows = pl.read_csv(out / "tables" / "policies.csv").to_dicts()
    assert {row["job"] for row in rows} == {"'=1+1"}
