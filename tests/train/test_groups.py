"""Groups over a backend object: they give up, they never block, they are dropped elsewhere."""

from __future__ import annotations

import datetime
import threading
import time
import weakref
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from nonuniform.train.alarm import Alarm, GenerationDead
from nonuniform.train.groups import Reaper, SoloGroup, TorchGroup, open_group

PATIENCE_S = 10.0


class Work:
    """Ends when it is told; as torch.distributed has it."""

    def __init__(self) -> None:
        self.future: Any = torch.futures.Future()
        self.error: str | None = None

    def end(self, error: str | None = None) -> Work:
        self.error = error
        self.future.set_result(None)
        return self

    def is_completed(self) -> bool:
        return bool(self.future.done())

    def get_future(self) -> Any:
        return self.future

    def wait(self) -> None:
        if self.error:
            raise RuntimeError(self.error)


class Backend:
    """Keeps what it was asked; `work` is what it answers."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self.asked: list[Any] = []

    def allreduce(self, tensors: list[Tensor], options: Any) -> Work:
        self.asked.append((tensors[0], options.reduceOp))
        return self.work

    def alltoall_base(
        self, received: Tensor, sent: Tensor, received_counts: Any, sent_counts: Any, options: Any
    ) -> Work:
        self.asked.append((received, sent, received_counts, sent_counts))
        return self.work


class Fabric:
    """Connects by calling `make`."""

    done_with_store = True

    def __init__(self, make: Any) -> None:
        self.make = make
        self.asked: list[tuple[int, int, float]] = []

    def connect(self, store: Any, rank: int, size: int, timeout: datetime.timedelta) -> Any:
        self.asked.append((rank, size, timeout.total_seconds()))
        store.set("key", "value")
        return self.make()


def test_a_group_of_one_has_nothing_to_do() -> None:
    solo = SoloGroup()
    assert (solo.rank, solo.size) == (0, 1)
    tensor = torch.arange(3.0)
    solo.all_reduce(tensor)
    solo.all_reduce(tensor, "max")
    assert tensor.tolist() == [0.0, 1.0, 2.0]
    received = torch.zeros(3)
    solo.exchange(received, tensor, [3], [3])
    assert torch.equal(received, tensor)
    solo.exchange(torch.empty(0), torch.empty(0), [0], [0])
    never = Fabric(lambda: pytest.fail("nobody to connect to"))
    group = open_group(dist.HashStore(), "g1/extra", 0, 1, Alarm(1.0), never)
    assert isinstance(group, SoloGroup)


def test_operations_are_handed_to_the_backend() -> None:
    backend = Backend(Work().end())
    group = TorchGroup(backend, 1, 3, Alarm(PATIENCE_S))
    assert (group.rank, group.size) == (1, 3)
    tensor, sent = torch.ones(2), torch.ones(4)
    group.all_reduce(tensor)
    group.all_reduce(tensor, "max")
    group.exchange(tensor, sent, (0, 1, 1), (2, 0, 2))
    (one, op), (two, other), exchanged = backend.asked
    assert one is two is tensor
    assert (op, other) == (dist.ReduceOp.SUM, dist.ReduceOp.MAX)
    assert exchanged[2:] == ([0, 1, 1], [2, 0, 2])


def test_nothing_is_asked_for_an_empty_tensor_or_after_the_alarm() -> None:
    backend, alarm = Backend(Work().end()), Alarm(PATIENCE_S)
    group = TorchGroup(backend, 0, 2, alarm)
    group.all_reduce(torch.empty(0))
    alarm.ring("0/1 failed")
    with pytest.raises(GenerationDead, match="0/1 failed"):
        group.all_reduce(torch.ones(1))
    with pytest.raises(GenerationDead, match="0/1 failed"):
        group.exchange(torch.ones(1), torch.ones(1), [1, 0], [0, 1])
    assert backend.asked == []


@pytest.mark.parametrize("operation", ["all_reduce", "exchange"])
@pytest.mark.parametrize("broken", [False, True])
def test_a_collective_under_way_is_given_up_with_the_alarms_reason(
    operation: str, broken: bool
) -> None:
    work, alarm = Work(), Alarm(PATIENCE_S)
    if broken:
        work.end("Connection closed by peer [127.0.0.1]:33333")
    group = TorchGroup(Backend(work), 0, 2, alarm)
    timer = threading.Timer(0.05, alarm.ring, ["1/2 failed"])
    timer.start()
    one = torch.ones(1)
    arguments = [one] if operation == "all_reduce" else [one, one, [0, 1], [0, 1]]
    with pytest.raises(GenerationDead, match=r"^1/2 failed$"):
        getattr(group, operation)(*arguments)
    timer.join()


def test_a_group_is_opened_under_its_name_with_the_alarms_patience() -> None:
    store, fabric = dist.HashStore(), Fabric(lambda: Backend(Work().end()))
    group = open_group(store, "g4/compute/1", 2, 3, Alarm(7.0), fabric)
    assert (group.rank, group.size) == (2, 3)
    assert fabric.asked == [(2, 3, 7.0)]
    assert store.get("g4/compute/1/key") == b"value"


def test_a_peer_that_dies_while_groups_are_opened_is_a_reason_to_give_up() -> None:
    """The connection is refused in every other rank; none of them is at fault."""

    def refused() -> Any:
        raise RuntimeError("Gloo connectFullMesh failed with Connection refused\nmore")

    alarm, fabric = Alarm(PATIENCE_S), Fabric(refused)
    timer = threading.Timer(0.05, alarm.ring, ["0/2 failed"])
    timer.start()
    with pytest.raises(GenerationDead, match=r"^0/2 failed$"):
        alarm.run_aside(lambda: open_group(dist.HashStore(), "g1/x", 0, 3, alarm, fabric))
    timer.join()


def test_opening_is_abandoned_when_the_alarm_rings() -> None:
    blocked = threading.Event()
    alarm, fabric = Alarm(PATIENCE_S), Fabric(lambda: blocked.wait(PATIENCE_S))
    timer = threading.Timer(0.05, alarm.ring, ["0/2 failed"])
    timer.start()
    start = time.monotonic()
    with pytest.raises(GenerationDead, match=r"^0/2 failed$"):
        alarm.run_aside(lambda: open_group(dist.HashStore(), "g1/x", 0, 3, alarm, fabric))
    assert time.monotonic() - start < PATIENCE_S / 2
    blocked.set()
    timer.join()


class Slow:
    """Something whose end takes its time, as that of a process group does."""

    def __init__(self, gate: threading.Event, ended: list[threading.Thread]) -> None:
        self.gate, self.ended = gate, ended

    def __del__(self) -> None:
        self.gate.wait(PATIENCE_S)
        self.ended.append(threading.current_thread())


def test_the_reaper_lets_things_go_in_a_thread_of_its_own() -> None:
    gate, ended = threading.Event(), list[threading.Thread]()
    objects: list[Any] = [Slow(gate, ended), Slow(gate, ended)]
    weak = weakref.ref(objects[0])
    reaper = Reaper()
    start = time.monotonic()
    reaper.take(objects)
    assert objects == []
    assert weak() is not None
    reaper.drop()
    reaper.drop()
    assert time.monotonic() - start < PATIENCE_S / 2
    assert ended == []
    gate.set()
    limit = time.monotonic() + PATIENCE_S
    while len(ended) < 2 and time.monotonic() < limit:
        time.sleep(0.005)
    assert weak() is None
    assert threading.current_thread() not in ended
