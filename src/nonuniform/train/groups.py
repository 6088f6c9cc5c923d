"""The process groups of one generation, behind one small interface.

In: a store, the ranks that belong together, the alarm of the generation. Out: groups that sum,
exchange and give up when the alarm rings. Raw process-group objects on a store prefix of their
own: there is no global default group, so a dead generation leaves nothing behind but objects,
which a background reaper drops (destroying a group can block until its timeout).

Gloo on loopback or the given address for CPU tensors, NCCL for CUDA ones. The NCCL path follows
the same interface (waits are stream waits there, the host does not block); it has not been run
on hardware yet.
"""

from __future__ import annotations

import datetime
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, Protocol

import torch
import torch.distributed as dist

from nonuniform.train.alarm import Alarm

Reduction = Literal["sum", "max"]
_REDUCE_OPS = {"sum": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX}


class Group(Protocol):
    """Ranks that call the same operations in the same order."""

    @property
    def rank(self) -> int: ...

    @property
    def size(self) -> int: ...

    def all_reduce(self, tensor: torch.Tensor, op: Reduction = "sum") -> None:
        """Reduce `tensor` over the group, in place; the same bits on every rank."""

    def exchange(
        self,
        received: torch.Tensor,
        sent: torch.Tensor,
        received_counts: Sequence[int],
        sent_counts: Sequence[int],
    ) -> None:
        """All-to-all of flat buffers; counts in elements, by rank of the group."""


@dataclass(frozen=True)
class SoloGroup:
    """The group of one rank: everything is done already."""

    rank: int = 0
    size: int = 1

    def all_reduce(self, tensor: torch.Tensor, op: Reduction = "sum") -> None:
        pass

    def exchange(
        self,
        received: torch.Tensor,
        sent: torch.Tensor,
        received_counts: Sequence[int],
        sent_counts: Sequence[int],
    ) -> None:
        received.copy_(sent)


class TorchGroup:
    """A group over a torch.distributed backend object."""

    def __init__(self, backend: Any, rank: int, size: int, alarm: Alarm) -> None:
        self.rank = rank
        self.size = size
        self._backend = backend
        self._alarm = alarm

    def all_reduce(self, tensor: torch.Tensor, op: Reduction = "sum") -> None:
        if tensor.numel() == 0:
            return
        self._alarm.check()
        options = dist.AllreduceOptions()
        options.reduceOp = dist.ReduceOp(_REDUCE_OPS[op])
        self._finish(tensor, lambda: self._backend.allreduce([tensor], options))

    def exchange(
        self,
        received: torch.Tensor,
        sent: torch.Tensor,
        received_counts: Sequence[int],
        sent_counts: Sequence[int],
    ) -> None:
        self._alarm.check()
        counts = list(received_counts), list(sent_counts)
        options = dist.AllToAllOptions()
        self._finish(sent, lambda: self._backend.alltoall_base(received, sent, *counts, options))

    def _finish(self, tensor: torch.Tensor, start: Callable[[], Any]) -> None:
        if tensor.is_cuda:
            start().wait()  # orders the current stream after the collective; the host goes on
        else:
            self._alarm.finish(start)


def open_group(store: Any, name: str, rank: int, size: int, alarm: Alarm, fabric: Fabric) -> Group:
    """Build one group; every member calls this with the same name. Blocks until all are there."""
    if size == 1:
        return SoloGroup()
    timeout = datetime.timedelta(seconds=alarm.patience_s)
    prefixed = dist.PrefixStore(name, store)
    backend = fabric.connect(prefixed, rank, size, timeout)
    if isinstance(fabric, NcclFabric):
        alarm.on_ring(backend.abort)  # a kernel that waits for a dead peer blocks the host, too
    return TorchGroup(backend, rank, size, alarm)


class CarriedGroup(ABC):
    """A rank's place in a group; `_carrier` is the group that carries out what is called on it."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank = rank
        self.size = size

    @abstractmethod
    def _carrier(self) -> Group: ...

    def all_reduce(self, tensor: torch.Tensor, op: Reduction = "sum") -> None:
        self._carrier().all_reduce(tensor, op)

    def exchange(
        self,
        received: torch.Tensor,
        sent: torch.Tensor,
        received_counts: Sequence[int],
        sent_counts: Sequence[int],
    ) -> None:
        self._carrier().exchange(received, sent, received_counts, sent_counts)


class PendingGroup(CarriedGroup):
    """A group that is being connected in a thread: whoever uses it first waits for it.

    The forward pass begins while the groups that only the backward pass needs are on their way.
    """

    def __init__(self, rank: int, size: int, alarm: Alarm) -> None:
        super().__init__(rank, size)
        self._alarm = alarm
        self._lock = threading.Lock()
        self._waiting: list[threading.Event] = []
        self._group: Group | None = None
        self._failure: BaseException | None = None

    def connect(self, open_one: Callable[[], Group]) -> bool:
        """To be called in the thread that connects; whether it worked."""
        try:
            self._group = open_one()
        except BaseException as error:
            self._failure = error
        self._wake()
        return self._failure is None

    def fail(self, error: BaseException) -> None:
        """It will never be connected: whoever uses it is told why."""
        self._failure = error
        self._wake()

    def _wake(self) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, []
        for event in waiting:
            event.set()

    def _carrier(self) -> Group:
        if self._group is None and self._failure is None:
            self._alarm.sleep_until(self._arm)
        if self._failure is not None:
            if isinstance(self._failure, RuntimeError):
                raise self._alarm.gone(self._failure)
            raise self._failure
        assert self._group is not None
        return self._group

    def _arm(self, event: threading.Event) -> None:
        with self._lock:
            if self._group is None and self._failure is None:
                self._waiting.append(event)
                return
        event.set()


class Fabric(Protocol):
    """What connects ranks: gloo over an address, or NCCL. `done_with_store`: a group that is
    connected does not ask its store any more."""

    done_with_store: ClassVar[bool]

    def connect(self, store: Any, rank: int, size: int, timeout: datetime.timedelta) -> Any: ...


@dataclass(frozen=True)
class GlooFabric:
    """Sockets bound to one local address."""

    done_with_store: ClassVar[bool] = True

    address: str

    @cached_property
    def _device(self) -> Any:
        """One for all groups of the process: each would have a thread and a socket of its own."""
        return dist.ProcessGroupGloo.create_device(hostname=self.address)

    def connect(self, store: Any, rank: int, size: int, timeout: datetime.timedelta) -> Any:
        options = dist.ProcessGroupGloo._Options()  # type: ignore[attr-defined]
        options._devices = [self._device]
        options._timeout = timeout
        return dist.ProcessGroupGloo(store, rank, size, options)


@dataclass(frozen=True)
class NcclFabric:
    """One GPU per process, chosen before with torch.cuda.set_device. Communicators are made at the
    first collective, over the store. Untested on hardware."""

    done_with_store: ClassVar[bool] = False

    def connect(self, store: Any, rank: int, size: int, timeout: datetime.timedelta) -> Any:
        options = dist.ProcessGroupNCCL.Options()
        options._timeout = timeout
        return dist.ProcessGroupNCCL(store, rank, size, options)


def fabric_for(device: torch.device, address: str) -> Fabric:
    return NcclFabric() if device.type == "cuda" else GlooFabric(address)


class Reaper:
    """Drops objects of dead generations in the background, once the next one is not in a hurry any
    more. Each drop ends by the time-out of the work that is pending in it, so as many are under way
    as generations died within one time-out; of those that wait for it there is one."""

    def __init__(self) -> None:
        self._waiting: list[Any] = []

    def take(self, objects: list[Any]) -> None:
        """Take over the references in `objects` (emptied here), until `drop` or the next ones."""
        self.drop()
        self._waiting = list(objects)
        objects.clear()

    def drop(self) -> None:
        """Let go of them elsewhere."""
        if self._waiting:
            taken, self._waiting = self._waiting, []
            threading.Thread(target=taken.clear, name="reaper", daemon=True).start()
            del taken
