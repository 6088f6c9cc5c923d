"""Results on disk: files whole or not at all, values as JSON holds them, faults told to people.

In: a path and who writes it; any value; an error. Out: the file; plain values; the error to show.
Shared by the folders of simulations and plans. Knows nothing of what is in them.
"""

from __future__ import annotations

import math
import os
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from nonuniform.errors import NonuniformError, RunFailed

ERROR_LOG = "error.log"


def replace_whole(path: Path, write: Callable[[Path], object]) -> None:
    """`write` fills a file beside it, which then takes its place."""
    part = path.with_name(f"{path.name}.part")
    try:
        write(part)
        os.replace(part, path)
    except OSError as error:
        raise RunFailed(f"{path}: {error.strerror or error}") from error


def plain(value: Any) -> Any:
    """As JSON holds it: no NaN and no infinity, these become null."""
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, str | bool | int | float):
        return value
    return str(value)  # a date of TOML


def as_told(error: BaseException, folder: Path) -> BaseException:
    """As it is told to a person; the rest of a fault of ours goes into a file."""
    ours = isinstance(error, Exception) and not isinstance(error, NonuniformError | BrokenPipeError)
    if not ours:
        return error
    log = folder / ERROR_LOG
    log.write_text(traceback.format_exc(), encoding="utf-8")
    return RunFailed(f"{type(error).__name__}: {error} (see {log})")
