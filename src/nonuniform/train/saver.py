"""Makes checkpoints of what the ranks have written: the launcher's side.

In: which generation writes a checkpoint of which step, and the parts that its ranks tell of. Out: a
published checkpoint, or a reason why there is none; both are told once. Publishing (checks, forcing
to disk) runs in a thread: the run goes on beside it. DESIGN "Generations". Knows nothing of
tensors, nor of whether the run depends on it.
"""

from __future__ import annotations

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
from nonuniform.reshard.transfer import Holding
from nonuniform.train.checkpoint.identity import Identity
from nonuniform.train.checkpoint.part import Part
from nonuniform.train.checkpoint.shelf import Shelf
from nonuniform.train.membership import Board

LOOK_S = 0.01


def savers(plan: ModelPlan, holdings: Mapping[str, tuple[int, int]]) -> tuple[str, ...]:
    """The GPUs that have to write something; () if some unit is held by none of them."""
    held = [Holding(gpu, degree, label) for gpu, (degree, label) in holdings.items()]
    planned = plan_save(plan, held)
    if planned.missing:
        return ()
    return tuple(sorted(gpu for gpu, units in planned.units.items() if units))


@dataclass
class Attempt:
    """A checkpoint that is being written; `answer` is None until it has come to something."""

    generation: int
    position: Position
    waiting: set[str]
    parts: list[Part] = field(default_factory=list)
    problem: str = ""
    publishing: threading.Thread | None = None
    done: bool = False


@dataclass(frozen=True)
class Result:
    """`problem` is empty for a checkpoint that can be read."""

    generation: int
    step: int
    name: str
    problem: str


class Saver:
    """The attempts under way, the oldest first."""

    def __init__(self, board: Board, shelf: Shelf, identity: Identity, plan: ModelPlan) -> None:
        self._board = board
        self._shelf = shelf
        self._identity = identity
        self._plan = plan
        self._attempts: list[Attempt] = []
        self._results: list[Result] = []

    def warm_up(self) -> None:
        """Import beside the run what the first checkpoint would have to wait for."""
        threading.Thread(target=_import_writer, name="import", daemon=True).start()

    def expect(self, generation: int, position: Position, gpus: Collection[str]) -> None:
        """The ranks `gpus` are writing a checkpoint of `position`."""
        self._attempts.append(Attempt(generation, position, set(gpus)))

    def lose(self, gpu: str) -> None:
        """A rank is gone: what it has not told of will never be."""
        for attempt in self._attempts:
            self._listen(attempt)  # its last word may be there
            if gpu in attempt.waiting:
                attempt.problem = attempt.problem or f"GPU {gpu} was lost before its part was there"
                attempt.waiting.discard(gpu)

    def poll(self) -> list[Result]:
        """What has come to something since the last look."""
        results, self._results = self._results + self._look(), []
        return results

    def _look(self) -> list[Result]:
        for attempt in self._attempts:
            self._listen(attempt)
        for attempt in self._attempts:  # one after the other: a newer one removes older ones
            if attempt.publishing is None and not attempt.waiting:
                work = self._give_up if attempt.problem else self._publish
                attempt.publishing = threading.Thread(target=work, args=(attempt,), daemon=True)
                attempt.publishing.start()
            if not attempt.done:
                break
        over = [attempt for attempt in self._attempts if attempt.done]
        self._attempts = [attempt for attempt in self._attempts if not attempt.done]
        return [
            Result(a.generation, a.position.step, self._name(a.position.step), a.problem)
            for a in over
        ]

    def newest(self, patience_s: float) -> tuple[Found, tuple[tuple[str, str], ...]]:
        """The newest checkpoint that can be read, and (name, reason) of those that cannot. Those
        that are being written are waited for, so that as few steps as possible are lost."""
        limit_s = time.monotonic() + patience_s
        while self._attempts and time.monotonic() < limit_s:
            self._results += self._look()
            time.sleep(LOOK_S)
        found, rejected = self._shelf.newest()
        if found is None:
            return Found(None), rejected
        return Found(Position(found.step, found.validated), found.path.name), rejected

    def busy(self) -> bool:
        return bool(self._attempts)

    def _name(self, step: int) -> str:
        return self._shelf.part_folder(step).stem

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

    def _publish(self, attempt: Attempt) -> None:
        position = attempt.position
        try:
            self._shelf.complete(
                position.step, position.validated, self._identity, attempt.parts, self._plan
            )
        except OSError as error:
            attempt.problem = f"{error.filename or self._shelf.folder}: {error.strerror or error}"
            self._shelf.discard(position.step)
        except (NonuniformError, ValueError) as error:
            attempt.problem = str(error)
            self._shelf.discard(position.step)
        attempt.done = True

    def _give_up(self, attempt: Attempt) -> None:
        self._shelf.discard(attempt.position.step)
        attempt.done = True


def _import_writer() -> None:
    import nonuniform.train.checkpoint.dcp  # noqa: F401
