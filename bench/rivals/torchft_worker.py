"""One rank of the job under torchft: our model and step in a replica, torchft's Manager across.

In: the job, the rank, where Lighthouse and stores are. Out: lines of attempts.jsonl, from the rank
that is told to write. The replica is a tensor-parallel group at the full degree, by the very code
of `nonuniform.train`; what crosses replicas goes through one Manager per rank (`group_rank` is the
label), which is how torchft pairs ranks. Used as its documentation says: the quorum is started
before the forward pass and runs beside it, the optimizer steps if `should_commit` says so.
"""

from __future__ import annotations

import datetime
import json
import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torchft.manager
from torchft import Manager, ProcessGroupGloo
from torchft.checkpointing import CheckpointTransport
from torchft.coordination import LighthouseServer

from nonuniform.config import JobConfig
from nonuniform.placement.placement import Member, Placement, ReplicaPlacement
from nonuniform.train.alarm import Alarm
from nonuniform.train.data import Corpus, job_windows, split_by_share
from nonuniform.train.groups import Group, fabric_for, open_group
from nonuniform.train.membership import connect_store
from nonuniform.train.session import DTYPES, RankGroups, Session, job_plan, open_session
from nonuniform.train.state import initial_state
from nonuniform.train.step import apply_step, train_step

LOOPBACK = "127.0.0.1"
PATIENCE_S = 60.0  # of torchft's calls and of the groups in a replica
GO, LIGHTHOUSE = "go", "lighthouse"


@dataclass(frozen=True)
class TorchftOrders:
    """All that a process is told. `attempts`: where it writes how each attempt ended, or ""."""

    replica: int
    label: int
    job: JobConfig
    corpus: Corpus
    lighthouse: str
    store_port: int
    control_port: int
    heartbeat_s: float
    attempts: str


class NoTransport(CheckpointTransport[Any]):
    """Weights start equal and nobody comes back, so no state is ever sent. Whoever asks for it was
    left out by mistake; then the attempt fails, and the run counts as disturbed."""

    def metadata(self) -> str:
        return ""

    def send_checkpoint(
        self, dst_ranks: list[int], step: int, state_dict: Any, timeout: datetime.timedelta
    ) -> None:
        raise RuntimeError(f"ranks {dst_ranks} ask for the state of step {step}")

    def recv_checkpoint(
        self, src_rank: int, metadata: str, step: int, timeout: datetime.timedelta
    ) -> Any:
        raise RuntimeError(f"told to fetch the state of step {step} from rank {src_rank}")


class CountedGloo(ProcessGroupGloo):
    """How often the group across replicas was built: once, where nothing happens."""

    configured = 0

    def configure(self, *arguments: Any, **options: Any) -> None:
        self.configured += 1
        super().configure(*arguments, **options)


class ManagedGroup:
    """The way across replicas as torchft offers it. Sums: our step divides by the tokens of all
    who took part, which is the average that torchft takes, weighted by what each has done."""

    def __init__(self, manager: Manager, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self._manager = manager

    def all_reduce(self, tensor: torch.Tensor, op: str = "sum") -> None:
        assert op == "sum", op
        # Errors are not raised here: the manager keeps them, and `should_commit` says no.
        self._manager.allreduce(tensor, reduce_op=torch.distributed.ReduceOp.SUM).wait()

    def exchange(
        self,
        received: torch.Tensor,
        sent: torch.Tensor,
        received_counts: Sequence[int],
        sent_counts: Sequence[int],
    ) -> None:
        raise NotImplementedError("replicas only sum")


@dataclass(frozen=True)
class LighthouseOrders:
    tick_ms: int
    timeout_ms: int
    control_port: int


def lighthouse_main(orders: LighthouseOrders) -> None:
    """A process of its own, as in a real job; it says where it listens."""
    server = LighthouseServer(
        bind=f"{LOOPBACK}:0",
        min_replicas=1,
        quorum_tick_ms=orders.tick_ms,
        heartbeat_timeout_ms=orders.timeout_ms,
    )
    port = server.address().rpartition(":")[2]  # the name before it is that of the machine
    control = connect_store(LOOPBACK, orders.control_port, PATIENCE_S)
    control.set(LIGHTHOUSE, f"http://{LOOPBACK}:{port}")
    threading.Event().wait()  # until it is killed


def worker_main(orders: TorchftOrders) -> None:
    """The whole life of a process."""
    torch.set_num_threads(1)
    pg = CountedGloo(datetime.timedelta(seconds=PATIENCE_S))
    manager = _manager(orders, pg)
    session, tokens = _session(orders, manager)
    control = connect_store(LOOPBACK, orders.control_port, PATIENCE_S)
    control.add("ready", 1)
    control.wait([GO], datetime.timedelta(seconds=PATIENCE_S))
    with open(orders.attempts or os.devnull, "a", encoding="utf-8", buffering=1) as log:
        _train(session, tokens, manager, lambda row: log.write(_line(row, pg)))
    time.sleep(PATIENCE_S)  # the others may still be in their last step; the bench ends all


def _line(row: dict[str, Any], pg: CountedGloo) -> str:
    return json.dumps(row | {"configured": pg.configured}) + "\n"


def _manager(orders: TorchftOrders, pg: ProcessGroupGloo) -> Manager:
    _listen_on_loopback()
    patience = datetime.timedelta(seconds=PATIENCE_S)
    return Manager(
        pg=pg,
        load_state_dict=lambda state: None,
        state_dict=dict,
        min_replica_size=1,
        use_async_quorum=True,
        timeout=patience,
        quorum_timeout=patience,
        connect_timeout=patience,
        rank=orders.label,
        world_size=orders.job.parallel.degree,
        store_addr=LOOPBACK,
        store_port=orders.store_port,
        lighthouse_addr=orders.lighthouse,
        replica_id=f"replica_{orders.replica}",
        hostname=LOOPBACK,
        heartbeat_interval=datetime.timedelta(seconds=orders.heartbeat_s),
        checkpoint_transport=NoTransport(),
        init_sync=False,  # all replicas draw the same weights from the seed
    )


def _listen_on_loopback() -> None:
    """Manager has its server listen on every address of the machine and offers no other choice;
    a bench opens nothing to the outside."""
    inner = torchft.manager.ManagerServer

    def server(**options: Any) -> Any:
        return inner(**(options | {"bind": f"{LOOPBACK}:0"}))

    torchft.manager.ManagerServer = server


class _Tokens:
    """The replica's half of the batch of a step, as undisturbed replicas would cut it."""

    def __init__(self, orders: TorchftOrders, placement: Placement) -> None:
        self._windows = job_windows(orders.job, orders.corpus)
        self._shares = placement.shares
        self._replica = orders.replica

    def __call__(self, step: int) -> torch.Tensor:
        ids = split_by_share(self._windows.step_ids(step), self._shares)[self._replica]
        return torch.from_numpy(self._windows.batch(ids))


def _session(orders: TorchftOrders, manager: Manager) -> tuple[Session, _Tokens]:
    job = orders.job
    replicas, degree = job.parallel.replicas, job.parallel.degree
    placement = Placement(
        tuple(
            ReplicaPlacement(
                r, tuple(f"{r}/{i}" for i in range(degree)), job.batch.sequences // replicas
            )
            for r in range(replicas)
        )
    )
    fabric = fabric_for(torch.device("cpu"), LOOPBACK)
    store = connect_store(LOOPBACK, orders.store_port, PATIENCE_S)
    alarm = Alarm(PATIENCE_S)

    def inside(name: str) -> Group:
        return open_group(store, name, orders.label, degree, alarm, fabric)

    across = ManagedGroup(manager, orders.replica, replicas)
    groups = RankGroups(inside("compute"), inside("reshard"), across)
    where = (degree, orders.label)
    dtype, device = DTYPES[job.run.dtype], torch.device("cpu")
    state = initial_state(job_plan(job), where, job.run.seed, dtype, device)
    member = Member(f"{orders.replica}/{orders.label}", orders.replica, orders.label)
    return open_session(job, placement, member, state, groups), _Tokens(orders, placement)


def _train(session: Session, tokens: _Tokens, manager: Manager, tell: Any) -> None:
    shares = session.placement.shares
    while manager.current_step() < session.job.run.steps:
        step = manager.current_step() + 1
        manager.start_quorum()
        result = train_step(session, tokens(step))
        committed = manager.should_commit()
        if committed:
            apply_step(session, step, result)
        present = manager.num_participants()
        tell(
            {
                "step": step,
                "committed": committed,
                "replicas": present,
                "samples": present * shares[0],
                "loss": result.loss_sum / max(1, result.tokens),
            }
        )
