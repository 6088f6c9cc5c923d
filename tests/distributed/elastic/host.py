"""Runs the command line again and again in one process, for tests that need many short runs.

In: one JSON object per line on stdin, `{"arguments": [...]}`, and with `"around": [folder, module,
name]` a context in which the command runs, from a module of the tests. Out: one per line on stdout,
`{"status": ..., "stderr": ...}`. The server that workers are forked from starts once, not once per
run, which is most of the time that a short run takes.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable

from nonuniform.cli import main


def context_of(around: list[str] | None) -> contextlib.AbstractContextManager[None]:
    """Processes that are forked later look for modules where this one does."""
    if around is None:
        return contextlib.nullcontext()
    folder, module, name = around
    if folder not in sys.path:
        sys.path.insert(0, folder)
    make: Callable[[], contextlib.AbstractContextManager[None]]
    make = getattr(importlib.import_module(module), name)
    return make()


def run_one(arguments: list[str], around: list[str] | None = None) -> dict[str, object]:
    """The exit status of one command, and what it printed for the person."""
    errors = io.StringIO()
    status: object = 0
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(errors):
        try:
            with context_of(around):
                main(arguments)
        except SystemExit as end:
            status = 0 if end.code is None else end.code
        except Exception:
            traceback.print_exc()
            status = 1
    return {"status": status, "stderr": errors.getvalue()}


def end_with(parent: int) -> None:
    """Without the tests nobody reads the answers: end, and the processes of the run with it."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def serve() -> None:
    """Until stdin is closed. Nobody else may write to the pipe that carries the answers."""
    threading.Thread(target=end_with, args=(os.getppid(),), daemon=True).start()
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    for line in sys.stdin:
        answers.write(json.dumps(run_one(**json.loads(line))) + "\n")


if __name__ == "__main__":
    serve()
