"""How often a checkpoint should be written, by formula and by simulation.

In: how long writing one takes, how often something fails. Out: seconds. Young (1974), Daly (2006)
for who goes back to a checkpoint after every failure. DESIGN "Policies". Does not know: failures
while a checkpoint is written.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from nonuniform.planner.choose import beats
from nonuniform.planner.figure import Figure
from nonuniform.planner.policies import Compared, Transition
from nonuniform.planner.subject import Subject
from nonuniform.planner.trials import ask

STEPS = (0.5, 0.71, 1.0, 1.41, 2.0)


def young_daly_s(write_s: float, mtbf_s: float) -> float:
    """Daly's higher-order estimate, which is Young's sqrt(2 w M) where w is small."""
    if not (write_s > 0 and 0 < mtbf_s < math.inf):
        return math.inf
    if write_s >= 2 * mtbf_s:
        return mtbf_s
    root = math.sqrt(2 * write_s * mtbf_s)
    ratio = write_s / (2 * mtbf_s)
    return root * (1 + math.sqrt(ratio) / 3 + ratio / 9) - write_s


def mtbf_s(subject: Subject) -> float:
    per_day = subject.failures_per_day()
    return 86400 / per_day if per_day else math.inf


def simulated(
    subject: Subject, today: Compared, transition: Transition, seeds: Sequence[int]
) -> Figure:
    """Of some intervals around the formula the one that loses least; the interval spans those that
    cannot be told from it."""
    middle = young_daly_s(transition.checkpoint_write_s, mtbf_s(subject))
    if not math.isfinite(middle):
        return Figure(None, "s", "computed", "nothing fails, or writing costs nothing")
    tried = [middle * step for step in STEPS]
    gains = []
    for every_s in tried:
        row = replace(today, options=replace(today.options, checkpoint_every_s=every_s))
        written = {today.name: min(1.0, transition.checkpoint_write_s / every_s)}
        tallies = ask(subject, [row], seeds, overheads=written)[today.name, 0]
        gains.append([t.throughput for t in tallies])
    best = max(range(len(tried)), key=lambda i: sum(gains[i]))
    alike = [
        every for every, own in zip(tried, gains, strict=True) if not beats(gains[best], own, 0)
    ]
    return Figure(
        tried[best], "s", "simulated",
        f"least loss of {len(tried)} intervals from {tried[0]:.0f} to {tried[-1]:.0f} s",
        min(alike), max(alike),
    )  # fmt: skip
