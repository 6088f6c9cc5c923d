"""The table of the failure matrix: complete, each hole with a reason, a quarter in every check."""

from __future__ import annotations

from collections import Counter

from means.cells import (
    PHASES,
    PRIOR,
    VICTIMS,
    WAYS,
    all_cells,
    in_every_check,
    valid_cells,
    why_not,
)

MAIN_WAYS = WAYS[:4]


def test_counts() -> None:
    assert (len(VICTIMS), len(PHASES), len(WAYS)) == (8, 12, 6)
    reasons = Counter(why_not(c.victim, c.phase, c.way) for c in all_cells())
    assert reasons.pop(None) == len(valid_cells()) == 401
    assert sorted(reasons.values()) == [87, 88]
    assert all(reasons)


def test_four_ways_suit_every_victim_in_every_phase() -> None:
    left_out = [c for c in all_cells() if c.way in MAIN_WAYS and c not in valid_cells()]
    assert left_out == []


def test_a_quarter_meets_everything() -> None:
    """Each victim in each phase, each victim in each way, each phase in each way."""
    chosen = [c for c in valid_cells() if in_every_check(c)]
    assert 0.23 <= len(chosen) / len(valid_cells()) <= 0.27
    main = [c for c in chosen if c.way in MAIN_WAYS]
    assert {(c.victim, c.phase) for c in main} == {(v, p) for v in VICTIMS for p in PHASES}
    assert {(c.victim, c.way) for c in main} == {(v, w) for v in VICTIMS for w in MAIN_WAYS}
    assert {(c.phase, c.way) for c in main} == {(p, w) for p in PHASES for w in MAIN_WAYS}
    assert {c.way for c in chosen} == set(WAYS)


def test_the_run_can_go_on_after_every_cell() -> None:
    """One replica is never struck at all, so no unit is lost with its last holder."""
    for cell in valid_cells():
        gone = {PRIOR, cell.other, *cell.gpus} - {""}
        hurt = {gpu.split("/")[0] for gpu in gone}
        working = {r: 3 - sum(gpu.startswith(f"{r}/") for gpu in gone) for r in "012"}
        assert max(working.values()) >= 2, cell
        assert cell.other not in cell.gpus
        assert len(gone) == len(cell.gpus) + 1 + bool(cell.other), cell
        assert hurt
