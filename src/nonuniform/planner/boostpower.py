"""What a boost takes in watts, for a rack that is known and for one that is not.

In: a subject, a speedup of its GPUs. Out: watts above nominal as a share of nominal. DESIGN "Words"
(boost). The law is `power`'s; where no rack is known, a power of the speed.
"""

from __future__ import annotations

from pathlib import Path

from nonuniform.planner.figure import Figure
from nonuniform.planner.policies import Compared
from nonuniform.planner.subject import Subject
from nonuniform.power.catalog import Entry, load_rack
from nonuniform.power.curve import watts_for
from nonuniform.power.rack_file import load_rack_file

EXPONENT = 1.7


def rack_of(subject: Subject) -> Entry | None:
    if not subject.rack:
        return None
    if subject.rack.endswith(".toml"):
        return load_rack_file(Path(subject.rack)).entry
    return load_rack(subject.rack)


def extra_share(subject: Subject, speedup: float) -> Figure:
    """Nothing above a nominal set point was measured."""
    entry = rack_of(subject)
    if entry is None:
        text = f"x{speedup:.3g} in speed, power as speed to the {EXPONENT:g}"
        return Figure(speedup**EXPONENT - 1.0, "1", "assumed", text)
    gpu = entry.rack.gpu
    found = watts_for(gpu, speedup)
    text = f"x{speedup:.3g} in speed, power curve of {entry.name}"
    text += ", extrapolated" if found.extrapolated else ""
    share = [watts / gpu.nominal_w - 1.0 for watts in (found.value, found.low, found.high)]
    return Figure(share[0], "1", "computed", text, share[1], share[2])


def most_speedup(row: Compared) -> float:
    """That the policy asks for at any degree."""
    options = row.options
    return max((speedup for _, speedup in options.speedup_at), default=options.max_speedup)
