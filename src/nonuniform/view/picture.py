"""The picture of a run: losses, degrees, and how far the loss is from an undisturbed run.

In: (label, folder) of one run, and if wanted of others of the same job; the first one is the run
whose degrees and incidents are drawn. Out: a PNG. matplotlib is optional: without it nothing is
drawn and the caller gets one line that says how to get it.
Colours are those of Okabe and Ito, told apart with any colour vision; line styles and markers say
the same once more.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nonuniform.view.compare import compare_records
from nonuniform.view.records import RunRecords, read_run

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HINT = "no picture: matplotlib is missing (from a checkout: pip install '.[report]')"

BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY = (
    "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9",
)  # fmt: skip
_LOSSES = (BLUE, ORANGE, GREEN, PURPLE)
_REPLICAS = (BLUE, ORANGE, GREEN, PURPLE, SKY, "#000000")
_DASHES = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)), "-.", "-", "--")
_BOX: dict[str, Any] = {"facecolor": "white", "edgecolor": "none", "framealpha": 0.9}
_INCIDENTS = {
    "failed": ("X", VERMILION, "GPU lost"),
    "joined": ("o", GREEN, "GPU joined"),
}


def draw_run(runs: Sequence[tuple[str, Path]], out: Path) -> str | None:
    """Writes `out`; returns a hint instead of failing where matplotlib is missing."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return HINT
    read = [(label, read_run(folder)) for label, folder in runs]
    heights = [3.0, 1.9, 1.5][: 3 if len(read) > 1 else 2]
    figure = Figure(figsize=(9.0, 1.1 + 1.15 * sum(heights)), dpi=140, layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(len(heights), 1, sharex=True, height_ratios=heights, squeeze=False)
    panels: list[Axes] = list(grid[:, 0])
    _draw_losses(panels[0], read)
    _draw_degrees(panels[1], read[0][1])
    if len(read) > 1:
        _draw_difference(panels[2], read[0][1], read[1][1])
    for panel in panels:
        _mark_incidents(panel, read[0][1])
        panel.grid(alpha=0.25, linewidth=0.6)
        panel.spines[["top", "right"]].set_visible(False)
        panel.margins(x=0.015)
    panels[-1].set_xlabel("committed step")
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out)
    return None


def _draw_losses(panel: Axes, read: Sequence[tuple[str, RunRecords]]) -> None:
    """The first run is thin and on top, the others are broad below: equal curves stay visible."""
    for place, (label, run) in reversed(list(enumerate(read))):
        colour = _LOSSES[place % len(_LOSSES)]
        broad = place > 0
        panel.plot(
            *_series(run.steps),
            color=colour,
            linewidth=5.0 if broad else 1.4,
            alpha=0.55 if broad else 1.0,
            label=label,
            zorder=2 if broad else 3,
        )
        checks = run.of_kind("validation")
        if checks:
            panel.plot(
                *_series(checks),
                linestyle="none",
                marker="s" if broad else "d",
                markersize=9 if broad else 5,
                color=colour,
                markeredgecolor="white",
                label=f"{label}, validation",
                zorder=4 if broad else 5,
            )
    panel.set_title("Training loss", loc="left", fontsize=11)
    panel.set_ylabel("loss (nats per token)")
    panel.legend(fontsize=8, loc="upper right", **_BOX).set_zorder(6)


def _series(records: Sequence[dict[str, Any]]) -> tuple[list[int], list[float]]:
    known = [record for record in records if record.get("loss") is not None]
    return [int(record["step"]) for record in known], [float(record["loss"]) for record in known]


def _draw_degrees(panel: Axes, run: RunRecords) -> None:
    steps = [int(record["step"]) for record in run.steps]
    count = max((len(record.get("degrees", ())) for record in run.steps), default=0)
    groups = _replica_groups(run, count)
    highest = 1
    for place, (label, replica) in enumerate(groups):
        degrees = [_degree(record, replica) for record in run.steps]
        highest = max(highest, *degrees)
        nudge = 0.05 * (place - (len(groups) - 1) / 2)  # lines on top of each other stay visible
        panel.step(
            steps,
            [degree + nudge for degree in degrees],
            where="mid",
            color=_REPLICAS[place % len(_REPLICAS)],
            linestyle=_DASHES[place % len(_DASHES)],
            linewidth=2.0,
            label=label,
        )
    _mark_degrees(panel, run)
    panel.set_title("GPUs that each replica works with", loc="left", fontsize=11)
    panel.set_ylabel("degree (GPUs)")
    lowest = 0 if highest <= 12 else _lowest_degree(run)
    panel.set_ylim(
        lowest - 0.3 * (highest - lowest) - 0.4, highest + 0.2 * (highest - lowest) + 0.4
    )
    panel.set_yticks(range(lowest, highest + 1, max(1, (highest - lowest) // 6)))
    legend = panel.legend(fontsize=8, loc="lower left", ncols=len(groups) + 2, **_BOX)
    legend.set_zorder(6)


def _lowest_degree(run: RunRecords) -> int:
    return min((int(d) for record in run.steps for d in record.get("degrees", ())), default=0)


def _replica_groups(run: RunRecords, count: int) -> list[tuple[str, int]]:
    """Every replica, or when there are many those whose degree changes and one of the others."""
    if count <= len(_REPLICAS):
        return [(f"replica {replica}", replica) for replica in range(count)]
    seen = [{_degree(record, replica) for record in run.steps} for replica in range(count)]
    changing = [replica for replica in range(count) if len(seen[replica]) > 1]
    steady = [replica for replica in range(count) if len(seen[replica]) == 1]
    shown = [(f"replica {replica}", replica) for replica in changing[: len(_REPLICAS) - 1]]
    return shown + ([(f"{len(steady)} others", steady[0])] if steady else [])


def _draw_difference(panel: Axes, first: RunRecords, second: RunRecords) -> None:
    """On a log axis; a difference of exactly zero is drawn as a hollow point at the bottom."""
    compared = compare_records(first, second)
    apart = [(r.step, r.difference) for r in compared.rows if 0 < r.difference < float("inf")]
    equal = [row.step for row in compared.rows if row.difference == 0]
    smallest = min((value for _, value in apart), default=1e-9)
    if apart:
        panel.plot(*zip(*apart, strict=True), color=BLUE, marker=".", linewidth=0.9, markersize=4)
    if equal:
        panel.plot(
            equal, [smallest / 3] * len(equal), linestyle="none", marker="o", markersize=3.5,
            markerfacecolor="none", color=BLUE,
        )  # fmt: skip
    largest = compared.largest
    title = "Distance of the two losses"
    if largest is not None:
        most = f"at most {largest.difference:.1e} at step {largest.step}"
        title += f": {most if largest.difference else 'none'}"
    panel.set_title(title + (" (hollow: exactly equal)" if equal else ""), loc="left", fontsize=11)
    panel.set_ylabel("|difference| (nats)")
    panel.set_yscale("log")
    panel.set_ylim(smallest / 6, max((value for _, value in apart), default=1e-7) * 4)


def _mark_incidents(panel: Axes, run: RunRecords) -> None:
    for event in run.of_kind(*_INCIDENTS):
        _, colour, _ = _INCIDENTS[event["kind"]]
        panel.axvline(int(event["step"]), color=colour, linewidth=0.9, linestyle=":", zorder=1)


def _mark_degrees(panel: Axes, run: RunRecords) -> None:
    """Markers at the degree that the replica had from that step on, with the names of the GPUs."""
    together: dict[tuple[str, int, float], list[str]] = {}
    for event in run.of_kind(*_INCIDENTS):
        step = int(event["step"])
        place = (str(event["kind"]), step, _degree_after(run, step, event))
        together.setdefault(place, []).append(str(event.get("gpu") or ""))
    named: set[str] = set()
    for (kind, step, height), gpus in together.items():
        marker, colour, name = _INCIDENTS[kind]
        panel.plot(
            step, height, marker=marker, markersize=9, color=colour, markeredgecolor="white",
            linestyle="none", zorder=5, label=None if name in named else name,
        )  # fmt: skip
        named.add(name)
        panel.annotate(
            ", ".join(gpus), (step, height), xytext=(0, 9), textcoords="offset points",
            ha="center", fontsize=8, fontweight="bold", color=colour, zorder=4,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8, "alpha": 0.85},
        )  # fmt: skip


def _degree_after(run: RunRecords, step: int, event: dict[str, Any]) -> float:
    replica = event.get("replica")
    if replica is None:
        replica = int(str(event.get("gpu") or "0").partition("/")[0])
    for record in run.steps:
        if int(record["step"]) >= step:
            return float(_degree(record, replica))
    return 0.0


def _degree(record: dict[str, Any], replica: int) -> int:
    """0 for a replica that is dissolved, and for one that the line does not name."""
    degrees = record.get("degrees", ())
    return int(degrees[replica]) if replica < len(degrees) else 0
