"""What a policy may do with a hurt cluster, and what its transitions cost.

In: plain words and numbers. Out: one frozen value, checked by itself (`limits.py` checks it against
a cluster and a job). DESIGN "Policies". Decides nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

from nonuniform.errors import BadInput

Kind = Literal["uniform", "dp-drop", "ntp", "ntp-pw"]
Batch = Literal["shrink", "fixed"]
Grain = Literal["sequence", "microbatch", "token"]
Packing = Literal["packed", "spread", "none"]
SpareUnit = Literal["domain", "replica", ""]
OnFailure = Literal["wait", "restart"]
Repack = Literal["at-once", "next-failure", "next-checkpoint", "never"]

_WORDS: dict[str, Any] = {
    "kind": Kind,
    "batch": Batch,
    "grain": Grain,
    "packing": Packing,
    "spare_unit": SpareUnit,
    "on_failure": OnFailure,
    "repack": Repack,
}
COSTS = ("detect_s", "regroup_s", "transfer_s", "restart_s", "redo_s", "checkpoint_every_s")


@dataclass(frozen=True)
class PolicyOptions:
    """One policy.

    `degrees`: the legal degrees, () for any; the full one is always legal. `one_degree`: all hurt
    replicas of the job at one reduced degree, the one that gives most. `batch_at`: sequences of a
    replica at a degree, in place of the formula. `speed_at`: of a replica at a degree against a
    whole one, in place of degree / full degree. `max_speedup`: how much faster boost makes the GPUs
    of a hurt replica; `speedup_at` a degree where given. `spare_unit`: "" for the usual one of the
    kind.
    """

    kind: Kind
    degrees: tuple[int, ...] = ()
    min_degree: int = 1
    one_degree: bool = False
    batch: Batch = "shrink"
    grain: Grain = "sequence"
    batch_at: tuple[tuple[int, int], ...] = ()
    speed_at: tuple[tuple[int, float], ...] = ()
    packing: Packing = "packed"
    spare_domains: int = 0
    spare_unit: SpareUnit = ""
    max_speedup: float = 1.15
    speedup_at: tuple[tuple[int, float], ...] = ()
    on_failure: OnFailure = "wait"
    repack: Repack = "at-once"
    detect_s: float = 0
    regroup_s: float = 0
    transfer_s: float = 0
    restart_s: float = 0
    redo_s: float = 0
    checkpoint_every_s: float = 0

    def __post_init__(self) -> None:
        self._check_words()
        self._check_numbers()
        self._check_pairs()

    @property
    def reduces(self) -> bool:
        """A hurt replica may run at a lower degree."""
        return self.kind in ("ntp", "ntp-pw")

    @property
    def boosts(self) -> bool:
        return self.kind == "ntp-pw"

    @property
    def waits(self) -> bool:
        """Nobody works while the job isn't whole."""
        return self.kind == "uniform" and self.on_failure == "wait"

    @property
    def goes_back(self) -> bool:
        """Who restarts does so from the last checkpoint; whoever goes on live keeps its place."""
        return self.checkpoint_every_s > 0 and self.restart_s > 0

    @property
    def in_place(self) -> bool:
        """Replicas are never put together anew."""
        return self.packing == "none" or self.repack == "never"

    @property
    def spares_by_replica(self) -> bool:
        return self.spare_unit == "replica" or (not self.spare_unit and self.reduces)

    def _check_words(self) -> None:
        for key, words in _WORDS.items():
            value = getattr(self, key)
            if value not in get_args(words):
                known = ", ".join(f'"{word}"' for word in get_args(words))
                raise BadInput(f'[policies] {key} = "{value}": expected one of {known}')

    def _check_numbers(self) -> None:
        for key, least in (("min_degree", 1), ("spare_domains", 0)):
            if getattr(self, key) < least:
                raise BadInput(f"[policies] {key} = {getattr(self, key)} must be at least {least}")
        for key in COSTS:
            value = getattr(self, key)
            if not (math.isfinite(value) and value >= 0):
                raise BadInput(f"[policies] {key} = {value} must be at least 0 and finite")
        if not (math.isfinite(self.max_speedup) and self.max_speedup >= 1):
            raise BadInput(
                f"[policies] max_speedup = {self.max_speedup} must be at least 1 and finite"
            )
        if min(self.degrees, default=1) < 1 or len(set(self.degrees)) < len(self.degrees):
            raise BadInput(
                f"[policies] degrees = {list(self.degrees)} must be different and at least 1"
            )

    def _check_pairs(self) -> None:
        """Options that contradict one another."""
        if self.on_failure == "restart" and self.kind != "uniform":
            raise BadInput(
                f'[policies] on_failure = "restart" belongs to uniform, not to {self.kind}'
            )
        if self.in_place and self.spare_domains:
            key = 'packing = "none"' if self.packing == "none" else 'repack = "never"'
            raise BadInput(
                f"[policies] {key} can't use spare_domains = {self.spare_domains}: "
                "replicas keep their own domains"
            )
        if self.repack == "next-checkpoint" and not self.checkpoint_every_s:
            raise BadInput('[policies] repack = "next-checkpoint" needs checkpoint_every_s above 0')
        if self.batch_at and self.batch == "fixed":
            raise BadInput(
                '[policies] batch_at belongs to batch = "shrink": a fixed batch is dealt by speed'
            )
        self._check_batch_at()
        self._check_speeds()

    def _check_speeds(self) -> None:
        for key, least, most in (("speed_at", 0.0, 1.0), ("speedup_at", 1.0, math.inf)):
            rows = sorted(getattr(self, key))
            shown = ", ".join(f"{degree} -> {factor:g}" for degree, factor in rows)
            if len({degree for degree, _ in rows}) < len(rows):
                raise BadInput(f"[policies] {key} ({shown}) must name each degree once")
            for degree, factor in rows:
                if not (least <= factor <= most and 0 < factor < math.inf):
                    bounds = (
                        f"above 0 and at most {most:g}" if least == 0 else f"at least {least:g}"
                    )
                    raise BadInput(f"[policies] {key} {degree} -> {factor:g} must be {bounds}")
        speeds = [speed for _, speed in sorted(self.speed_at)]
        if speeds != sorted(speeds):
            shown = ", ".join(f"{degree} -> {speed:g}" for degree, speed in sorted(self.speed_at))
            raise BadInput(f"[policies] speed_at ({shown}) must not make a lower degree faster")

    def _check_batch_at(self) -> None:
        rows = sorted(self.batch_at)
        degrees = [degree for degree, _ in rows]
        sequences = [number for _, number in rows]
        shown = ", ".join(f"{degree} -> {number}" for degree, number in rows)
        if len(set(degrees)) < len(degrees) or min(sequences, default=0) < 0:
            raise BadInput(
                f"[policies] batch_at ({shown}) must name each degree once, with at least "
                "0 sequences"
            )
        if sequences != sorted(sequences):
            raise BadInput(
                f"[policies] batch_at ({shown}) must not give a lower degree more sequences"
            )
