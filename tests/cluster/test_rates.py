"""Rates in every unit, blocks that go down together, and the published clusters."""

from __future__ import annotations

import csv
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nonuniform.cluster.fleet import Fleet
from nonuniform.cluster.sources import rates
from nonuniform.cluster.sources.catalog import catalog_names, load_catalog
from nonuniform.cluster.sources.rates import Bursts, Cause, Lemons
from nonuniform.cluster.sources.repair import fixed
from nonuniform.errors import BadInput

PUBLISHED = Path(__file__).parents[3] / "shared" / "data" / "failures"
with_data = pytest.mark.skipif(not PUBLISHED.is_dir(), reason="the published tables are not here")

FLEET = Fleet(4000, 72)


def rows_of(name: str) -> list[dict[str, str]]:
    with (PUBLISHED / name).open(encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file))


def total_per_gpu_day(name: str, node: int = 8) -> float:
    fleet = Fleet(8 * 2048, 8, node)
    return sum(c.failures_per_day(fleet) for c in load_catalog(name).causes) / fleet.gpus


@pytest.mark.parametrize(("per", "units"), [("gpu", 4000), ("node", 500), ("domain", 55)])
def test_a_rate_counts_its_units(per: Any, units: int) -> None:
    assert rates.units(per, FLEET) == units
    cause = Cause("any", 0.01, fixed(1), per=per)
    assert cause.failures_per_day(FLEET) == pytest.approx(0.01 * units)


@pytest.mark.parametrize(
    ("blast", "gpus"), [("gpu", 1), ("board", 2), ("node", 8), ("domain", 72), ("tray", 72)]
)
def test_a_blast_has_the_size_of_what_it_names(blast: Any, gpus: int) -> None:
    cause = Cause("any", 0.01, fixed(1), blast=blast)
    assert cause.block(FLEET) == gpus
    assert replace(cause, blast_gpus=5).block(FLEET) == 5
    assert cause.block(Fleet(1, 1)) == 1


def test_units_of_published_rates() -> None:
    assert rates.per_1000_node_days(6.5) == 0.0065
    assert 8 * rates.per_gpu_day(6.5) == pytest.approx(rates.per_1000_node_days(6.5))
    assert rates.per_gpu_day(6.5, node=4) == 2 * rates.per_gpu_day(6.5)
    assert rates.observed(419, units_seen=16384, days=54) == pytest.approx(4.736e-4, rel=1e-4)


def test_lemons_by_their_share_of_the_failures() -> None:
    """A tenth of the nodes with 41 % of the faults, as in a production trace."""
    lemons = rates.lemons_with(0.1, 0.41)
    assert 0.1 * lemons.factor / (0.1 * lemons.factor + 0.9) == pytest.approx(0.41)
    assert rates.lemons_with(0.25, 0.25).factor == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Cause("", 1.0, fixed(1)), "needs a name"),
        (lambda: Cause("fan", -1.0, fixed(1)), "fan: rate_per_day = -1"),
        (lambda: Cause("fan", math.nan, fixed(1)), "fan: rate_per_day = nan"),
        (lambda: Cause("fan", 1.0, fixed(1), per="rack"), 'per = "rack", expected one of gpu, n'),
        (lambda: Cause("fan", 1.0, fixed(1), blast="row"), 'blast = "row", expected one of gpu, b'),
        (lambda: Cause("fan", 1.0, fixed(1), blast_gpus=-1), "blast_gpus = -1"),
        (lambda: Lemons(0.0, 2.0), "lemons: share = 0"),
        (lambda: Lemons(0.1, math.inf), "lemons: factor = inf"),
        (lambda: rates.lemons_with(0.1, 1.0), "failures_share = 1"),
        (lambda: Bursts(0.0, 2.0, 1.0), "bursts: share = 0"),
        (lambda: Bursts(0.5, 0.5, 1.0), "bursts: failures = 0.5"),
        (lambda: Bursts(0.5, 2.0, 0.0), "bursts: within_h = 0"),
        (lambda: rates.observed(-1, units_seen=1, days=1), "-1 failures of 1 units in 1 days"),
        (lambda: load_catalog("llama2"), 'catalog = "llama2", expected one of llama3, meta-rsc1'),
        (lambda: load_catalog("llama3").with_repair("fan", fixed(1)), 'llama3: no cause "fan"'),
    ],
)
def test_what_is_wrong_is_named(make: Any, text: str) -> None:
    with pytest.raises(BadInput, match=text):
        make()


def test_two_causes_of_one_name_are_refused() -> None:
    with pytest.raises(BadInput, match='two causes are called "fan"'):
        rates.check_causes([Cause("fan", 1.0, fixed(1)), Cause("fan", 2.0, fixed(1))])


def test_the_catalog_has_every_published_cluster() -> None:
    assert catalog_names() == ("llama3", "meta-rsc1", "meta-rsc2", "ntp-paper")


@pytest.mark.parametrize("name", catalog_names())
def test_every_figure_of_a_cluster_has_a_source(name: str) -> None:
    cluster = load_catalog(name)
    rates.check_causes(cluster.causes)
    figures = {part.figure: part.provenance for part in cluster.sources}
    assert {"repair_h", "blast"} <= figures.keys()
    assert figures.keys() & {"count", "rate_per_1000_node_days"}
    assert set(figures.values()) <= {"read", "quoted", "derived", "assumed"}
    assert all(part.source for part in cluster.sources)
    told = "\n".join(cluster.assumptions())
    for figure, provenance in figures.items():
        assert (f"{name}: {figure} is {provenance}" in told) == (provenance != "read")


def test_the_model_of_the_paper() -> None:
    hardware, software = load_catalog("ntp-paper").causes
    assert total_per_gpu_day("ntp-paper") == pytest.approx(419 / 54 / 16384, rel=1e-12)
    assert hardware.rate_per_day / software.rate_per_day == pytest.approx(0.78 / 0.22)
    assert (hardware.repair, software.repair) == (fixed(120), fixed(3))
    assert {cause.block(FLEET) for cause in (hardware, software)} == {1}


def test_the_clusters_agree_with_the_published_totals() -> None:
    assert total_per_gpu_day("llama3") == pytest.approx(total_per_gpu_day("ntp-paper"), rel=1e-12)
    assert total_per_gpu_day("meta-rsc1") == pytest.approx(rates.per_gpu_day(6.50))
    assert total_per_gpu_day("meta-rsc2") == pytest.approx(rates.per_gpu_day(2.34))
    (failure,) = load_catalog("meta-rsc1").causes
    assert failure.block(FLEET) == 8


def test_the_software_of_llama_3_is_about_22_percent_of_its_failures() -> None:
    causes = load_catalog("llama3").causes
    software = sum(c.rate_per_day for c in causes if c.repair == fixed(3))
    assert software / sum(c.rate_per_day for c in causes) == pytest.approx(95 / 419)


def test_variants_leave_the_catalog_as_it_is() -> None:
    paper = load_catalog("ntp-paper")
    other = paper.scaled(3).with_repair("hardware", fixed(72))
    assert [c.rate_per_day for c in other.causes] == [3 * c.rate_per_day for c in paper.causes]
    assert [c.repair for c in other.causes] == [fixed(72), fixed(3)]
    assert load_catalog("ntp-paper").causes[0].repair == fixed(120)


@with_data
def test_the_counts_of_llama_3_are_those_of_the_table() -> None:
    published = {
        row["Component"]: int(row["Interruption Count"])
        for row in rows_of("llama3_table5_interruptions.csv")
    }
    ours = {c.name: c.rate_per_day * 54 * 16384 for c in load_catalog("llama3").causes}
    assert sum(published.values()) == 419
    assert ours == pytest.approx(published)


@with_data
def test_the_rates_of_the_research_clusters_are_those_of_the_table() -> None:
    rows = {(row["system"], row["metric"]): row for row in rows_of("failure_rates.csv")}
    for system, name in (("Meta RSC-1", "meta-rsc1"), ("Meta RSC-2", "meta-rsc2")):
        row = rows[system, "node failure rate r_f"]
        assert row["unit"] == "per 1000 node-days"
        (failure,) = load_catalog(name).causes
        assert 1000 * failure.rate_per_day == pytest.approx(float(row["value"]))
        assert failure.per == "node"
