"""Whoever is struck, wherever and however: the run ends as the one that nothing happened to."""

from __future__ import annotations

from typing import Any

import pytest
from means.bouts import check_cell, fight_cell
from means.cells import Cell, in_every_check, valid_cells


def _cases() -> list[Any]:
    """A quarter in every check, the rest in the soak."""
    return [
        pytest.param(cell, id=str(cell), marks=[] if in_every_check(cell) else [pytest.mark.soak])
        for cell in valid_cells()
    ]


@pytest.mark.matrix
@pytest.mark.parametrize("cell", _cases())
def test_cell(
    lab: Any, elastic: Any, reference: Any, request: pytest.FixtureRequest, cell: Cell
) -> None:
    if cell.way == "oom":
        request.getfixturevalue("memory_cgroup")
    check_cell(fight_cell(lab, cell), cell, elastic, reference)
