"""What one rank writes to disk: parts of checkpoints, and what it can save when all else is lost.

In: a rank's shard at a committed step. Out: files in the folder of the job's checkpoints, and word
of them on the board, from which the launcher makes a whole. DESIGN "Generations". The copy is made
at once, the writing goes on beside the training; nothing here waits for another rank. Knows nothing
of what the others write.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from nonuniform.layout.cuts import ModelPlan
from nonuniform.placement.placement import Placement
from nonuniform.protocol.commit import Vote
from nonuniform.protocol.record import LoggedStep, Record
from nonuniform.reshard.save_plan import UnitName, plan_save
from nonuniform.reshard.transfer import holders
from nonuniform.train.alarm import Alarm
from nonuniform.train.checkpoint.part import Snapshot, all_units, take_snapshot, write_part
from nonuniform.train.checkpoint.rescue import write_rescue
from nonuniform.train.checkpoint.shelf import Shelf
from nonuniform.train.membership import Board
from nonuniform.train.mutter import mutter_exception
from nonuniform.train.state import ShardState

LOOK_S = 0.01
REMEMBERED = 256  # votes of the last steps: the log of a launcher that died may lack some


@dataclass(frozen=True)
class _Job:
    """What is to be written; `done` once it has been told, or cannot be."""

    generation: int
    snapshot: Snapshot
    done: threading.Event = field(default_factory=threading.Event)


class Keeper:
    """`begin` returns at once; a copy that cannot be written is told, and training goes on."""

    def __init__(
        self,
        gpu: str,
        plan: ModelPlan,
        folder: Path,
        board: Board,
        connect: Callable[[], Board],
    ) -> None:
        """`board`: for words of the main thread; `connect`: a board for the thread that writes."""
        self.gpu = gpu
        self.plan = plan
        self.folder = folder
        self._shelf = Shelf(folder, keep=1)  # only for its names
        self._board = board
        self._connect = connect
        self._jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._writing = 0
        self._steps: deque[tuple[Vote, Placement, int]] = deque(maxlen=REMEMBERED)

    def begin(self, record: Record, state: ShardState) -> None:
        """A checkpoint on the way: the rank's part by the plan of the generation."""
        step, units = state.step, self._units(holdings_of(record.placement))
        if not units:
            return
        if self._writing:
            said = {"problem": f"GPU {self.gpu} was still writing the one before"}
            self._board.say_part(record.generation, step, self.gpu, said)
            return
        self._put(_Job(record.generation, take_snapshot(state, units)))

    def save(self, record: Record, state: ShardState, alarm: Alarm) -> None:
        """A checkpoint that everybody waits for: the rank's part of what is left. GenerationDead
        where it is given up, by a disk that does not answer for good."""
        units = self._units(record.holdings)
        if not units:
            return
        job = _Job(record.generation, take_snapshot(state, units))
        self._put(job)
        while not job.done.wait(LOOK_S):
            alarm.check()

    def _units(self, holdings: Mapping[str, tuple[int, int]]) -> tuple[UnitName, ...]:
        return plan_save(self.plan, holders(holdings)).units.get(self.gpu, ())

    def _write(self, board: Board, job: _Job) -> None:
        try:
            said = self.write(job.snapshot, job.generation)
        except Exception as error:  # untold, the launcher would wait for the part for good
            mutter_exception()
            said = {"problem": f"GPU {self.gpu}: {type(error).__name__}: {error}"}
        board.say_part(job.generation, job.snapshot.step, self.gpu, said)

    def finish(self, patience_s: float) -> None:
        """Return when nothing is being written any more."""
        limit_s = time.monotonic() + patience_s
        while self._writing and time.monotonic() < limit_s:
            time.sleep(LOOK_S)

    def write(self, snapshot: Snapshot, generation: int) -> dict[str, Any]:
        """The part as it is told to the launcher, or the problem with the disk."""
        folder = self._shelf.part_folder(snapshot.step, generation)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            return {"part": write_part(snapshot, folder, self.gpu).to_json()}
        except OSError as error:
            return {"problem": f"GPU {self.gpu}: {error.strerror or error}"}

    def _put(self, job: _Job) -> None:
        self._writing += 1
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="keeper", daemon=True)
            self._thread.start()
        self._jobs.put(job)

    def _work(self) -> None:
        board: Board | None = None
        while True:
            job = self._jobs.get()
            try:
                board = board or self._connect()
                self._write(board, job)
            except Exception:  # the launcher is gone, or no connection is to be had now
                mutter_exception()
            finally:
                self._writing -= 1  # only now may the process leave
                job.done.set()
                del job  # its snapshot is as large as the shard

    # --- the launcher is gone

    def note(self, record: Record, vote: Vote, validated: int) -> None:
        """Remember what the step log will say of a step."""
        self._steps.append((vote, record.placement, validated))

    def remembered(self) -> list[dict[str, Any]]:
        """Put into words only when they are needed: `note` is on the way of every step."""
        return [
            {**LoggedStep.of(vote, placement).to_json(), "validated": validated}
            for vote, placement, validated in self._steps
        ]

    def rescue(self, state: ShardState, record: Record | None, identity: Mapping[str, Any]) -> None:
        """All that this rank holds; inside a generation only its share of it, so that every unit is
        written twice: a GPU may have been lost in the same moment."""
        if state.step == 0:
            return
        units = self._units(half_of(record.placement, self.gpu)) if record else all_units(state)
        snapshot = take_snapshot(state, units)
        extra = {"steps": self.remembered(), "identity": dict(identity)}
        write_rescue(self.folder, snapshot, self.gpu, extra)


def half_of(placement: Placement, gpu: str) -> dict[str, tuple[int, int]]:
    """What the members of every other replica hold, the one of `gpu` among them: each of the two
    halves has every unit."""
    index = [gpu in entry.gpus for entry in placement.replicas].index(True)
    half = placement.replicas[index % 2 :: 2]
    return holdings_of(replace(placement, replicas=half))


def holdings_of(placement: Placement) -> dict[str, tuple[int, int]]:
    """What every member holds once a generation has settled."""
    return {
        gpu: (entry.degree, label)
        for entry in placement.replicas
        for label, gpu in enumerate(entry.gpus)
    }
