"""What only torch can say about this machine, for `nonuniform doctor`.

In: a backend and how many processes. Out: versions and GPUs, and the time of a small all-reduce
between processes of their own, or why there was none within the bound.

Each member process is this module run as a script; it meets the others at a store that the asking
process opens on the loopback address only.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

import torch

from nonuniform.errors import NonuniformError
from nonuniform.train.groups import fabric_for
from nonuniform.train.membership import connect_store, host_store

LOOPBACK = "127.0.0.1"
BOUND_S = 60.0
ROUNDS = 10


@dataclass(frozen=True)
class TorchFacts:
    """`gpus` describes each GPU that torch can use."""

    version: str
    gpus: tuple[str, ...]


@dataclass(frozen=True)
class RoundTrip:
    """`seconds` for one small all-reduce; None with the `problem` if there was none."""

    backend: str
    seconds: float | None
    problem: str = ""


def torch_facts() -> TorchFacts:
    gpus = []
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        gpus.append(f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB")
    return TorchFacts(str(torch.__version__), tuple(gpus))


def member_command(backend: str, rank: int, members: int, port: int) -> list[str]:
    numbers = [str(rank), str(members), str(port)]
    return [sys.executable, "-m", "nonuniform.train.probe", backend, *numbers]


def round_trip(
    backend: str,
    members: int,
    bound_s: float = BOUND_S,
    command: Callable[[str, int, int, int], Sequence[str]] = member_command,
) -> RoundTrip:
    """Let `members` processes all-reduce; the slowest one's time counts."""
    deadline_s = time.monotonic() + bound_s
    try:
        store, port = host_store(LOOPBACK, 0)
        with contextlib.ExitStack() as stack:
            processes = [
                stack.enter_context(_running(command(backend, rank, members, port)))
                for rank in range(members)
            ]
            times = [_answer(process, deadline_s) for process in processes]
        del store  # it answers until then
    except subprocess.TimeoutExpired:
        return RoundTrip(backend, None, f"no answer within {bound_s:g} s")
    except (NonuniformError, OSError, RuntimeError, ValueError) as error:
        return RoundTrip(backend, None, str(error).strip().splitlines()[-1])
    return RoundTrip(backend, max(times))


@contextlib.contextmanager
def _running(command: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _answer(process: subprocess.Popen[str], deadline_s: float) -> float:
    out, err = process.communicate(timeout=max(0.0, deadline_s - time.monotonic()))
    if process.returncode != 0:
        raise RuntimeError(err or f"a process ended with status {process.returncode}")
    return float(out)


def _member(backend: str, rank: int, members: int, port: int) -> float:
    store = connect_store(LOOPBACK, port, BOUND_S)
    device = torch.device("cuda", rank) if backend == "nccl" else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    fabric = fabric_for(device, LOOPBACK)
    group = fabric.connect(store, rank, members, timedelta(seconds=BOUND_S))
    tensor = torch.ones(1, device=device)
    group.allreduce([tensor]).wait()  # opens the connections
    start_s = time.perf_counter()
    for _ in range(ROUNDS):
        group.allreduce([tensor]).wait()
    total = tensor.item()  # waits for a GPU too
    seconds = (time.perf_counter() - start_s) / ROUNDS
    if total != members ** (ROUNDS + 1):
        raise RuntimeError(f"all-reduce gave {total:g} instead of {members ** (ROUNDS + 1)}")
    return seconds


if __name__ == "__main__":
    backend, *numbers = sys.argv[1:]
    sys.stdout.write(f"{_member(backend, *map(int, numbers))}\n")
