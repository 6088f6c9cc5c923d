"""Around the command line, in the process of the launcher: workers that strike, fences that fail,
a launcher that fails itself.

In: nothing. Out: contexts in which `nonuniform train` runs. Knows nothing of what is struck.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator

from means.strikes import striking_main

from nonuniform.protocol.events import WriteDown
from nonuniform.train import run as train_run
from nonuniform.train.launcher import Launcher
from nonuniform.train.roster import Roster


@contextlib.contextmanager
def striking() -> Iterator[None]:
    """Runs started inside have workers that strike."""
    before = train_run.train
    train_run.train = functools.partial(before, target=striking_main)  # type: ignore[assignment]
    try:
        yield
    finally:
        train_run.train = before


@contextlib.contextmanager
def striking_without_fence() -> Iterator[None]:
    """As `striking`, and a process that is given up lives on, as on a machine that was cut off."""
    before = Roster.fence

    def forget(roster: Roster, gpu: str) -> None:
        roster._fenced.append(roster.living.pop(gpu))

    Roster.fence = forget  # type: ignore[method-assign]
    try:
        with striking():
            yield
    finally:
        Roster.fence = before  # type: ignore[method-assign]


FAULT_STEP = 6


@contextlib.contextmanager
def failing_launcher() -> Iterator[None]:
    """The launcher finds no memory when it is to write down a step."""
    before = Launcher._HANDS[WriteDown]

    def write_down(launcher: Launcher, order: WriteDown) -> None:
        if order.work.step == FAULT_STEP:
            raise MemoryError("no memory is left")
        before(launcher, order)

    Launcher._HANDS[WriteDown] = write_down
    try:
        yield
    finally:
        Launcher._HANDS[WriteDown] = before
