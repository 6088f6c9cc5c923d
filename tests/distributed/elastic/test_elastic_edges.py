"""What a run opens to the outside, what its processes weigh, and text that changes under it."""

from __future__ import annotations

import re
import shutil
import socket
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from nonuniform.demo.job import DEGREE, REPLICAS, job_toml
from nonuniform.train.data import Corpus, WindowOptions, Windows

RSS_BYTES = 400 * 10**6


def test_listens_on_the_given_address_only(lab: Any, elastic: Any) -> None:
    """The store and every socket of every process, at the start and after a regroup."""
    port = elastic.free_port()
    looks = []

    def during(live: Any) -> None:
        for step in (2, 7):
            live.wait_step(step)
            looks.append(listeners(live, elastic))
            check_reach(port)

    run = lab.train(lab.job(run={"port": port}), fails=["1/1@4"], during=during)
    assert run.status == 0, run.stderr
    for found in looks:
        assert ("127.0.0.1", port) in found
        assert len(found) > 1, "the processes among themselves listen too"
        assert {address for address, _ in found} == {"127.0.0.1"}


def listeners(live: Any, elastic: Any) -> set[tuple[str, int]]:
    """(address, port) of all that the launcher and its offspring listen on."""
    found = set()
    for process in elastic.session_members(live.launcher):
        try:
            connections = process.net_connections(kind="inet")
        except psutil.NoSuchProcess:
            continue
        found |= {tuple(c.laddr) for c in connections if c.status == psutil.CONN_LISTEN}
    return found


def check_reach(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=5.0):
        pass
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", port), timeout=5.0)


def test_text_that_changes_ends_the_run(lab: Any, reference: Any, tmp_path: Path) -> None:
    """An exception on every rank that reads: no membership can help, so no GPU is blamed."""
    text = Path(shutil.copy(lab.text, tmp_path / "text.txt"))
    size = text.stat().st_size

    def during(live: Any) -> None:
        live.wait_step(3)
        with text.open("a") as file:
            file.write("!")

    run = lab.train(lab.job(text), during=during)
    assert run.status == 3, run.stderr
    (line,) = run.stderr.splitlines()
    assert line == f"nonuniform: {run.summary['reason']}"
    step = run.last_step() + 1
    assert f"step {step} " in line
    assert f"{text} has {size + 1} bytes, but had {size} when listed" in line
    assert samples_in(line) == reference.steps[step - 1]["sample_ids"]
    assert len(run.of_kind("generation")) <= 2


def samples_in(line: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", line.rpartition("samples:")[2])]


def test_text_that_one_replica_reads_ends_the_run_at_the_second_try(
    lab: Any, tmp_path: Path
) -> None:
    """First the replica that was to read the changed file fails, then the one that took over."""
    step, ids = first_step_with_a_rare_file(lab.text.read_bytes(), tmp_path)

    def during(live: Any) -> None:
        live.wait_step(3)
        with (tmp_path / "a.txt").open("a") as file:
            file.write("!")

    run = lab.train(lab.job(tmp_path / "*.txt"), during=during)
    assert run.status == 3, run.stderr
    assert run.last_step() == step - 1
    assert f"step {step} failed by an exception again" in run.summary["reason"]
    assert samples_in(run.summary["reason"]) == list(ids)
    assert len(run.of_kind("generation")) == 2
    first, again = (
        {e["gpu"][0] for e in run.of_kind("failed") if e["generation"] == g} for g in (1, 2)
    )
    assert (first | again, first & again) == ({"0", "1"}, set())


def first_step_with_a_rare_file(text: bytes, folder: Path) -> tuple[int, tuple[int, ...]]:
    """Lay out two files so that the small one is read by one replica at a step after some that do
    not read it; that step and its samples."""
    sequences, length = 6, 32
    (folder / "b.txt").write_bytes(text)
    for size in range(400, 4000, 50):
        (folder / "a.txt").write_bytes(text[:size])
        options = WindowOptions(length, sequences, seed=1)
        windows = Windows(Corpus.open(["*.txt"], folder), options)
        for step in range(4, 20):
            ids = windows.sample_ids(sequences * (step - 1), sequences)
            hits = {
                place // 3 for place, i in enumerate(ids) if i % windows.windows * length < size
            }
            if hits and (step < 8 or len(hits) > 1):
                break
            if hits:
                return step, ids
    raise AssertionError("no size will do")


def test_weight_of_a_worker(lab: Any, tmp_path: Path) -> None:
    """The job of the demo, whose processes share one small machine."""
    job = tmp_path / "JOB.toml"
    job.write_text(job_toml())
    heaviest: dict[str, int] = {}

    def during(live: Any) -> None:
        live.wait_step(1)
        while live.summary is None:
            for gpu, (pid,) in live.pids().items():
                heaviest[gpu] = max(heaviest.get(gpu, 0), rss(pid))
            time.sleep(0.1)

    run = lab.train(job, during=during, options=["--steps", "4"])
    assert run.status == 0, run.stderr
    assert len(heaviest) == REPLICAS * DEGREE
    print({gpu: f"{size / 1e6:.0f} MB" for gpu, size in heaviest.items()})  # noqa: T201
    assert min(heaviest.values()) > 0
    assert max(heaviest.values()) <= RSS_BYTES


def rss(pid: int) -> int:
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.NoSuchProcess:
        return 0
