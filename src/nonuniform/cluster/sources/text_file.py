"""A text file -> its lines, with nothing lost on the way.

In: a path. Out: the lines, and which of them are not UTF-8; their wrong bytes are shown as U+FFFD.
Knows nothing of what the lines say.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from nonuniform.cluster.sources.bad_rows import Findings
from nonuniform.errors import BadInput


@dataclass(frozen=True)
class Lines:
    """`bad`: numbers of the lines (from 1) that are not UTF-8."""

    text: tuple[str, ...]
    bad: frozenset[int]

    def numbered(self) -> list[tuple[int, str]]:
        """(number from 1, line), without blank lines and those that are not UTF-8."""
        return [
            (number, line)
            for number, line in enumerate(self.text, start=1)
            if line and not line.isspace() and number not in self.bad
        ]


def read_bytes(path: Path) -> bytes:
    """The file, or `BadInput`."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror}") from error
    if not data.removeprefix(b"\xef\xbb\xbf").strip():
        raise BadInput(f"{path}: the file is empty")
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise BadInput(f"{path}: the file is UTF-16, expected UTF-8")
    return data


def read_lines(path: Path, findings: Findings) -> Lines:
    """Line ends of any system are taken off. Lines that are not UTF-8 are wrong rows."""
    data = read_bytes(path)
    try:
        text, bad = data.decode("utf-8-sig"), frozenset[int]()
    except UnicodeDecodeError:
        text = data.decode("utf-8-sig", errors="replace")
        raw = enumerate(data.split(b"\n"), start=1)
        bad = frozenset(number for number, line in raw if not _is_utf8(line))
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    if bad:
        first = min(bad)
        findings.add("bytes that are not UTF-8", len(bad), first, f" ({lines[first - 1][:40]!r})")
    return Lines(tuple(lines), bad)


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode("utf-8-sig")
    except UnicodeDecodeError:
        return False
    return True
