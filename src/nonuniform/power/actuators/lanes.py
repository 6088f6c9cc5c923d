"""Calls to the outside, one at a time for a name, all names at once, and nobody waits for ever.

In: one call per GPU, or other thing that may hang. Out: what it answers, or a refusal when it takes
too long. A call that hangs keeps the lane of its name: whatever comes for that name is refused
until the call returns, so that an old order cannot be carried out after a newer one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from queue import SimpleQueue
from typing import Generic, TypeVar

from nonuniform.power.actuators.base import ActuatorRefused

T = TypeVar("T")


class Lanes(Generic[T]):
    def __init__(self, within_s: float, of: str = "GPU ") -> None:
        self._within_s = within_s
        self._of = of
        self._lanes: dict[str, _Lane[T]] = {}

    def answers(self, calls: Mapping[str, Callable[[], T]]) -> dict[str, T | ActuatorRefused]:
        """In the order of the calls."""
        deadline = time.monotonic() + self._within_s
        started = {gpu: self._lane(gpu).start(call) for gpu, call in calls.items()}
        return {gpu: self._wait(gpu, job, deadline) for gpu, job in started.items()}

    def answer(self, name: str, call: Callable[[], T]) -> T | ActuatorRefused:
        return self.answers({name: call})[name]

    def _lane(self, gpu: str) -> _Lane[T]:
        if gpu not in self._lanes:
            self._lanes[gpu] = _Lane(f"{self._of}{gpu}")
        return self._lanes[gpu]

    def _wait(self, gpu: str, job: _Job[T] | None, deadline: float) -> T | ActuatorRefused:
        if job is None:
            return ActuatorRefused(f"an earlier call for {self._of}{gpu} still hangs")
        if not job.done.wait(max(0.0, deadline - time.monotonic())):
            return ActuatorRefused(f"{self._of}{gpu}: no answer within {self._within_s:g} s")
        return job.answer


class _Job(Generic[T]):
    def __init__(self, call: Callable[[], T]) -> None:
        self.call = call
        self.done = threading.Event()
        self.answer: T | ActuatorRefused


class _Lane(Generic[T]):
    def __init__(self, name: str) -> None:
        self._jobs: SimpleQueue[_Job[T]] = SimpleQueue()
        self._last: _Job[T] | None = None
        threading.Thread(target=self._work, name=name, daemon=True).start()

    def start(self, call: Callable[[], T]) -> _Job[T] | None:
        if self._last is not None and not self._last.done.is_set():
            return None
        self._last = _Job(call)
        self._jobs.put(self._last)
        return self._last

    def _work(self) -> None:
        while True:
            job = self._jobs.get()
            try:
                job.answer = job.call()
            except ActuatorRefused as refusal:
                job.answer = refusal
            except Exception as error:  # whatever an actuator raises, others have to be restored
                job.answer = ActuatorRefused(f"{type(error).__name__}: {error}")
            job.done.set()
