"""Floating-point operations of a model, as they are counted when people compare.

In: a model and a length. Out: FLOPs per token of forward and backward (three times the forward),
without recompute. About 6 per active parameter, plus attention. Does not know: what a GPU really
does (layer.py does).
"""

from __future__ import annotations

from typing import Literal

from nonuniform.perf.layer import attended
from nonuniform.perf.model import Model

Causal = Literal["whole", "half"]


def flops_per_token(model: Model, length: int, causal: Causal = "half") -> float:
    """`causal`: whether scores that a causal mask hides are counted."""
    seen = attended(length, model.window) if causal == "half" else float(length)
    attention = 4.0 * seen * model.heads * model.head_dim * model.layers
    return 3.0 * (2.0 * model.active_parameters + attention)
