"""What one layout costs, as plain numbers for people and scripts.

In: units, base degree, degree. Out: a dict with the keys of `nonuniform layout --json`.
DESIGN: "Nested layouts", "Outside contract". Does not know: models, tensors, time.
"""

from __future__ import annotations

from nonuniform.errors import BadInput
from nonuniform.layout.nested import nested_layout


def layout_report(
    units: int, base: int, degree: int, unit_bytes: int = 1
) -> dict[str, int | float | list[int]]:
    """A sync of a replica at `base` when the sync degree is `degree`, and the load at `degree`.

    `moved` counts units that change their rank, one way; `lower_bound` those that must, because
    their rank holds nothing in a sync. `bytes_moved` is `moved` x `unit_bytes`; with the default
    of 1 byte it is the number of units. `slowdown` is time at `degree` over time of a perfectly
    balanced base.
    """
    if unit_bytes < 1:
        raise BadInput(f"unit_bytes = {unit_bytes}: must be at least 1")
    before, after = nested_layout(units, base, base), nested_layout(units, base, degree)
    kept = sum(len(set(old) & set(new)) for old, new in zip(before.held, after.held, strict=False))
    moved = units - kept
    load_max = max(after.sizes)
    return {
        "units": units,
        "base": base,
        "degree": degree,
        "sizes": list(after.sizes),
        "gained": [new - old for new, old in zip(after.sizes, before.sizes, strict=False)],
        "moved": moved,
        "lower_bound": sum(before.sizes[degree:]),
        "bytes_moved": moved * unit_bytes,
        "load_max": load_max,
        "load_mean": units / degree,
        "slowdown": load_max * base / units,
    }
