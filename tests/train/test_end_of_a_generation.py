"""What a process lets go of when a generation ends, and when."""

from __future__ import annotations

import gc
import time
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from nonuniform.config import BatchConfig, JobConfig, ModelConfig, ParallelConfig, RunConfig
from nonuniform.placement.placement import Placement, ReplicaPlacement
from nonuniform.protocol.record import Record
from nonuniform.train import worker as worker_module
from nonuniform.train.alarm import Alarm, GenerationDead
from nonuniform.train.connector import Clients
from nonuniform.train.groups import Group, Reaper, SoloGroup
from nonuniform.train.holding import Holding
from nonuniform.train.progress import Progress
from nonuniform.train.session import Session, job_plan
from nonuniform.train.worker import Worker

PATIENCE_S = 10.0
JOB = JobConfig(
    ModelConfig(layers=1, hidden=8, heads=2), ParallelConfig(1, 2), BatchConfig(2, 4), RunConfig(1)
)
RECORD = Record(
    generation=1,
    step=0,
    validated=0,
    placement=Placement((ReplicaPlacement(0, ("0/0", "0/1"), 2),)),
    holdings={},
    home={},
    digest="",
)


class Carried(SoloGroup):
    """A group that may be watched."""


class Alone(Worker):
    """Without processes beside it; its generation dies as soon as it has settled."""

    def __init__(self) -> None:
        alarm = Alarm(PATIENCE_S)
        self.orders: Any = SimpleNamespace(gpu="0/0", life=0)
        self.job, self.plan, self.device = JOB, job_plan(JOB), torch.device("cpu")
        self.progress, self.reaper = Progress(), Reaper()
        self.board: Any = SimpleNamespace(settled=lambda generation, settled: None)
        self.watch: Any = SimpleNamespace(alarm=lambda generation: alarm)
        self.desk: Any = None
        self.clients = Clients(object, again=True)
        self.holding = Holding("0/0", self.plan, 1, Path("nowhere"), torch.float32, self.device)
        self.cycle = None
        self._orphan: Any = SimpleNamespace(is_set=lambda: False)
        self.sessions: list[weakref.ref[Session]] = []
        self.groups: list[weakref.ref[Group]] = []

    def connect(self, store: Any, name: str, rank: int, size: int, alarm: Alarm) -> Group:
        group = Carried(rank, size)
        self.groups.append(weakref.ref(group))
        return group


def gone(what: list[weakref.ref[Any]]) -> bool:
    """Threads that still hold it are at their end."""
    end_s = time.monotonic() + PATIENCE_S
    while any(one() is not None for one in what) and time.monotonic() < end_s:
        gc.collect()
        time.sleep(0.01)
    return all(one() is None for one in what)


def test_the_buffers_go_at_once_and_the_groups_when_there_is_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Were they kept until the next step, two generations' gradients would be there at once."""
    worker = Alone()

    class Dying:
        def __init__(self, desk: Any, record: Record, session: Session, after_step: Any) -> None:
            worker.sessions.append(weakref.ref(session))

        def run(self, alarm: Alarm) -> None:
            raise GenerationDead("0/1 failed")

    monkeypatch.setattr(worker_module, "Cycle", Dying)
    worker._live_through(RECORD)
    assert len(worker.sessions) == 1
    assert gone(worker.sessions)
    assert worker.holding.model is not None
    assert worker.groups
    assert all(group() is not None for group in worker.groups)
    worker.reaper.drop()
    assert gone(worker.groups)
