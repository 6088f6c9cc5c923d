"""How a fleet is cut into domains and nodes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nonuniform.cluster.fleet import Fleet
from nonuniform.errors import BadInput


@pytest.mark.parametrize(
    ("gpus", "domain", "text"),
    [
        (4096, 72, "56 domains of 72 GPUs + 64 GPUs left over"),
        (32768, 32, "1024 domains of 32 GPUs"),
        (73, 72, "1 domain of 72 GPUs + 1 GPU left over"),
        (5, 1, "5 domains of 1 GPU"),
    ],
)
def test_a_fleet_says_how_it_is_used(gpus: int, domain: int, text: str) -> None:
    assert Fleet(gpus, domain).describe() == text


@given(st.integers(1, 100_000), st.integers(1, 600), st.integers(1, 72))
def test_every_gpu_is_in_a_domain_or_left_over_and_in_one_node(
    gpus: int, domain: int, node: int
) -> None:
    if domain > gpus:
        with pytest.raises(BadInput, match=f"gpus = {gpus} do not fill one domain"):
            Fleet(gpus, domain, node)
        return
    fleet = Fleet(gpus, domain, node)
    assert fleet.domains * domain == fleet.in_domains
    assert fleet.in_domains + fleet.leftover == gpus
    assert 0 <= fleet.leftover < domain
    assert (fleet.nodes - 1) * node < gpus <= fleet.nodes * node


@pytest.mark.parametrize("values", [(0, 1, 1), (8, 0, 8), (8, 8, 0), (-8, 8, 8)])
def test_numbers_below_one_are_refused(values: tuple[int, int, int]) -> None:
    with pytest.raises(BadInput, match="expected 1 or more"):
        Fleet(*values)
