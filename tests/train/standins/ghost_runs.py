"""A whole launcher over workers that are threads, and scripts for those.

In: a script, a schedule, keys of the job. Out: a launcher that has run, and the rows of its log.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist
from standins.workers import STORE_S, Ghost, GhostSpawner, Killed, Script

from nonuniform.config import (
    BatchConfig,
    CheckpointConfig,
    DataConfig,
    HealthConfig,
    JobConfig,
    ModelConfig,
    ParallelConfig,
    RunConfig,
    ScheduledEvent,
)
from nonuniform.train import launcher as launcher_module
from nonuniform.train.assemble import assemble
from nonuniform.train.chronicle import Chronicle
from nonuniform.train.data import Corpus, WindowOptions, Windows
from nonuniform.train.interrupt import Interrupt
from nonuniform.train.journal import RunFolder
from nonuniform.train.launcher import Launcher
from nonuniform.train.resume import Beginning
from nonuniform.train.roster import JobSetup
from nonuniform.train.session import job_plan
from nonuniform.train.worker import worker_main
from nonuniform.view.observer import NullObserver

STEPS = 5


def nothing(ghost: Ghost, place: str) -> None:
    """A script by which all goes well."""


def job_of(
    checkpoint: CheckpointConfig, health: HealthConfig, spares: int, **run: Any
) -> JobConfig:
    return JobConfig(
        ModelConfig(layers=1, hidden=8, heads=4, kv_heads=2, vocab=256),
        ParallelConfig(2, 3, 2, spares=spares),
        BatchConfig(6, 4),
        RunConfig(**{"steps": STEPS, "hang_timeout_s": 10.0, "log_sample_ids": True, **run}),
        DataConfig(holdout=0.1),
        checkpoint=checkpoint,
        health=health,
    )


class Run:
    """A launcher and what came of it."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.interrupt = Interrupt()
        self.health = HealthConfig(flaps=9)
        self.checkpoint = CheckpointConfig(final=False)  # a ghost has nothing to write
        self.spares = 0
        self.seconds = 0.0
        self.before: Callable[[Launcher], None] = lambda launcher: None
        monkeypatch.setattr(launcher_module, "END_PATIENCE_S", 1.0)

    def __call__(
        self, script: Script = nothing, schedule: tuple[ScheduledEvent, ...] = (), **run: Any
    ) -> Launcher:
        (self.folder / "text").write_bytes(bytes(range(256)) * 8)
        job = job_of(self.checkpoint, self.health, self.spares, **run)
        corpus = Corpus.open(["text"], self.folder)
        windows = Windows(corpus, WindowOptions(4, 6, 1, 0.1))
        folder = RunFolder.create(self.folder / "out")
        setup = JobSetup(
            job=job,
            plan=job_plan(job),
            corpus=corpus,
            windows=windows,
            port=0,
            secret="only the job knows",
            logs=folder.logs,
            device="cpu",
            checkpoints=self.folder / "out" / "checkpoints",
        )
        store = dist.HashStore()
        store.set_timeout(timedelta(seconds=STORE_S))
        self.spawner = GhostSpawner(store, script)
        chronicle = Chronicle(folder, NullObserver(), 2)
        spawner: Any = self.spawner
        launcher = assemble(
            setup, store, Beginning(), chronicle, schedule, self.interrupt, spawner, worker_main
        )
        self.before(launcher)
        start = time.monotonic()
        try:
            launcher.run()
        finally:
            self.seconds = time.monotonic() - start
            self.left = [ghost.gpu for ghost in self.ghosts if ghost.life.exitcode is None]
            self.spawner.close()
            chronicle.close("test", "over")
        return launcher

    @property
    def ghosts(self) -> list[Ghost]:
        return self.spawner.started

    def rows(self, name: str) -> list[dict[str, Any]]:
        text = (self.folder / "out" / f"{name}.jsonl").read_text()
        return [json.loads(line) for line in text.splitlines()]

    def events(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.rows("events") if event["kind"] == kind]

    def generations(self) -> list[int]:
        return [row["generation"] for row in self.rows("steps")]

    def check_steps(self, steps: int = STEPS) -> None:
        """Each step once, with the samples and the loss it has without any failure."""
        rows = self.rows("steps")
        assert [row["step"] for row in rows] == list(range(1, steps + 1))
        for row in rows:
            assert row["loss"] == pytest.approx(1 / row["step"])
            assert len(set(row["sample_ids"])) == 6
        samples = [sample for row in rows for sample in row["sample_ids"]]
        assert len(set(samples)) == len(samples)


def once(action: Callable[[Ghost], None], gpu: str, place: str) -> Script:
    """Do something when this GPU first comes to this place."""
    done = threading.Event()

    def script(ghost: Ghost, here: str) -> None:
        if (ghost.gpu, here) == (gpu, place) and not done.is_set():
            done.set()
            action(ghost)

    return script


def die(ghost: Ghost) -> None:
    ghost.life.kill()
    raise Killed


def both(*scripts: Script) -> Script:
    def script(ghost: Ghost, place: str) -> None:
        for one in scripts:
            one(ghost, place)

    return script


def slowly(seconds: float) -> Script:
    """A step takes a while: else all is over before one that returns is ready."""

    def script(ghost: Ghost, place: str) -> None:
        if ghost.gpu == "1/1" and place.startswith("train"):
            time.sleep(seconds)

    return script
