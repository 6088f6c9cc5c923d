"""Fixtures that start real runs, and end whatever is left of them."""

from __future__ import annotations

import importlib.util
import itertools
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

RUNS = Path(__file__).with_name("runs.py")


def _module(path: Path) -> ModuleType:
    """A plain file, not a test module: loaded by its path in every import mode."""
    spec = importlib.util.spec_from_file_location("elastic_runs", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


_runs = _module(RUNS)


@pytest.fixture(scope="session")
def elastic() -> ModuleType:
    """What the tests need of `runs.py`."""
    return _runs


@dataclass
class Lab:
    """Makes jobs and runs them, each in a folder of its own."""

    folder: Path
    host: Any
    text: Path
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def job(self, text: Path | None = None, **changes: Mapping[str, Any]) -> Path:
        """A JOB file: the tiny job with changes by section."""
        path = self.folder / f"JOB-{next(self.numbers)}.toml"
        return _runs.write_job(path, text or self.text, changes)

    def out(self) -> Path:
        return self.folder / f"run-{next(self.numbers)}"

    def train(
        self,
        job: Path,
        *,
        fails: Sequence[str] = (),
        returns: Sequence[str] = (),
        during: Callable[[Any], None] | None = None,
        out: Path | None = None,
        options: Sequence[str] = (),
        bound_s: float = _runs.RUN_S,
        around: Sequence[str] | None = None,
    ) -> Any:
        """Run a job to its end; fails and returns such as "0/1@12"."""
        out = out or self.out()
        arguments = [*_runs.train_arguments(job, out, fails, returns), *options]
        return self.host.command(arguments, out, during, bound_s, around)


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("elastic")
    host = _runs.Host(folder / "host.log")
    yield Lab(folder, host, _runs.write_text(folder / "text.txt"))
    host.close()


@pytest.fixture(scope="session")
def reference(lab: Lab) -> Any:
    """The run that nothing happens to, with a validation after every step."""
    run = lab.train(lab.job(run={"val_every": 1, "val_sequences": 24}))
    assert run.status == 0, run.stderr
    return run


@pytest.fixture
def launch(lab: Lab) -> Iterator[Callable[..., Any]]:
    """Start `nonuniform train` as a process of its own; nothing of it outlives the test."""
    started: list[Any] = []

    def start(job: Path, fails: Sequence[str] = (), returns: Sequence[str] = ()) -> Any:
        out = lab.out()
        arguments = _runs.train_arguments(job, out, fails, returns)
        started.append(_runs.Command(arguments, out, out.with_suffix(".stderr")))
        return started[-1]

    yield start
    for command in started:
        command.close()


@pytest.fixture
def draw(request: pytest.FixtureRequest) -> random.Random:
    """Chance that is the same in every run of a test; its seed is shown where the test fails."""
    seed = request.node.name
    print(f"drawn with the seed {seed!r}")  # noqa: T201
    return random.Random(seed)
