"""What people look at: a run while it goes on, its picture, and two runs side by side.

In: plain dicts, or the files of a run's folder. Out: text, renderables, a PNG.
Does not know: torch, the runtime, how a tensor is cut.
"""

from __future__ import annotations

from nonuniform.view.compare import Comparison, Row, compare_runs
from nonuniform.view.live import LiveObserver, choose_observer
from nonuniform.view.observer import NullObserver, RunObserver
from nonuniform.view.picture import draw_run
from nonuniform.view.plain import PlainObserver
from nonuniform.view.records import RunRecords, read_run

__all__ = [
    "Comparison",
    "LiveObserver",
    "NullObserver",
    "PlainObserver",
    "Row",
    "RunObserver",
    "RunRecords",
    "choose_observer",
    "compare_runs",
    "draw_run",
    "read_run",
]
