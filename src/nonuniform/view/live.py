"""The live view: keeps a state and redraws it at most eight times a second.

In: the calls of `RunObserver`. Out: a picture that is redrawn in place on a terminal; what remains
when the run ends is its last picture. Nothing is drawn by a thread: the process that watches over
the GPUs must not be interrupted, so a redraw happens in `tick`, and never takes more than a
twentieth of the time. A terminal that goes away ends the view, not the run.
"""

from __future__ import annotations

import atexit
import contextlib
import time
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.live import Live

from nonuniform.view.observer import RunObserver, discard
from nonuniform.view.plain import PlainObserver
from nonuniform.view.screen import Look, screen
from nonuniform.view.state import RunState, after_end, after_event, after_start, after_step

DRAW_EVERY_S = 1 / 8
IDLE_EVERY_S = 0.5
DRAW_SHARE = 20
# What a terminal that is gone raises; rich answers a broken pipe by leaving the program.
GONE = (OSError, ValueError, SystemExit)


def choose_observer(console: Console | None = None, plain: bool = False) -> RunObserver:
    """The live view on a terminal that can be redrawn, log lines everywhere else."""
    console = console or Console()
    if plain or not console.is_terminal or console.is_dumb_terminal:
        return PlainObserver(console.file)
    return LiveObserver(console)


class LiveObserver:
    """Redraws a `RunState`. `clock` is an argument so that a test needs no time."""

    def __init__(
        self, console: Console | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._console = console or Console()
        self._clock = clock
        self._state = RunState()
        self._live: Live | None = None
        self._start_s = clock()
        self._next_s = 0.0
        self._idle_s = 0.0
        self._changed = True
        self.draws = 0

    def on_start(self, info: dict[str, Any]) -> None:
        self._state = after_start(self._state, info)
        self._start_s = self._clock()
        self._live = Live(console=self._console, auto_refresh=False, transient=False)
        atexit.register(self._stop)  # a run that ends by an exception must not keep the cursor
        self._try(self._live.start)
        self._draw()

    def on_step(self, record: dict[str, Any]) -> None:
        self._state = after_step(self._state, record)
        self._changed = True

    def on_event(self, record: dict[str, Any]) -> None:
        self._state = after_event(self._state, record)
        self._changed = True

    def on_end(self, summary: dict[str, Any]) -> None:
        self._state = after_end(self._state, summary)
        self._draw()
        self._stop()

    def tick(self) -> None:
        now_s = self._clock()
        if now_s < self._next_s or not (self._changed or now_s >= self._idle_s):
            return
        self._draw()

    def _draw(self) -> None:
        if self._live is None:
            return
        begun_s = self._clock()
        size = self._console.size
        ascii_only = not self._console.encoding.lower().startswith("utf")
        look = Look(size.width, size.height, ascii_only)
        live, picture = self._live, screen(self._state, begun_s - self._start_s, look)
        self._try(lambda: live.update(picture, refresh=True))
        done_s = self._clock()
        self._next_s = begun_s + max(DRAW_EVERY_S, DRAW_SHARE * (done_s - begun_s))
        self._idle_s = begun_s + IDLE_EVERY_S
        self._changed = False
        self.draws += 1

    def _stop(self) -> None:
        if self._live is not None:
            self._try(self._live.stop)
            self._live = None
            atexit.unregister(self._stop)

    def _try(self, act: Callable[[], None]) -> None:
        try:
            act()
        except GONE:
            live, self._live = self._live, None
            self._console.quiet = True
            if live is not None:
                with contextlib.suppress(*GONE):
                    live.stop()  # gives back stdout and stderr, which it had taken over
            atexit.unregister(self._stop)
            discard(self._console.file)
