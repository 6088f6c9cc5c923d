"""What a run tells to whoever watches it.

In: plain dicts, the lines of `steps.jsonl` and `events.jsonl` as they are written. Out: nothing; an
observer never answers and never decides. DESIGN "Outside contract" names the keys of both files.
Does not know: torch, the runtime, who is watching.

    on_start   once: replicas degree min_degree steps parameters gpus ["R/I", ...] out
    on_step    per committed step
    on_event   per event, in the order of the file
    tick       often, between the others, so that a live view can move while a step runs
    on_end     once: what `summary.json` holds
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from typing import IO, Any, Protocol, TypeAlias

Record: TypeAlias = Mapping[str, Any]


class RunObserver(Protocol):
    """Watches one run. `tick` is called 20 times a second or more and must cost next to nothing.
    Whoever shows a run somewhere goes silent when that place is gone, and never raises for it."""

    def on_start(self, info: dict[str, Any]) -> None: ...

    def on_step(self, record: dict[str, Any]) -> None: ...

    def on_event(self, record: dict[str, Any]) -> None: ...

    def on_end(self, summary: dict[str, Any]) -> None: ...

    def tick(self) -> None: ...


class NullObserver:
    """Watches nothing: for tests and for runs nobody looks at."""

    def on_start(self, info: dict[str, Any]) -> None:
        pass

    def on_step(self, record: dict[str, Any]) -> None:
        pass

    def on_event(self, record: dict[str, Any]) -> None:
        pass

    def on_end(self, summary: dict[str, Any]) -> None:
        pass

    def tick(self) -> None:
        pass


def discard(stream: IO[str]) -> None:
    """From now on, what is written there goes nowhere. The descriptor itself is replaced, as what
    the stream still holds would fail once more when Python ends."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nowhere, stream.fileno())
        finally:
            os.close(nowhere)
