"""Calls of an actuator, one at a time for a GPU, all GPUs at once, and nobody waits for ever.

In: one call per GPU. Out: what it answers, or a refusal when it takes too long. A call that hangs
keeps the lane of its GPU: whatever comes for that GPU is refused until the call returns, so that an
old order cannot be carried out after a newer one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from queue import SimpleQueue

from nonuniform.power.actuators.base import ActuatorRefused, Reading

Call = Callable[[], Reading]
Answer = Reading | ActuatorRefused


class Lanes:
    def __init__(self, within_s: float) -> None:
        self._within_s = within_s
        self._lanes: dict[str, _Lane] = {}

    def answers(self, calls: Mapping[str, Call]) -> dict[str, Answer]:
        """In the order of the calls."""
        deadline = time.monotonic() + self._within_s
        started = {gpu: self._lane(gpu).start(call) for gpu, call in calls.items()}
        return {gpu: self._wait(gpu, job, deadline) for gpu, job in started.items()}

    def _lane(self, gpu: str) -> _Lane:
        if gpu not in self._lanes:
            self._lanes[gpu] = _Lane(gpu)
        return self._lanes[gpu]

    def _wait(self, gpu: str, job: _Job | None, deadline: float) -> Answer:
        if job is None:
            return ActuatorRefused(f"an earlier call for GPU {gpu} still hangs")
        if not job.done.wait(max(0.0, deadline - time.monotonic())):
            return ActuatorRefused(f"GPU {gpu}: no answer within {self._within_s:g} s")
        assert job.answer is not None
        return job.answer


class _Job:
    def __init__(self, call: Call) -> None:
        self.call = call
        self.done = threading.Event()
        self.answer: Answer | None = None


class _Lane:
    def __init__(self, gpu: str) -> None:
        self._jobs: SimpleQueue[_Job] = SimpleQueue()
        self._last: _Job | None = None
        threading.Thread(target=self._work, name=f"GPU {gpu}", daemon=True).start()

    def start(self, call: Call) -> _Job | None:
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
