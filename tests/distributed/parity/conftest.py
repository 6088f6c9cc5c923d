"""One pool of processes for all tests of this folder, and the folder of what runs in them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

# The processes of the pool import what they run by name; they get this path from their parent.
sys.path.insert(0, str(Path(__file__).parent))

if TYPE_CHECKING:
    from loopback.pool import Pool


@pytest.fixture(scope="session")
def pool() -> Iterator[Pool]:
    from loopback.pool import Pool

    with Pool() as pool:
        yield pool
