"""What the pieces of a life add up to: GPU-hours by bucket, means, spares over time.

In: a life. Out: exact sums. Knows nothing of how it came about.
"""

from __future__ import annotations

from fractions import Fraction

from oracle.clockwork import Training
from oracle.shape import spares_needed

SLIVER_H = Fraction(1, 10**9)
"""Shorter stretches are two moments that a float cannot be asked to tell apart."""

Step = tuple[float, float, str]


def gpu_hours(life: Training) -> dict[str, Fraction]:
    case = life.case
    fleet = case.domains * case.domain
    names = ("useful", "transition", "redone", "failed", "idled", "spare")
    sums = dict.fromkeys(names, Fraction(0))
    names_of_modes = {"run": "useful", "stall": "transition", "redo": "redone"}
    for piece in life.pieces:
        hours, failed, busy = piece.end - piece.start, sum(piece.lost), piece.work.busy
        idle = fleet - failed - busy
        spare = min(idle, Fraction(fleet - case.planned_gpus))
        sums["failed"] += failed * hours
        sums[names_of_modes[piece.mode]] += busy * hours
        sums["spare"] += spare * hours
        sums["idled"] += (idle - spare) * hours
    return sums


def throughput_mean(life: Training) -> Fraction:
    done = [(p.end - p.start) * p.work.throughput for p in life.pieces if p.mode == "run"]
    return sum(done, Fraction(0)) / life.now


def throughput_worst(life: Training) -> Fraction:
    told = (p for p in life.pieces if p.mode != "stall" and p.end - p.start >= SLIVER_H)
    return min((p.work.throughput for p in told), default=Fraction(0))


def boosted_share(life: Training) -> Fraction:
    boosted = [(p.end - p.start) * p.work.boosted for p in life.pieces]
    return sum(boosted, Fraction(0)) / life.now / life.case.replicas


def spares_at(life: Training, share: Fraction) -> int:
    """So many spare domains are enough for at least this share of the time."""
    needed = {lost: spares_needed(life.case, lost) for lost in {p.lost for p in life.pieces}}
    for number in sorted(set(needed.values())):
        enough = [p.end - p.start for p in life.pieces if needed[p.lost] <= number]
        if sum(enough, Fraction(0)) >= share * life.now:
            return number
    raise AssertionError("the largest number is enough for all of the time")


def steps(life: Training) -> list[Step]:
    """(start, throughput, mode), only where one of the two changes.

    A job that does nothing at all is not told apart from one that stalls or redoes at speed 0.
    """
    told: list[tuple[Fraction, Fraction, str]] = []
    for piece in life.pieces:
        if piece.end - piece.start < SLIVER_H:
            continue
        y = piece.work.throughput
        mode = "run" if y == 0 else piece.mode
        if not told or told[-1][1:] != (y, mode):
            told.append((piece.start, y, mode))
    return [(float(t), float(y), mode) for t, y, mode in told]
