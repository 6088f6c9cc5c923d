"""Combinations of scenario keys."""

from __future__ import annotations

from typing import Any

import pytest

from nonuniform.errors import BadInput
from nonuniform.sim.sweep import settings, sweep, with_settings

BASE: dict[str, Any] = {
    "cluster": {"gpus": 64, "domain": 8},
    "failures": {"cause": [{"name": "a", "rate": 1.0}, {"name": "b", "rate": 2.0}]},
}


def test_all_combinations_the_last_key_fastest() -> None:
    axes = {"cluster.domain": [4, 8], "policies.ntp.min_degree": [1, 2, 3]}
    found = sweep(BASE, axes)
    assert [(s["cluster"]["domain"], s["policies"]["ntp"]["min_degree"]) for s in found] == [
        (4, 1),
        (4, 2),
        (4, 3),
        (8, 1),
        (8, 2),
        (8, 3),
    ]
    assert settings(axes)[4] == {"cluster.domain": 8, "policies.ntp.min_degree": 2}
    assert all(s["cluster"]["gpus"] == 64 for s in found)


def test_scenarios_share_nothing() -> None:
    values = [[32, 30]]
    one, two = sweep(BASE, {"x.degrees": values, "cluster.domain": [4, 8]})
    one["x"]["degrees"].append(28)
    one["failures"]["cause"][0]["rate"] = 9.0
    assert two["x"]["degrees"] == [32, 30]
    assert values == [[32, 30]]
    assert BASE["failures"]["cause"][0]["rate"] == 1.0
    assert "x" not in BASE


def test_a_place_in_a_list_of_tables() -> None:
    found = with_settings(BASE, {"failures.cause.1.rate": 5.0})
    assert [cause["rate"] for cause in found["failures"]["cause"]] == [1.0, 5.0]


def test_without_axes_the_base() -> None:
    assert sweep(BASE, {}) == [BASE]


@pytest.mark.parametrize("values", [[], "32", 32, None])
def test_values_must_be_a_list(values: Any) -> None:
    with pytest.raises(BadInput, match=r"cluster\.domain = "):
        settings({"cluster.domain": values})


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("cluster.domain.deep", "no table"),
        ("cluster.domain.deep.er", "no table"),
        ("failures.cause.2.rate", "no place in a list of 2"),
        ("failures.cause.first.rate", "no place in a list of 2"),
        ("failures.cause.7", "no place in a list of 2"),
        ("cluster.", "no table"),
    ],
)
def test_a_key_that_leads_nowhere(key: str, text: str) -> None:
    with pytest.raises(BadInput, match=text):
        with_settings(BASE, {key: 1})
