"""Initial weights as a function of (seed, logical name, row): the same however the model is cut.

Each tensor has a counter-based random stream of its own, and each row of its unit-major matrix
starts at a counter of its own. A rank draws just the rows it holds, so no rank ever builds the
whole model, and two jobs with other degrees or unit sizes start from the same weights.
"""

from __future__ import annotations

import hashlib
import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from nonuniform.layout.cuts import TensorCut

WORDS_PER_COUNTER = 4  # Philox 4x64 yields four words of 64 bits a counter
STD = 0.02


def initial_rows(
    tensor: TensorCut, rows: NDArray[np.int64], seed: int, layers: int
) -> NDArray[np.float64]:
    """[len(rows), row_elements]: ones for norms, N(0, std) for what is cut.

    Projections back into the residual stream get std / sqrt(2 layers) (GPT-2 report, section 2.3).
    """
    if tensor.axis is None:
        return np.ones((len(rows), tensor.row_elements))
    std = STD / math.sqrt(2 * layers) if tensor.axis == 1 else STD
    digest = hashlib.sha256(f"{seed}/{tensor.name}".encode()).digest()
    key = np.frombuffer(digest[:16], dtype=np.uint64)
    pieces = [_normal(key, int(run[0]), len(run), tensor.row_elements) for run in _runs(rows)]
    return np.concatenate(pieces) * std if pieces else np.empty((0, tensor.row_elements))


def _runs(rows: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Stretches of consecutive rows."""
    if len(rows) == 0:
        return []
    return np.split(rows, np.flatnonzero(np.diff(rows) != 1) + 1)


def _normal(key: NDArray[np.uint64], first: int, rows: int, width: int) -> NDArray[np.float64]:
    counters = -(-width // WORDS_PER_COUNTER)
    stream = np.random.Philox(counter=first * counters, key=key)
    words = stream.random_raw(rows * counters * WORDS_PER_COUNTER)
    # 52 bits and a half: with 53 the largest value would round to 1 and the normal be infinite.
    uniform = ((words >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
    normal: NDArray[np.float64] = ndtri(uniform).reshape(rows, -1)[:, :width]
    return normal
