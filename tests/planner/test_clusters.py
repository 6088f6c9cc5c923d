"""Clusters by name, and from a person's own file."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nonuniform.errors import BadInput
from nonuniform.perf.catalog import CATALOG, load_gpu
from nonuniform.planner.clusters import names, read_cluster

OWN = """\
[cluster]
name = "ours"
gpus = 4096
gpu = "gb200_nvl72"
domain = 72
[prices]
gpu_hour = 3.5
source = "our books"
"""


def test_a_remainder_is_said() -> None:
    cluster = read_cluster("gb200-nvl72", 4096)
    assert (cluster.fleet.domains, cluster.fleet.leftover, cluster.node) == (56, 64, 4)
    text = next(fact.text for fact in cluster.facts if fact.name == "domains")
    assert text.startswith("56 whole domains of 72 + 64 GPUs left over")


def test_racks_say_how_many_of_their_gpus_jobs_use() -> None:
    cluster = read_cluster("gb200-nvl72", 72)
    assert cluster.used == 64
    text = next(fact.text for fact in cluster.facts if fact.name == "use of a domain")
    assert "64 of 72" in text
    assert read_cluster("dgx-h100", 64).used == 8


def test_every_entry_names_a_gpu_and_its_sources() -> None:
    assert {"dgx-h100", "dgx-b200", "gb200-nvl72", "gb300-nvl72"} <= set(names())
    for name in names():
        cluster = read_cluster(name, 7200)
        gpu = load_gpu(cluster.gpu)
        assert gpu.domain_gpus == cluster.domain
        table = tomllib.loads((CATALOG / "clusters" / f"{name}.toml").read_text())
        assert {figure["figure"] for figure in table["figure"]} >= {"domain"}
        assert all(figure["source"] and figure["provenance"] for figure in table["figure"])


def test_figures_that_are_taken_from_elsewhere_are_marked() -> None:
    facts = {fact.name: fact for fact in read_cluster("GB300", 720).facts}
    assert facts["kind of GPU"].assumed
    assert not facts["GPUs of a domain"].assumed


@given(st.integers(72, 10**6))
def test_domains_and_remainder_are_all_gpus(gpus: int) -> None:
    fleet = read_cluster("gb200-nvl72", gpus).fleet
    assert fleet.domains * 72 + fleet.leftover == gpus
    assert 0 <= fleet.leftover < 72


def test_a_file_of_ten_lines(tmp_path: Path) -> None:
    path = tmp_path / "ours.toml"
    path.write_text(OWN)
    cluster = read_cluster(path)
    assert (cluster.name, cluster.gpus, cluster.domain, cluster.node) == ("ours", 4096, 72, 8)
    assert cluster.prices == (("gpu_hour", 3.5), ("source", "our books"))
    facts = {fact.name: fact for fact in cluster.facts}
    assert facts["GPUs of a node"].assumed
    more = read_cluster(str(path), 720)
    assert more.gpus == 720
    assert {fact.name: fact.note for fact in more.facts}["GPUs"] == "--gpus; the file says 4,096"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("domain = 72", "domain = 0", "must be at least 1"),
        ("domain = 72", "", "domain is missing"),
        ("domain = 72", "domane = 72", r"unknown key domane, did you mean domain\?"),
        ("domain = 72", "domain = 8192", "do not fill one domain"),
        ("domain = 72", "domain = 72\nused = 73", "used = 73 is more than domain = 72"),
        ('"gb200_nvl72"', '"gb900"', "known are a100_sxm"),
        ("gpus = 4096", "", "how many GPUs are there"),
        ("gpu_hour = 3.5", "gpu_hour = [1]", "must be a number or text"),
        ("[prices]", "[pieces]", r"unknown section \[pieces\]"),
        ("[cluster]", "[[cluster]]", "must be tables"),
    ],
)
def test_mistakes_in_a_file(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / "ours.toml"
    path.write_text(OWN.replace(old, new))
    with pytest.raises(BadInput, match=message) as error:
        read_cluster(path)
    assert str(error.value).startswith(str(path))
    assert "\n" not in str(error.value)


def test_names_and_numbers_that_are_not_known() -> None:
    with pytest.raises(BadInput, match=r"unknown cluster 'gb20-nvl72', did you mean gb200-nvl72\?"):
        read_cluster("gb20-nvl72", 72)
    with pytest.raises(BadInput, match="how many GPUs are there"):
        read_cluster("dgx-h100")
    with pytest.raises(BadInput, match="must be at least 1"):
        read_cluster("dgx-h100", -8)
