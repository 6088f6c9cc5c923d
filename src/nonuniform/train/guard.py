"""Whoever watches a run may fail, and the run goes on.

In: an observer. Out: the same calls; the first that raises (a closed pipe, a terminal that is
gone, a bug in a view) is the last one it gets, and is noted in the launcher's log.
"""

from __future__ import annotations

import traceback
from typing import Any

from nonuniform.view.observer import NullObserver, RunObserver


class GuardedObserver:
    """An observer that never raises."""

    def __init__(self, inner: RunObserver) -> None:
        self._inner = inner
        self.failure: str | None = None

    def on_start(self, info: dict[str, Any]) -> None:
        self._call("on_start", info)

    def on_step(self, record: dict[str, Any]) -> None:
        self._call("on_step", record)

    def on_event(self, record: dict[str, Any]) -> None:
        self._call("on_event", record)

    def on_end(self, summary: dict[str, Any]) -> None:
        self._call("on_end", summary)

    def tick(self) -> None:
        self._call("tick")

    def _call(self, name: str, *values: Any) -> None:
        try:
            getattr(self._inner, name)(*values)
        except Exception:
            self.failure = traceback.format_exc()
            self._inner = NullObserver()
