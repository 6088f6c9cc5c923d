"""Small jobs for the parity tests: every legal pair of what can vary occurs in one of them.

In: nothing. Out: `Case`s, and what a case becomes: a job, a placement, the tokens of every step.
A pair is legal if a job with both values can be cut at all.
"""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import astuple, dataclass, fields
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nonuniform.config import (
    BatchConfig,
    JobConfig,
    ModelConfig,
    OptimizerConfig,
    ParallelConfig,
    RunConfig,
)
from nonuniform.errors import BadInput
from nonuniform.layout.model_plan import plan_llama
from nonuniform.placement.placement import Placement, ReplicaPlacement

VOCAB = 257
LENGTH = 8
LAYERS = 2
IGNORED = -100
SHARES = {1: (4,), 2: (5, 2), 3: (5, 3, 1)}
CLIP = {1.0: 4.0, 2.0: 0.1, math.inf: 0.01}  # low enough to act, for each p of the norm


@dataclass(frozen=True)
class Case:
    """`degrees` and `heads` (query, KV) first; the rest varies with them.

    `rising`: the replica of the largest degree gets the smallest share. `ignored`: some targets
    count in no loss, so that equal shares would not be equal numbers of tokens. `split`: shares
    other than those.
    """

    degrees: tuple[int, ...]
    heads: tuple[int, int]
    ffn: int = VOCAB
    tied: bool = False
    accumulation: int = 1
    rising: bool = False
    bucket_mb: float = 4.0
    clip_norm: float = 2.0
    ignored: bool = False
    vocab: int = VOCAB
    allow_empty: bool = False
    steps: int = 3
    split: tuple[int, ...] = ()

    @property
    def shares(self) -> tuple[int, ...]:
        if self.split:
            return self.split
        shares = SHARES[len(self.degrees)]
        return shares[::-1] if self.rising else shares

    def __str__(self) -> str:
        query, kv = self.heads
        words = ["+".join(map(str, self.degrees)), f"heads{query}.{kv}", f"ffn{self.ffn}"]
        words += [f"{self.steps}steps"]
        words += [f"accumulate{self.accumulation}", "shares" + "+".join(map(str, self.shares))]
        words += [f"buckets{self.bucket_mb:g}", f"p{self.clip_norm:g}"]
        words += [name for name in ("tied", "ignored", "allow_empty") if getattr(self, name)]
        return "-".join(words)


VALUES: dict[str, tuple[Any, ...]] = {
    "degrees": ((4, 4), (4, 3), (5, 4, 3), (8, 7), (8, 7, 5), (4, 1), (3, 2, 1)),
    "heads": ((12, 4), (8, 2), (5, 5), (4, 1)),
    "ffn": (257, 240),
    "tied": (False, True),
    "accumulation": (1, 3),
    "rising": (False, True),
    "bucket_mb": (4.0, 0.1),
    "clip_norm": (1.0, 2.0, math.inf),
    "ignored": (False, True),
}

EMPTY_RANKS = (
    Case((4, 3), (3, 3), allow_empty=True),  # a rank without a query head
    Case((4, 3), (3, 1), tied=True, accumulation=3, allow_empty=True),
    Case((5, 4), (4, 2), ffn=3, allow_empty=True),  # two ranks without an FFN column, then one
    Case((5, 4, 3), (5, 5), vocab=3, ffn=3, tied=True, allow_empty=True),
    Case((4, 4), (1, 1), vocab=2, ffn=2, bucket_mb=0.001, allow_empty=True),
)

LONG = (
    Case((4, 3), (12, 4), steps=20),
    Case((3, 2), (8, 2), tied=True, accumulation=3, rising=True, bucket_mb=0.1, steps=20),
    Case((3, 2, 1), (4, 1), ffn=240, ignored=True, clip_norm=math.inf, steps=20),
)


def job_of(case: Case) -> JobConfig:
    model = ModelConfig(
        layers=LAYERS,
        hidden=24,
        heads=case.heads[0],
        kv_heads=case.heads[1],
        head_dim=4,
        ffn=case.ffn,
        vocab=case.vocab,
        tied=case.tied,
    )
    degrees = case.degrees
    return JobConfig(
        model,
        ParallelConfig(len(degrees), max(degrees), min(degrees), case.allow_empty),
        BatchConfig(sum(case.shares), LENGTH, case.accumulation),
        RunConfig(case.steps, dtype="float64", bucket_mb=case.bucket_mb),
        optimizer=OptimizerConfig(clip=CLIP[case.clip_norm], clip_norm=case.clip_norm, warmup=2),
    )


def placement_of(case: Case) -> Placement:
    """Names are not in the order of the labels: nothing may depend on a name."""
    entries = []
    for replica, (degree, share) in enumerate(zip(case.degrees, case.shares, strict=True)):
        gpus = tuple(f"{replica}/{degree - 1 - label}" for label in range(degree))
        entries.append(ReplicaPlacement(replica, gpus, share))
    return Placement(tuple(entries))


def tokens_of(case: Case) -> list[NDArray[np.int64]]:
    """[sequences, length + 1] for every step; only last tokens can be ignored, since all others
    are inputs as well."""
    source = np.random.default_rng(7)
    shape = (sum(case.shares), LENGTH + 1)
    batches = [source.integers(0, case.vocab, shape) for _ in range(case.steps)]
    if case.ignored:
        for batch in batches:
            batch[:: 3 if case.rising else 2, -1] = IGNORED
    return batches


def pairs_of(case: Case) -> frozenset[tuple[str, Any, str, Any]]:
    """Every two of its values."""
    values = [(name, getattr(case, name)) for name in VALUES]
    return frozenset((*one, *other) for one, other in itertools.combinations(values, 2))


def is_legal(case: Case) -> bool:
    return _can_be_cut(case.degrees, case.heads, case.ffn)


@cache
def _can_be_cut(degrees: tuple[int, ...], heads: tuple[int, int], ffn: int) -> bool:
    shape = job_of(Case(degrees, heads, ffn)).model.shape()
    try:
        plan_llama(shape, max(degrees), min(degrees))
    except BadInput:
        return False
    return True


@cache
def legal_cases() -> tuple[Case, ...]:
    """In a fixed order without system: what no pair asks for is then mixed as well."""
    everything = [Case(*values) for values in itertools.product(*VALUES.values())]
    random.Random(1).shuffle(everything)
    return tuple(case for case in everything if is_legal(case))


@cache
def pairwise() -> tuple[Case, ...]:
    """Greedy: always the case with most pairs that no case had so far, the first of equals."""
    bit: dict[Any, int] = {}
    masks = []
    for case in legal_cases():
        mask = 0
        for pair in pairs_of(case):
            mask |= 1 << bit.setdefault(pair, len(bit))
        masks.append(mask)
    missing = (1 << len(bit)) - 1
    chosen = []
    while missing:
        best = max(range(len(masks)), key=lambda index: (masks[index] & missing).bit_count())
        chosen.append(legal_cases()[best])
        missing &= ~masks[best]
    return tuple(sorted(chosen, key=_by_size))


def _by_size(case: Case) -> tuple[int, str]:
    """Small ones first: the pool starts processes as they are needed."""
    return sum(case.degrees), str(case)


assert [f.name for f in fields(Case)][: len(VALUES)] == list(VALUES)
assert len({astuple(case) for case in EMPTY_RANKS + LONG}) == len(EMPTY_RANKS + LONG)
