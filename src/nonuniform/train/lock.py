"""One run at a time in a folder: a lock that the launcher and all its processes hold.

In: the folder. Out: held locks, which the system releases when the last process of the run is gone,
in whatever way it ended. So a run that goes on (`--resume`) can wait until the ranks of the one
before have written what they hold. Knows nothing of what is in the folder.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

from nonuniform.errors import BadInput

LOCK_FILE = "run.lock"
LOOK_S = 0.1


class RunLock:
    """Held as long as this process lives, or until the context is left."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / LOCK_FILE
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def take(self, patience_s: float) -> None:
        """Be the only run of the folder. BadInput if another one's processes stay that long."""
        limit_s = time.monotonic() + patience_s
        # From the second on this run's processes may hold it too.
        while not (self._try(fcntl.LOCK_EX) and self._try(fcntl.LOCK_SH)):
            if time.monotonic() > limit_s:
                raise BadInput(f"--out {self._path.parent}: another run is at work there")
            time.sleep(LOOK_S)

    def share(self) -> None:
        """Hold it as one of the run's processes."""
        self._try(fcntl.LOCK_SH)

    def __enter__(self) -> RunLock:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)

    def _try(self, kind: int) -> bool:
        try:
            fcntl.flock(self._file, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            return True  # a file system without locks: then nobody is kept out
        return True
