"""A worker that strikes itself at an exact place of its work, once.

In: the order in the folder beside the run's (`Strike`). Out: a blow of the ordered way, and a mark
of its moment. It is the transport of these tests: a `Worker` of the product with what a test may
replace, and hooks that torch offers. The launcher and the other processes know nothing of it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from nonuniform.protocol.record import Record
from nonuniform.protocol.regroup import transfer_of
from nonuniform.reshard.transfer import split_by_replica
from nonuniform.train.alarm import Alarm
from nonuniform.train.checkpoint.part import Snapshot
from nonuniform.train.data import Windows
from nonuniform.train.groups import Group, Reduction
from nonuniform.train.keeper import Keeper
from nonuniform.train.membership import Board
from nonuniform.train.progress import Progress
from nonuniform.train.session import Session
from nonuniform.train.worker import Worker, WorkerOrders, live

MEMORY_CGROUPS = Path("/sys/fs/cgroup/memory")
OOM_BYTES = 64 << 20
# Victims strike together; one that comes late is not waited for longer. Of exceptions a second one
# in a later generation would end the run, so there the wait is long.
MEET_S, MEET_TO_RAISE_S = 2.0, 15.0
HOLD_S = 45.0
SLICE_S = 0.01
JOINING_S = 0.1
SAMPLES = "samples"  # files of what each rank has trained on
DRAG_S = 1.0
ENOUGH = "enough"
TOTALS = 2  # elements of the all-reduce that carries loss and tokens, no gradients


@dataclass(frozen=True)
class Strike:
    """`step`: the first at which the phase counts; `other`: a loss whose generation is meant
    (regroup, transfer; "" is the first generation); `joiner`: the GPU that returns; `hold_step`:
    after it all wait for the mark `hold`, so that what a test does beside the run is in time;
    `paced`: no step runs before the mark "pace" allows it (`set_pace`)."""

    victims: tuple[str, ...]
    phase: str
    way: str
    step: int
    other: str = ""
    joiner: str = ""
    hold_step: int = 0
    hold: str = ""
    paced: bool = False

    def write(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        (folder / "order.json").write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, folder: Path) -> Strike:
        row = json.loads((folder / "order.json").read_text())
        return cls(**{**row, "victims": tuple(row["victims"])})


def strike_folder(out: Path) -> Path:
    return out.with_name(f"{out.name}.strike")


def set_pace(folder: Path, step: int) -> None:
    """Steps up to this one may run."""
    (folder / "pace.new").write_text(str(step))
    (folder / "pace.new").replace(folder / "pace")


def mark_of(gpu: str) -> str:
    return f"struck-{gpu.replace('/', '-')}"


class Striker:
    """What one process knows of the strike; `worker` is set once there is one."""

    def __init__(self, orders: WorkerOrders) -> None:
        self.out = orders.checkpoints.parent
        self.folder = strike_folder(self.out)
        self.strike = Strike.read(self.folder)
        self.gpu, self.life = orders.gpu, orders.life
        self.worker: Worker | None = None
        self.record: Record | None = None

    # --- when

    def reached(self, phase: str) -> None:
        """The process is at a place that a strike may be meant for."""
        if self.is_meant(phase) and self._due():
            self._deal()

    def is_meant(self, phase: str) -> bool:
        strike = self.strike
        return self.gpu in strike.victims and self.life == 1 and phase == strike.phase

    def _due(self) -> bool:
        strike, record = self.strike, self.record
        if strike.phase == "start":
            return True
        assert record is not None
        if strike.phase in ("regroup", "transfer"):
            if not strike.other:
                return record.generation == 1
            return record.placement.where(strike.other) is None
        if strike.phase == "return":
            return record.lives.get(strike.joiner, 0) > 1
        return self._step() >= strike.step

    def _step(self) -> int:
        cycle = self.worker.cycle if self.worker else None
        return cycle.rank.work.step if cycle else 0

    def has_struck(self) -> bool:
        return (self.folder / mark_of(self.gpu)).exists()

    def is_extra(self) -> bool:
        assert self.record is not None
        member = self.record.placement.where(self.gpu)
        return member is not None and member.label >= self.record.placement.sync_degree

    def transfer_group(self) -> str:
        """Which group brings units from others or takes them there: "transfer" between replicas,
        "compute" where all comes from inside, "" if this rank takes no part."""
        assert self.worker is not None
        assert self.record is not None
        replicas = {m.gpu: m.replica for m in self.record.placement.members()}
        moves = transfer_of(self.worker.plan, self.record)
        _, others = split_by_replica(moves, replicas)
        if self.gpu in others.gpus():
            return "transfer"
        return "compute" if self.gpu in moves.gpus() else ""

    # --- how

    def mark(self, name: str) -> bool:
        """Make a mark; False if it was there."""
        with contextlib.suppress(FileExistsError):
            os.close(os.open(self.folder / name, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            return True
        return False

    def note_files(self, when: str) -> None:
        """How many files are open before and after the first generation has its groups."""
        name = f"files-{when}-{self.gpu.replace('/', '-')}"
        if self.strike.way == "none" and self.mark(name):
            (self.folder / name).write_text(str(len(os.listdir("/proc/self/fd"))))

    def drag(self) -> None:
        """Own work that takes long, of the way "slow", until a test has seen enough."""
        meant = self.strike.way == "slow" and self.gpu in self.strike.victims
        if meant and self._step() >= self.strike.step and not (self.folder / ENOUGH).exists():
            time.sleep(DRAG_S)

    def spoil(self, tensor: torch.Tensor) -> None:
        """What the forward pass of one step finds is no number, of the way "nan"."""
        strike = self.strike
        meant = strike.way == "nan" and self.gpu in strike.victims and self._step() == strike.step
        if meant and self.mark(mark_of(self.gpu)):
            tensor.fill_(torch.nan)

    def note_samples(self, ids: Sequence[int]) -> None:
        assert self.record is not None
        member = self.record.placement.where(self.gpu)
        assert member is not None
        generation, step = self.record.generation, self._step()
        line = json.dumps([generation, step, member.replica, list(ids)])
        name = f"{SAMPLES}-{self.gpu.replace('/', '-')}-{self.life}"
        with (self.folder / name).open("a") as file:
            file.write(f"{line}\n")

    def _deal(self) -> None:
        if not self.mark(mark_of(self.gpu)):
            return
        self._meet()
        os.utime(self.folder / mark_of(self.gpu))
        getattr(self, f"_{self.strike.way}")()

    def _meet(self) -> None:
        """All at one moment, or those that come later find the generation over."""
        raising = self.strike.way in ("raise", "memory")
        limit_s = time.monotonic() + (MEET_TO_RAISE_S if raising else MEET_S)
        marks = [self.folder / mark_of(gpu) for gpu in self.strike.victims]
        while not all(mark.exists() for mark in marks) and time.monotonic() < limit_s:
            time.sleep(0.001)

    def _kill(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def _stop(self) -> None:
        os.kill(os.getpid(), signal.SIGSTOP)

    def _spin(self) -> None:
        """Stuck in own work, with signs of life that say so."""
        while True:
            time.sleep(SLICE_S)

    def _raise(self) -> None:
        raise RuntimeError(f"struck at {self.strike.phase}")

    def _memory(self) -> None:
        raise torch.OutOfMemoryError(f"struck at {self.strike.phase}: no memory is left")

    def _oom(self) -> None:
        """More memory than the process may have, so that the kernel ends it."""
        group = MEMORY_CGROUPS / f"nonuniform-{os.getpid()}"
        group.mkdir()
        (self.folder / f"cgroup-{os.getpid()}").write_text(str(group))
        (group / "memory.limit_in_bytes").write_text(str(OOM_BYTES // 2))
        (group / "cgroup.procs").write_text(str(os.getpid()))
        torch.ones(OOM_BYTES, dtype=torch.uint8)
        raise AssertionError("the kernel let it live")

    def _drain(self) -> None:
        """Somebody says that the GPU shall go, and it works on."""
        line = {"kind": "drained", "gpu": self.gpu, "reason": f"struck at {self.strike.phase}"}
        with (self.out / "health.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")

    # --- holding on, so that what is heard late is heard in time

    def hold(self, progress: Progress) -> None:
        """Before a step. Each slice is a wait of its own, so that nobody is taken for hanging."""
        strike, record = self.strike, self.record
        if strike.hold and self._step() > strike.hold_step:
            self._wait(progress, lambda: (self.folder / strike.hold).exists())
            if strike.joiner and record is not None and record.lives.get(strike.joiner, 0) < 2:
                limit_s = time.monotonic() + JOINING_S
                self._wait(progress, lambda: time.monotonic() > limit_s)
        if strike.paced:
            step = self._step()
            self._wait(progress, lambda: self._pace() >= step)
        if strike.way == "drain" and self.has_struck():
            self._wait(progress, self._drain_is_heard)

    def _pace(self) -> int:
        path = self.folder / "pace"
        return int(path.read_text()) if path.exists() else 0

    def _wait(self, progress: Progress, over: Callable[[], bool]) -> None:
        limit_s = time.monotonic() + HOLD_S
        while not over() and time.monotonic() < limit_s:
            with progress.waiting():
                time.sleep(SLICE_S)

    def _drain_is_heard(self) -> bool:
        lines = (self.out / "events.jsonl").read_text().rpartition("\n")[0].splitlines()
        events = [json.loads(line) for line in lines if "drained" in line]
        return any(e["kind"] == "drained" and e["gpu"] == self.gpu for e in events)


class StrikingProgress(Progress):
    """Marks of the main thread are places."""

    def __init__(self, striker: Striker) -> None:
        super().__init__()
        self.mark = "start"
        self._striker = striker

    def at(self, mark: str) -> None:
        super().at(mark)
        self.mark = mark
        striker = self._striker
        match mark:
            case "record":
                if striker.life > 1:
                    striker.mark("warm")
            case "groups":
                striker.note_files("before")
                striker.reached("regroup")
            case "transfer":
                striker.reached("return")
                if striker.is_meant("transfer") and not striker.transfer_group():
                    striker.reached("transfer")
            case "vote":
                striker.reached("before vote")
            case "outcome":
                striker.reached("vote")
            case "forward":
                striker.drag()
            case "data":
                striker.note_files("after")
                striker.hold(self)


class StrikingGroup:
    """A group whose collectives are places: `kind` is the word for it in its name."""

    def __init__(self, inner: Group, kind: str, striker: Striker, progress: Progress) -> None:
        self._inner = inner
        self._kind = kind
        self._striker = striker
        self._progress = progress
        self.rank, self.size = inner.rank, inner.size

    def all_reduce(self, tensor: torch.Tensor, op: Reduction = "sum") -> None:
        if self._kind == "across" and tensor.numel() != TOTALS:
            self._striker.reached("all-reduce")
        if self._compute() == "forward":
            self._striker.spoil(tensor)
        self._inner.all_reduce(tensor, op)

    def exchange(
        self,
        received: torch.Tensor,
        sent: torch.Tensor,
        received_counts: Sequence[int],
        sent_counts: Sequence[int],
    ) -> None:
        kind = self._kind if self._kind != "compute" else self._compute()
        striker = self._striker
        if kind == "reshard" or (
            kind == "transfer" and striker.is_meant(kind) and self._kind == striker.transfer_group()
        ):
            striker.reached(kind)
        self._inner.exchange(received, sent, received_counts, sent_counts)
        if kind == "reshard" and striker.is_extra():
            striker.reached("all-reduce")  # it has given its units away: the others sum
        if kind == "transfer":
            self._damage(received)

    def _compute(self) -> str:
        """Where the main thread is, if this group serves it: also units move inside a replica."""
        if self._kind != "compute":
            return ""
        assert isinstance(self._progress, StrikingProgress)
        mark = self._progress.mark
        if mark in ("forward", "backward", "validation"):
            self._striker.reached(mark)
        return mark

    def _damage(self, received: torch.Tensor) -> None:
        """A bit that turns on the way, of the way "damage"; once."""
        striker = self._striker
        meant = striker.strike.way == "damage" and striker.gpu in striker.strike.victims
        if meant and striker.mark(mark_of(striker.gpu)):
            received[received.numel() // 2] ^= 64


class StrikingKeeper(Keeper):
    """A part that is half written is a place, in the thread that writes."""

    def __init__(self, striker: Striker, *rest: Any) -> None:
        super().__init__(*rest)
        self._striker = striker

    def write(self, snapshot: Snapshot, generation: int) -> dict[str, Any]:
        said = super().write(snapshot, generation)
        striker = self._striker
        if snapshot.step >= striker.strike.step and striker.is_meant("checkpoint"):
            if striker.strike.way != "drain" and not striker.has_struck():
                self._tear(said)
            striker.reached("checkpoint")
        return said

    def _tear(self, said: dict[str, Any]) -> None:
        """On disk as it is in the middle of the writing; nobody has been told."""
        for name, *_ in said["part"]["files"]:
            for path in self.folder.rglob(name):
                os.truncate(path, path.stat().st_size // 2)


class NotedWindows(Windows):
    """Writes down which samples this rank trains on, which nobody else can know for sure."""

    def __init__(self, inner: Windows, striker: Striker, progress: Progress) -> None:
        self.__dict__.update(vars(inner))
        self._striker = striker
        self._progress = progress

    def batch(self, ids: Sequence[int]) -> npt.NDArray[np.int64]:
        assert isinstance(self._progress, StrikingProgress)
        if self._progress.mark == "data":
            self._striker.note_samples(ids)
        return super().batch(ids)


class StrikingWorker(Worker):
    def __init__(self, orders: WorkerOrders, board: Board) -> None:
        self.striker = Striker(orders)
        self.striker.reached("start")
        super().__init__(orders, board)
        self.striker.worker = self
        windows = NotedWindows(self.desk.windows, self.striker, self.progress)
        self.desk = replace(self.desk, windows=windows)

    def make_progress(self) -> Progress:
        return StrikingProgress(self.striker)

    def make_keeper(self) -> Keeper:
        orders = self.orders
        where = orders.gpu, self.plan, orders.checkpoints
        return StrikingKeeper(self.striker, *where, self.board, self._connect_board)

    def connect(self, store: Any, name: str, rank: int, size: int, alarm: Alarm) -> Group:
        inner = super().connect(store, name, rank, size, alarm)
        return StrikingGroup(inner, name.split("/")[1], self.striker, self.progress)

    def _live_through(self, record: Record) -> None:
        self.striker.record = record
        super()._live_through(record)

    def _settle(self, *where: Any) -> Session:
        session = super()._settle(*where)
        # Called after the weights have changed and before the step is counted: torn.
        session.optimizer._adamw.register_step_post_hook(
            lambda *_: self.striker.reached("optimizer")
        )
        return session


def striking_main(orders: WorkerOrders) -> None:
    """The whole life of a process."""
    live(orders, StrikingWorker)
