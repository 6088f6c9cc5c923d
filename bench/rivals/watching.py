"""A log that grows, read by somebody outside the run: every runtime is timed by the same clock.

In: a file of JSON lines. Out: its rows, with the moment at which each was seen. Every wait has a
bound.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

POLL_S = 0.002

Row = dict[str, Any]
"""A line of the log, and `seen_s` on the monotonic clock."""


class Tail:
    """`rows` holds what was written since. A log may also be cut back to an earlier line and
    written on from there, as a resumed run does: what comes then is new, though its place is not.
    """

    def __init__(self, path: Path) -> None:
        self.rows: list[Row] = []
        self._path = path
        self._lines = _whole_lines(path) if path.exists() else []
        self._stamp: tuple[int, ...] = ()

    def read(self) -> None:
        """Take in what was added."""
        if not self._path.exists():
            return
        status = self._path.stat()
        stamp = (status.st_ino, status.st_size, status.st_mtime_ns)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        lines = _whole_lines(self._path)
        seen_s = time.monotonic()
        pairs = enumerate(zip(self._lines, lines, strict=False))
        common = min(len(self._lines), len(lines))
        same = next((i for i, (old, new) in pairs if old != new), common)
        self.rows += [json.loads(line) | {"seen_s": seen_s} for line in lines[same:]]
        self._lines = lines

    def until(self, happened: Callable[[list[Row]], bool], ended: Ended, limit_s: float) -> bool:
        """Read until something has happened: True; False if the run is at its end before."""
        for _ in _polls(limit_s):
            over = ended()
            self.read()
            if happened(self.rows):
                return True
            if over:
                return False
        raise TimeoutError(f"{self._path.name}: {len(self.rows)} rows after {limit_s:g} s")


Ended = Callable[[], bool]
"""Whether the run is at its end."""


def _polls(limit_s: float) -> Iterator[None]:
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        yield
        time.sleep(POLL_S)


def _whole_lines(path: Path) -> list[bytes]:
    """The last piece is empty, or a line that is not written to its end yet."""
    return path.read_bytes().split(b"\n")[:-1]
