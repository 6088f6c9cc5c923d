"""A wait that can be given up: the flag "this generation is dead" and what waits against it.

Collectives cannot be aborted (gloo's abort does nothing, and a rank that waits for a living
neighbour is never told that a third one died), so nobody blocks inside one. A waiter sleeps on
an event that either the finished work or the alarm sets; after an alarm the work is abandoned
together with its buffers and its group.

Knows nothing of groups, stores or who decides that a generation is dead.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

from nonuniform.errors import NonuniformError
from nonuniform.train.mutter import mutter
from nonuniform.train.progress import Progress

T = TypeVar("T")
GRACE_S = 10.0  # the launcher sees a death in milliseconds, on a busy machine in a second


class GenerationDead(NonuniformError):
    """The membership changed: give up what is under way and wait for the next generation."""


class Alarm:
    """Set once per generation by its watchdog; wakes every waiter at once. `patience_s`: how long
    others are waited for; `grace_s`: how long the launcher may take to say why a peer is gone."""

    def __init__(
        self, patience_s: float, progress: Progress | None = None, grace_s: float = GRACE_S
    ) -> None:
        self.patience_s = patience_s
        self.grace_s = grace_s
        self.progress = progress or Progress()
        self._lock = threading.Lock()
        self._waiters: set[threading.Event] = set()
        self._callbacks: list[Callable[[], None]] = []
        self._reason: str | None = None

    @property
    def ringing(self) -> bool:
        return self._reason is not None

    def ring(self, reason: str) -> None:
        with self._lock:
            if self._reason is None:
                self._reason = reason
            for waiter in self._waiters:
                waiter.set()
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def on_ring(self, callback: Callable[[], None]) -> None:
        """Call it when the alarm rings, in the thread that rings; at once if it has rung."""
        with self._lock:
            if self._reason is None:
                self._callbacks.append(callback)
                return
        callback()

    def check(self) -> None:
        if self._reason is not None:
            raise GenerationDead(self._reason)

    def sleep_until(self, arm: Callable[[threading.Event], Any]) -> None:
        """Call `arm(event)`, then sleep until the event is set.

        Raises:
            GenerationDead: the alarm rang, or nothing happened for `patience_s`.
        """
        if not self._sleep(arm, self.patience_s):
            raise GenerationDead(f"no answer within {self.patience_s:g} s")

    def _sleep(self, arm: Callable[[threading.Event], Any], limit_s: float) -> bool:
        """Whether the event came within the limit; raises GenerationDead if the alarm rang."""
        event = threading.Event()
        with self._lock:
            self._waiters.add(event)
        try:
            self.check()
            arm(event)
            with self.progress.waiting():
                came = event.wait(limit_s)
            self.check()
            return came
        finally:
            with self._lock:
                self._waiters.discard(event)

    def finish(self, start: Callable[[], Any]) -> None:
        """Start a torch.distributed Work and wait for it; an error of it means: a peer is gone.

        The rank that sees a broken connection does not decide anything: it sleeps until the
        alarm, which carries the launcher's reason, and gives up like everybody else.
        """
        try:
            work = start()
            if not work.is_completed():
                self.sleep_until(lambda event: work.get_future().add_done_callback(_setter(event)))
            work.wait()
        except RuntimeError as error:
            raise self.gone(error) from None

    def run_aside(self, function: Callable[[], T]) -> T:
        """Run a call that cannot be interrupted in a thread of its own, abandoned on alarm.

        What torch raises when a connection breaks is treated as in `finish`: a peer is gone.
        """
        answer: list[T] = []
        failure: list[BaseException] = []

        def body(event: threading.Event) -> None:
            try:
                answer.append(function())
            except BaseException as error:
                failure.append(error)
            event.set()

        self.sleep_until(
            lambda event: threading.Thread(target=body, args=(event,), daemon=True).start()
        )
        if not failure:
            return answer[0]
        if isinstance(failure[0], RuntimeError):
            raise self.gone(failure[0])
        raise failure[0]

    def gone(self, error: RuntimeError) -> RuntimeError:
        """A connection broke: sleep until the alarm says why. If it says nothing, the error was
        this rank's own (no memory, no file descriptors) and is returned to be raised."""
        mutter(f"given up, waiting to hear why: {error}")
        self._sleep(lambda event: None, min(self.patience_s, self.grace_s))
        return error


def _setter(event: threading.Event) -> Callable[[Any], None]:
    return lambda future: event.set()
