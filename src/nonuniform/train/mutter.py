"""What a process writes to its own log, which lies on a disk that may be full.

In: words, or the exception under way. Out: lines on stderr, if the disk takes them. A log that
cannot be written is no reason to end anything. Knows nothing of what it says.
"""

from __future__ import annotations

import contextlib
import sys
import traceback


def mutter(text: str) -> None:
    with contextlib.suppress(OSError):
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()


def mutter_exception() -> None:
    """The exception that is being handled, with its traceback."""
    mutter(traceback.format_exc().rstrip("\n"))
