"""The choice: simpler unless better by more than chance."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nonuniform.planner.choose import beats, choose

ORDER = {"a": 0, "b": 1, "c": 2}


def test_the_better_one_is_taken_where_it_is_clear() -> None:
    found = choose({("a", 0): [1.0, 1.1, 0.9], ("b", 0): [3.0, 3.1, 2.9]}, ORDER, 0.0)
    assert found.chosen == ("b", 0)
    assert found.stable
    assert found.margin.mean == 2.0 or abs(found.margin.mean - 2.0) < 1e-9


def test_within_chance_the_simpler_one_is_taken() -> None:
    found = choose({("a", 0): [1.0, 3.0, 2.0], ("b", 0): [3.1, 1.1, 2.1]}, ORDER, 0.0)
    assert found.best == ("b", 0)
    assert found.chosen == ("a", 0)
    assert not found.stable


def test_what_is_not_material_is_not_better() -> None:
    worths = {("a", 0): [1.0, 2.0, 3.0], ("b", 0): [1.5, 2.5, 3.5]}
    assert choose(worths, ORDER, 0.0).chosen == ("b", 0)
    assert choose(worths, ORDER, 0.6).chosen == ("a", 0)


def test_fewer_spares_are_simpler() -> None:
    worths = {("a", 0): [1.0, 1.0], ("a", 4): [1.0, 1.0], ("a", 8): [1.0, 1.0]}
    found = choose(worths, ORDER, 0.0)
    assert found.chosen == ("a", 0)
    assert found.rival is None


def test_the_same_histories_are_compared_one_by_one() -> None:
    """Far apart from seed to seed, and yet always better: chance has no part in it."""
    assert beats([11.0, 101.0, 1001.0], [10.0, 100.0, 1000.0], 0.5)


rows = st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=3)


@given(st.dictionaries(st.tuples(st.sampled_from("abc"), st.integers(0, 2)), rows, min_size=1),
       st.floats(0, 1e3))  # fmt: skip
def test_nothing_beats_the_choice_but_what_is_as_good(
    worths: dict[tuple[str, int], list[float]], material: float
) -> None:
    found = choose(worths, ORDER, material)
    assert found.chosen in worths
    assert not beats(worths[found.best], worths[found.chosen], material)
    if found.stable and found.rival is not None:
        assert beats(worths[found.chosen], worths[found.rival], material)


@pytest.mark.parametrize("ahead", [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0])
def test_what_is_called_stable_is_found_again(ahead: float) -> None:
    """Two answers of which the better one is ahead by so many errors of the mean: of all pairs of
    other histories at most one in fifty may call one choice stable and find another."""
    random = np.random.default_rng(7)
    seeds, sets = 16, 600
    gains = random.normal(ahead / np.sqrt(seeds), 1.0, (sets, seeds))
    found = [choose({("a", 0): [0.0] * seeds, ("b", 0): row.tolist()}, ORDER, 0.0) for row in gains]
    stable = [each.chosen for each in found if each.stable]
    other = sum(a.chosen != b for a in found for b in set(stable)) / sets if stable else 0.0
    assert len(stable) / sets * other <= 0.02
    strong = random.normal(8 / np.sqrt(seeds), 1.0, seeds)
    assert choose({("a", 0): [0.0] * seeds, ("b", 0): strong.tolist()}, ORDER, 0.0).stable
