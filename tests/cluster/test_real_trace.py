"""A production trace, in both of its forms: 400 nodes of 8 GPUs over 345 days."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nonuniform.cluster.fleet import Fleet
from nonuniform.cluster.sources.bad_rows import LogReport
from nonuniform.cluster.sources.log_format import Clock, Columns, LogFormat, Nodes
from nonuniform.cluster.sources.read import read_log
from nonuniform.cluster.trace import Trace

HERE = Path(__file__).resolve()
FOLDER = next(
    (p / "shared/data/failures" for p in HERE.parents if (p / "shared/data/failures").is_dir()),
    Path("shared/data/failures"),
)
needs_data = pytest.mark.skipif(not FOLDER.is_dir(), reason="no shared/data beside the checkout")
pytestmark = needs_data

NODES, NODE = 400, 8
EVENTS = LogFormat(
    columns=Columns(
        node="node_id",
        time="event_time",
        event="event_type",
        starts="fault_start",
        ends="fault_end",
        cause=("fault_type.Level", "fault_type.Class", "fault_type.Desc"),
    ),
    clock=Clock("day"),
    expand="node",
)
PAIRED = LogFormat(
    columns=Columns(
        node="node_id", start="start_day", end="end_day", cause=("level", "class", "desc")
    ),
    clock=Clock("day"),
    expand="node",
)


def read(domain: int = NODE, form: LogFormat = EVENTS) -> tuple[Trace, LogReport]:
    name = "fault_trace.json" if form.columns.time else "fault_intervals_paired.csv"
    return read_log(FOLDER / name, form, Fleet(NODES * NODE, domain, NODE))


def lost_gpu_hours(trace: Trace, gpus: int) -> tuple[np.ndarray, int]:
    """GPU-hours lost of each GPU, and the most nodes down at a time; slow and plain."""
    hours, moments = np.zeros(gpus), []
    for gpu in range(gpus):
        rows = (trace.first_gpu <= gpu) & (gpu < trace.first_gpu + trace.gpus)
        until = 0.0
        for start, end in zip(trace.start_h[rows], trace.end_h[rows], strict=True):
            first, last = max(start, until), min(end, trace.hours)
            if last > first:
                hours[gpu] += last - first
                if gpu % NODE == 0:
                    moments += [(first, 1), (last, -1)]
            until = max(until, end)
    down = np.cumsum([step for _, step in sorted(moments)])
    return hours, int(down.max())


def test_its_published_figures_come_out() -> None:
    trace, report = read()
    assert len(trace) == 584
    assert report.rows == 1168
    assert trace.hours / 24 == pytest.approx(348.9798 - 3.8955)
    assert len(trace) / NODES / trace.hours * 24 * 1000 == pytest.approx(4.23, abs=0.005)
    hours, most = lost_gpu_hours(trace, NODES * NODE)
    assert hours.mean() / trace.hours == pytest.approx(0.0234, abs=0.00005)
    assert most == 35
    assert len(trace.causes) == 40
    assert set(trace.gpus) == {NODE}
    assert not report.dropped


def test_both_forms_of_it_are_the_same_trace() -> None:
    paired, report = read(form=PAIRED)
    assert paired == read()[0]
    assert report.rows == 584


@pytest.mark.parametrize(("domain", "leftover"), [(8, 0), (32, 0), (72, 32)])
def test_it_maps_on_domains_of_any_size(domain: int, leftover: int) -> None:
    fleet = Fleet(NODES * NODE, domain, NODE)
    trace, report = read(domain)
    trace.check(fleet)
    assert fleet.leftover == leftover
    hours, _ = lost_gpu_hours(trace, fleet.gpus)
    by_domain = hours[: fleet.in_domains].reshape(fleet.domains, domain).sum(axis=1)
    # Nodes without a failure come last, so that what is left over loses nothing.
    assert by_domain.sum() == pytest.approx(hours.sum())
    assert any("231 nodes of 400" in text for text in report.assumed)


def test_scattering_the_nodes_moves_failures_and_loses_none() -> None:
    scattered = LogFormat(
        columns=EVENTS.columns,
        clock=EVENTS.clock,
        expand="node",
        nodes=Nodes(order="random", seed=3),
    )
    there, here = read(32, scattered)[0], read(32)[0]
    assert there.first_gpu.max() > here.first_gpu.max() == 230 * NODE
    a, b = lost_gpu_hours(there, NODES * NODE), lost_gpu_hours(here, NODES * NODE)
    np.testing.assert_allclose(sorted(a[0]), sorted(b[0]))
    assert a[1] == b[1] == 35


def test_what_was_assumed_is_said() -> None:
    _, report = read()
    assert set(report.assumed) == {
        "14 failures that ended as they began: 1 s each (instant_s)",
        "231 nodes of 400 are in the log, numbered by first failure, so that those that fail early "
        "are neighbours; the others never fail",
        "584 of 584 failures take all 8 GPUs of the node (expand)",
        "the window is 345.08 days: the first time of the log to the last time of the log",
        "2 failures of GPUs that were down already: they count once",
    }
