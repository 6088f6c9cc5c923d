"""The failure matrix as a table: who is struck, in which phase of a run, and how.

In: nothing. Out: the cells that make sense, the reasons of those that do not, and the part of them
that runs in every check. DESIGN "The step is a transaction", "Generations". Knows nothing of
processes.

The runs have three replicas of three GPUs; 0/2 is lost at step 2, so replica 0 works at degree 2
and label 2 of the others are extra ranks.
"""

from __future__ import annotations

from dataclasses import dataclass

PRIOR = "0/2"

VICTIMS: dict[str, tuple[str, ...]] = {
    "first": ("0/0",),
    "sync": ("1/0",),
    "extra": ("2/2",),
    "last": ("0/1",),
    "other": ("2/1",),
    "replica": ("1/0", "1/1", "1/2"),
    "pair": ("2/0", "2/2"),
    "two-replicas": ("1/1", "2/2"),
}
PHASES = (
    "start",
    "forward",
    "backward",
    "reshard",
    "all-reduce",
    "vote",
    "optimizer",
    "regroup",
    "transfer",
    "return",
    "checkpoint",
    "validation",
)
# "memory" is the exception of an allocation that failed; "oom" the kernel's answer to one.
WAYS = ("kill", "stop", "raise", "drain", "oom", "memory")

REAL_OOM_VICTIMS = ("first", "extra", "pair")
REAL_OOM_PHASES = ("backward", "optimizer", "transfer")


@dataclass(frozen=True)
class Cell:
    victim: str
    phase: str
    way: str

    def __str__(self) -> str:
        return f"{self.victim}-{self.phase}-{self.way}"

    @property
    def gpus(self) -> tuple[str, ...]:
        return VICTIMS[self.victim]

    @property
    def other(self) -> str:
        """The loss that comes before, where the phase belongs to the generation after a loss."""
        if self.phase not in ("regroup", "transfer"):
            return ""
        return "0/1" if "1/2" in self.gpus else "1/2"


def why_not(victim: str, phase: str, way: str) -> str | None:
    """Why a cell makes no sense, or None."""
    if way == "oom" and not (victim in REAL_OOM_VICTIMS and phase in REAL_OOM_PHASES):
        return "the kernel kills by SIGKILL: the same as kill; a few are done by it all the same"
    if way == "memory" and phase != "optimizer":
        return "an exception as any other, the same as raise; it comes where a step is torn"
    return None


def all_cells() -> tuple[Cell, ...]:
    return tuple(Cell(v, p, w) for v in VICTIMS for p in PHASES for w in WAYS)


def valid_cells() -> tuple[Cell, ...]:
    return tuple(c for c in all_cells() if why_not(c.victim, c.phase, c.way) is None)


def in_every_check(cell: Cell) -> bool:
    """A quarter, by a Latin square: of the four ways that suit every cell each victim meets each
    phase in one, each phase each way with two victims, each victim each way in three phases."""
    indices = (
        list(VICTIMS).index(cell.victim),
        PHASES.index(cell.phase),
        WAYS.index(cell.way),
    )
    return sum(indices) % 4 == 0
