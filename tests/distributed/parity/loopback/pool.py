"""A pool of persistent processes that run one function together, a seat each.

In: a picklable function and one argument per seat. Out: what the function returned on each seat.
Every wait is bounded. When one process fails, or the time is over, all of them are ended at once
(the others may wait for the one that failed) and the next run starts new ones.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar

import torch
import torch.distributed as dist

from nonuniform.train.alarm import Alarm
from nonuniform.train.groups import GlooFabric, Group, Reaper, open_group
from nonuniform.train.membership import connect_store, host_store

# What is slow to import is imported once, in the server that the processes are forked from; the
# launcher asks for the same, and the first of both in this process starts the server.
PRELOAD = ["torch._dynamo", "nonuniform.train.worker"]
ADDRESS = "127.0.0.1"
PATIENCE_S = 60.0  # of a process for its peers
DEADLINE_S = 120.0  # of the test for a process

T = TypeVar("T")
A = TypeVar("A")


class SeatFailed(Exception):
    """A process of the pool raised, warned, died or did not answer in time."""


@dataclass
class Seat:
    """The place of a process in one run: what it needs to meet the others."""

    index: int
    store: Any
    groups: list[Any] = field(default_factory=list)

    def open(self, name: str, rank: int, size: int) -> Group:
        group = open_group(self.store, name, rank, size, Alarm(PATIENCE_S), GlooFabric(ADDRESS))
        self.groups.append(group)
        return group


@dataclass(frozen=True)
class _Process:
    handle: Any
    pipe: Any


class Pool:
    def __init__(self) -> None:
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(PRELOAD)
        self._store, self._port = host_store(ADDRESS, 0)
        self._processes: list[_Process] = []
        self._runs = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.end()

    def run(self, function: Callable[[Seat, A], T], arguments: Sequence[A]) -> list[T]:
        """`function(seat, argument)` on as many processes as there are arguments."""
        self._runs += 1
        while len(self._processes) < len(arguments):
            self._processes.append(self._start(len(self._processes)))
        busy = self._processes[: len(arguments)]
        try:
            for process, argument in zip(busy, arguments, strict=True):
                process.pipe.send((self._runs, function, argument))
            return _collect(busy, time.monotonic() + DEADLINE_S)
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        """End all processes and wait until they are gone."""
        processes, self._processes = self._processes, []
        for process in processes:
            process.pipe.close()
            process.handle.kill()
        for process in processes:
            process.handle.join(10.0)

    def _start(self, index: int) -> _Process:
        here, there = multiprocessing.Pipe()
        handle = self._context.Process(
            target=_serve, args=(there, index, self._port), name=f"seat {index}", daemon=True
        )
        handle.start()
        there.close()
        return _Process(handle, here)


def _collect(busy: Sequence[_Process], deadline_s: float) -> list[Any]:
    answers: dict[int, Any] = {}
    waiting = {process.pipe: index for index, process in enumerate(busy)}
    while waiting:
        left_s = max(0.0, deadline_s - time.monotonic())
        ready = multiprocessing.connection.wait(list(waiting), left_s)
        if not ready:
            raise SeatFailed(f"seats {sorted(waiting.values())} did not answer in {DEADLINE_S} s")
        for pipe in ready:
            index = waiting.pop(pipe)
            try:
                failure, answers[index] = pipe.recv()
            except EOFError:
                failure = f"its process ended, status {busy[index].handle.exitcode}"
            if failure:
                raise SeatFailed(f"seat {index}: {failure}")
    return [answers[index] for index in range(len(busy))]


def _serve(pipe: Any, index: int, port: int) -> None:
    """The life of a process: runs until its pipe is closed."""
    torch.set_num_threads(1)
    store = connect_store(ADDRESS, port, PATIENCE_S)
    reaper = Reaper()
    try:
        while True:
            run, function, argument = pipe.recv()
            seat = Seat(index, dist.PrefixStore(f"run{run}", store))
            pipe.send(_answer(function, seat, argument))
            del argument
            reaper.take(seat.groups)
            reaper.drop()
    except (EOFError, ConnectionError):
        os._exit(0)


def _answer(function: Callable[[Seat, A], T], seat: Seat, argument: A) -> tuple[str, T | None]:
    """(what went wrong, if anything; the result)."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        try:
            result = function(seat, argument)
        except BaseException:
            return traceback.format_exc(), None
    return "; ".join(f"{w.category.__name__}: {w.message}" for w in caught), result
