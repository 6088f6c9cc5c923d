"""What boosting costs over a history, against sums done by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nonuniform.errors import BadInput
from nonuniform.power.catalog import load_rack
from nonuniform.power.curve import watts_for
from nonuniform.power.energy import energy

ENTRY = load_rack("gb200_nvl72", {"gpu": {"nominal_w": 1000}})
NEED = tuple(72 / (72 - k) for k in range(10))


def test_two_domains_by_hand() -> None:
    times = np.array([0.0, 100.0, 150.0])
    lost = np.array([[0, 0], [2, 0], [9, 0]])
    found = energy(times, lost, 200.0, ENTRY.rack, ENTRY.cooling, NEED)
    watts = watts_for(ENTRY.rack.gpu, NEED[2])
    assert found.share_ever_boosted == 0.5
    assert found.share_of_time_boosted == pytest.approx(50 / 400)
    assert found.energy_j == pytest.approx(50 * 70 * (watts.value - 1000))
    assert found.energy_high_j == pytest.approx(50 * 70 * (watts.high - 1000))
    assert found.saved_domain_s == pytest.approx(50 * 2 / 72)
    assert found.refused_domain_s == 50
    usual = found.energy_j / found.saved_domain_s / ENTRY.rack.nominal_w
    assert found.times_usual == pytest.approx(usual)
    assert found.extrapolated


@given(st.lists(st.lists(st.integers(0, 9), min_size=3, max_size=3), min_size=1, max_size=8))
def test_shares_are_shares_and_joules_are_ordered(rows: list[list[int]]) -> None:
    times = np.arange(len(rows), dtype=float)
    found = energy(times, np.array(rows), float(len(rows)), ENTRY.rack, ENTRY.cooling, NEED)
    assert 0 <= found.share_of_time_boosted <= found.share_ever_boosted <= 1
    assert 0 <= found.energy_low_j <= found.energy_j <= found.energy_high_j
    assert found.boosted_domain_s + found.refused_domain_s <= 3 * len(rows)


def test_a_gpu_without_room_is_never_boosted() -> None:
    full = load_rack("gb200_nvl72")
    lost = np.array([[1, 2]])
    found = energy(np.zeros(1), lost, 10.0, full.rack, full.cooling, NEED)
    assert (found.share_ever_boosted, found.energy_j, found.refused_domain_s) == (0, 0, 20)


def test_histories_that_cannot_be() -> None:
    rack = replace(ENTRY.rack)
    with pytest.raises(BadInput, match="as many rows"):
        energy(np.zeros(2), np.zeros((1, 3), dtype=np.int64), 1.0, rack, ENTRY.cooling, NEED)
    with pytest.raises(BadInput, match="must rise"):
        energy(np.ones(1), np.zeros((1, 3), dtype=np.int64), 0.5, rack, ENTRY.cooling, NEED)
