"""A file of JSON lines that is only ever appended to, and survives a disk that is full for a while.

In: rows. Out: lines, handed to the system as soon as they are logged; what the disk does not take
is kept and written with a later line, so nothing is lost, doubled or half written. A whole line
that cannot be read stays where it is: good rows may lie behind it. Knows nothing of what is in a
row.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any


class RowLog:
    """`trouble`: what the system said when it last refused a line; empty if it took it."""

    def __init__(self, path: Path, *, resume: bool = False) -> None:
        """Without `resume` the file must not exist: of two runs that start in one folder at one
        moment one is refused. With it, half a line at the end is cut off."""
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | (0 if resume else os.O_EXCL)
        self.path = path
        self.trouble = ""
        self._backlog = b""
        self._file = os.open(path, flags, 0o644)
        if resume:
            self.cut(lambda row: True)

    def append(self, line: str) -> None:
        self._backlog += line.encode() + b"\n"
        self.retry()

    def retry(self) -> None:
        """Hand over what the system has not taken yet; `trouble` says how that went."""
        try:
            self.flush()
            self.trouble = ""
        except OSError as error:
            self.trouble = error.strerror or str(error)

    def flush(self) -> None:
        """Hand everything to the system, or raise OSError."""
        while self._backlog:
            written = os.write(self._file, self._backlog)
            self._backlog = self._backlog[written:]

    def read(self) -> tuple[list[dict[str, Any]], int]:
        """All rows, and how many whole lines are none. Changes nothing."""
        found = [_row(line) for line in self._lines() if line.strip()]
        rows = [row for row in found if row is not None]
        return rows, len(found) - len(rows)

    def cut(self, keep: Callable[[dict[str, Any]], bool]) -> dict[str, Any] | None:
        """Take out the first row that is not to be kept, all after it, and half a line at the end;
        the last row that stays. What the disk has not taken yet counts as written."""
        last, offset = None, 0
        for line in self._lines():
            row = _row(line)
            if row is not None and not keep(row):
                break
            last, offset = last if row is None else row, offset + len(line)
        written = os.fstat(self._file).st_size
        os.ftruncate(self._file, min(offset, written))
        self._backlog = self._backlog[: max(0, offset - written)]
        self.retry()
        return last

    def _lines(self) -> Iterator[bytes]:
        """Whole ones, each with its end."""
        half = b""
        with open(self.path, "rb") as file:
            for line in file:
                if line.endswith(b"\n"):
                    yield line
                else:
                    half = line
        *whole, _ = (half + self._backlog).split(b"\n")
        yield from (line + b"\n" for line in whole)

    def close(self) -> None:
        self.flush()
        os.fsync(self._file)
        os.close(self._file)


def _row(line: bytes) -> dict[str, Any] | None:
    """The row of a line; None where the line holds none."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None
