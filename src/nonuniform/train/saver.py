"""Makes checkpoints of what the ranks have written: the launcher's side.

In: which generation writes a checkpoint of which step, and the parts that its ranks tell of. Out: a
published checkpoint, or a reason why there is none; both are told once. Publishing (checks, forcing
to disk) runs in a thread: the run goes on beside it. DESIGN "Generations". Knows nothing of
tensors, nor of whether the run depends on it.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from nonuniform.errors import NonuniformError
from nonuniform.layout.cuts import ModelPlan
from nonuniform.protocol.events import Found
from nonuniform.protocol.record import Position
from nonuniform.reshard.save_plan import plan_save
from nonuniform.reshard.transfer import holders
from nonuniform.train.checkpoint.identity import Identity
from nonuniform.train.checkpoint.part import Part
from nonuniform.train.checkpoint.shelf import TOO_LATE, Checkpoint, Shelf
from nonuniform.train.membership import Board


def savers(plan: ModelPlan, holdings: Mapping[str, tuple[int, int]]) -> tuple[str, ...]:
    """The GPUs that have to write something; () if some unit is held by none of them."""
    planned = plan_save(plan, holders(holdings))
    if planned.missing:
        return ()
    return tuple(sorted(gpu for gpu, units in planned.units.items() if units))


@dataclass
class Attempt:
    """A checkpoint that is being written; `answer` is None until it has come to something."""

    generation: int
    position: Position
    waiting: set[str]
    limit_s: float
    parts: list[Part] = field(default_factory=list)
    problem: str = ""
    publishing: threading.Thread | None = None
    too_late: bool = False  # the run goes back to a checkpoint that was there before
    done: bool = False

    def give_up(self, reason: str) -> None:
        """No part is waited for any longer; the first problem stays."""
        self.problem = self.problem or reason
        self.waiting.clear()


@dataclass(frozen=True)
class Result:
    """`problem` is empty for a checkpoint that can be read."""

    generation: int
    step: int
    name: str
    problem: str


Rejected = tuple[tuple[str, str], ...]
"""(name, reason) of checkpoints that cannot be read."""


@dataclass
class _Recall:
    """A search for the newest checkpoint; it begins when none is being written, or at `limit_s`."""

    limit_s: float
    begun: bool = False
    answer: tuple[Found, Rejected] | None = None


class Saver:
    """The attempts under way, the oldest first."""

    def __init__(
        self,
        board: Board,
        shelf: Shelf,
        identity: Identity,
        plan: ModelPlan,
        patience_s: float = math.inf,
    ) -> None:
        """`patience_s`: how long the parts of a checkpoint may take to be written."""
        self._patience_s = patience_s
        self._board = board
        self._shelf = shelf
        self._identity = identity
        self._plan = plan
        self._attempts: list[Attempt] = []
        self._recall: _Recall | None = None

    def warm_up(self) -> None:
        """Import beside the run what the first checkpoint would have to wait for."""
        threading.Thread(target=_import_writer, name="import", daemon=True).start()

    def expect(self, generation: int, position: Position, gpus: Collection[str]) -> None:
        """The ranks `gpus` are writing a checkpoint of `position`."""
        limit_s = time.monotonic() + self._patience_s
        self._attempts.append(Attempt(generation, position, set(gpus), limit_s))

    def lose(self, gpu: str) -> None:
        """A rank is gone: what it has not told of will never be."""
        for attempt in self._attempts:
            self._listen(attempt)  # its last word may be there
            if gpu in attempt.waiting:
                attempt.problem = attempt.problem or f"GPU {gpu} was lost before its part was there"
                attempt.waiting.discard(gpu)

    def poll(self) -> list[Result]:
        """What has come to something since the last look."""
        for attempt in self._attempts:
            self._listen(attempt)
        for attempt in self._attempts:  # one after the other: a newer one removes older ones
            if attempt.publishing is None and not attempt.waiting:
                work = self._clear if attempt.problem else self._publish
                attempt.publishing = threading.Thread(target=work, args=(attempt,), daemon=True)
                attempt.publishing.start()
            if not attempt.done:
                break
        over = [attempt for attempt in self._attempts if attempt.done]
        self._attempts = [attempt for attempt in self._attempts if not attempt.done]
        return [self._result(attempt, attempt.problem) for attempt in over]

    def _result(self, attempt: Attempt, problem: str) -> Result:
        step = attempt.position.step
        return Result(attempt.generation, step, self._shelf.part_folder(step).stem, problem)

    def recall(self, patience_s: float) -> None:
        """Look for the newest checkpoint that can be read; `recalled` has it later. Those that are
        being written are waited for, so that as few steps as possible are lost."""
        self._recall = _Recall(time.monotonic() + patience_s)

    def recalled(self) -> tuple[Found, Rejected] | None:
        """What was found, once, and (name, reason) of those that cannot be read."""
        recall = self._recall
        if recall is None:
            return None
        if not recall.begun and (not self._attempts or time.monotonic() > recall.limit_s):
            recall.begun = True
            # Published after the search, one of them would hold steps that the run has undone.
            for attempt in self._attempts:
                attempt.too_late = True
                if attempt.publishing is None:  # else its thread asks
                    attempt.give_up(TOO_LATE)
            threading.Thread(target=self._read_shelf, args=(recall,), daemon=True).start()
        if recall.answer is not None:
            self._recall = None
        return recall.answer

    def _read_shelf(self, recall: _Recall) -> None:
        """All bytes are read, which may take long; a fault of ours must not look like silence."""
        found: Checkpoint | None = None
        rejected: Rejected = ()
        try:
            found, rejected = self._shelf.newest()
        except Exception as error:
            rejected = ((self._shelf.folder.name, f"{type(error).__name__}: {error}"),)
        if found is None:
            recall.answer = (Found(None), rejected)
        else:
            position = Position(found.step, found.validated)
            recall.answer = (Found(position, found.path.name), rejected)

    def abandon(self) -> list[Result]:
        """Nobody waits any longer: what is not complete will never be."""
        results = self.poll()
        for attempt in self._attempts:
            problem = attempt.problem or "not complete when the run ended"
            results.append(self._result(attempt, problem))
        self._attempts = []
        return results

    def busy(self) -> bool:
        return bool(self._attempts)

    def _listen(self, attempt: Attempt) -> None:
        for gpu in sorted(attempt.waiting):
            said: Any = self._board.take_part(attempt.generation, attempt.position.step, gpu)
            if said is None:
                continue
            attempt.waiting.discard(gpu)
            if "part" in said:
                attempt.parts.append(Part.from_json(said["part"]))
            else:
                attempt.problem = attempt.problem or str(said["problem"])
        if attempt.waiting and time.monotonic() > attempt.limit_s:
            late = ", ".join(sorted(attempt.waiting))
            attempt.give_up(f"GPU {late} did not write its part within {self._patience_s:g} s")

    def _publish(self, attempt: Attempt) -> None:
        position, generation = attempt.position, attempt.generation
        try:
            self._shelf.complete(
                position.step,
                position.validated,
                self._identity,
                attempt.parts,
                self._plan,
                generation,
                wanted=lambda: not attempt.too_late,
            )
        except OSError as error:
            attempt.problem = f"{error.filename or self._shelf.folder}: {error.strerror or error}"
        except (NonuniformError, ValueError) as error:
            attempt.problem = str(error)
        except Exception as error:  # untold, everything would wait for it
            attempt.problem = f"{type(error).__name__}: {error}"
        finally:
            self._clear(attempt)

    def _clear(self, attempt: Attempt) -> None:
        """What is left of an attempt that came to nothing."""
        if attempt.problem:
            self._shelf.discard(attempt.position.step, attempt.generation)
        attempt.done = True


def _import_writer() -> None:
    import nonuniform.train.checkpoint.dcp  # noqa: F401
