"""Processes, one per GPU: started, watched, ended. Each is known by its GPU and its life number.

In: what a worker needs to start. Out: handles that say at once when a process is gone. Workers
are forked from a server process that has imported torch already, so a return costs milliseconds,
and none is ever forked from the launcher, whose store has threads. Knows nothing of training.
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import multiprocessing.connection
import multiprocessing.forkserver
import multiprocessing.resource_tracker
import os
import signal
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

_PR_SET_PDEATHSIG = 1
ORPHANED = 3  # exit status of a worker whose launcher is gone


class Process(Protocol):
    """A started worker."""

    gpu: str
    life: int
    pid: int

    def kill(self) -> None:
        """SIGKILL; returns at once."""

    def exit_status(self) -> int | None:
        """None while it runs; negative: the signal that ended it."""


@dataclass(frozen=True)
class ForkedProcess:
    gpu: str
    life: int
    pid: int
    handle: Any

    def kill(self) -> None:
        self.handle.kill()

    def exit_status(self) -> int | None:
        return self.handle.exitcode


class Spawner:
    """Starts workers by forking a server that has `preload` imported."""

    def __init__(self, preload: list[str]) -> None:
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(preload)
        # The server ignores Ctrl-C only after its imports; it must not die of one before. The
        # tracker comes first, since its start unblocks the signal.
        multiprocessing.resource_tracker.ensure_running()
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        multiprocessing.forkserver.ensure_running()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})

    def start(
        self, gpu: str, life: int, log: Path, target: Callable[..., None], args: Any
    ) -> ForkedProcess:
        """Run `target(args)` in a new process that writes what it prints to `log`."""
        handle = self._context.Process(
            target=_guarded, args=(str(log), target, args), name=f"gpu {gpu}", daemon=True
        )
        handle.start()
        assert handle.pid is not None
        return ForkedProcess(gpu, life, handle.pid, handle)


def wait_any(processes: Collection[ForkedProcess], timeout_s: float) -> list[ForkedProcess]:
    """Sleep until one of them has ended or the time is over; those that have ended."""
    by_sentinel = {process.handle.sentinel: process for process in processes}
    ready = multiprocessing.connection.wait(list(by_sentinel), timeout_s)
    return [by_sentinel[sentinel] for sentinel in ready]


def end_all(processes: Collection[ForkedProcess], patience_s: float) -> None:
    """Kill what still runs and wait until it is gone."""
    for process in processes:
        if process.exit_status() is None:
            process.kill()
    for process in processes:
        process.handle.join(patience_s)


def leave_orphaned() -> None:
    os._exit(ORPHANED)


_at_launcher_loss: list[Callable[[], None]] = [leave_orphaned]


def at_launcher_loss(callback: Callable[[], None]) -> None:
    """What this process does, in a thread, when its launcher is gone; at first it just ends."""
    _at_launcher_loss[0] = callback


def _wait_for_launcher() -> None:
    """Workers keep the fork server alive, so it does not end with the launcher by itself. The
    watch would notice by the lost store, but not before this process has connected to it."""
    launcher = multiprocessing.parent_process()
    if launcher is not None:
        multiprocessing.connection.wait([launcher.sentinel])
        _at_launcher_loss[0]()


def _guarded(log: str, target: Callable[..., None], args: Any) -> None:
    """First things in a worker: it must not outlive its parent, nor die of a signal that is the
    launcher's to answer (see `shielded`)."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    parent = os.getppid()
    # Elsewhere than on Linux the lost connection to the store ends the worker, a little later.
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    threading.Thread(target=_wait_for_launcher, name="launcher", daemon=True).start()
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    target(args)
