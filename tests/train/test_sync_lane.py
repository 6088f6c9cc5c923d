"""When buckets leave, what a failure on their way does, and that nothing is kept afterwards."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from standins.gradients import Known
from standins.shards import CPU, KV_GROUPS, parameters_of, plan_of
from torch import Tensor, nn

from nonuniform.reshard.sync_plan import assign_buckets, bucket_plans
from nonuniform.train.alarm import GenerationDead
from nonuniform.train.groups import Group, Reduction, SoloGroup
from nonuniform.train.progress import Progress
from nonuniform.train.state import initial_state
from nonuniform.train.sync import GradientSync, Lane, ThreadLane, lane_for, make_buckets

PLAN = plan_of(KV_GROUPS, 2)
KNOWN = Known(PLAN, (1,))
BUCKETS = assign_buckets(PLAN, 40)
SOON_S = 5.0


class Shelf:
    """A lane that keeps its jobs until they are asked for."""

    def __init__(self) -> None:
        self.jobs: list[Callable[[], None]] = []
        self.closed = False

    def put(self, job: Callable[[], None]) -> None:
        self.jobs.append(job)

    def drain(self) -> None:
        while self.jobs:
            self.jobs.pop(0)()

    def close(self) -> None:
        self.closed = True


class Scribe:
    """A group of one that writes down how many elements were reduced; fails when told to."""

    rank, size = 0, 1

    def __init__(self, fail_at: int | None = None) -> None:
        self.fail_at = fail_at
        self.reduced: list[int] = []

    def all_reduce(self, tensor: Tensor, op: Reduction = "sum") -> None:
        if len(self.reduced) == self.fail_at:
            raise GenerationDead("0/3 failed")
        self.reduced.append(tensor.numel())

    def exchange(
        self,
        received: Tensor,
        sent: Tensor,
        received_counts: Sequence[int],
        sent_counts: Sequence[int],
    ) -> None:
        raise AssertionError("everything that crosses goes through all_reduce")


def sync_with(lane: Lane, across: Group) -> GradientSync:
    state = initial_state(PLAN, (1, 0), 1, torch.float64, CPU)
    made = make_buckets(bucket_plans(PLAN, 1, 0, 1, BUCKETS), torch.float64, CPU)
    return GradientSync(made, parameters_of(state), SoloGroup(), across, lane)


def backward(sync: GradientSync, names: list[str]) -> None:
    terms = []
    for name in names:
        parameter = sync._parameters[name]
        gradient = KNOWN.of_rank(PLAN.tensor(name), 0, 0)
        assert gradient is not None
        terms.append((parameter * gradient.reshape(parameter.shape)).sum())
    torch.stack(terms).sum().backward()


def names_of(bucket: int) -> list[str]:
    return list(BUCKETS[bucket])


@pytest.fixture
def lane() -> Iterator[ThreadLane]:
    lane = ThreadLane()
    yield lane
    lane.close()
    lane._thread.join(SOON_S)
    assert not lane._thread.is_alive()


def test_buckets_leave_in_the_planned_order_whatever_comes_first() -> None:
    shelf = Shelf()
    sync = sync_with(shelf, SoloGroup())
    assert len(BUCKETS) > 3
    sync.begin()
    sync.arm()
    backward(sync, names_of(1))
    assert len(shelf.jobs) == 0
    backward(sync, names_of(0))
    assert len(shelf.jobs) == 2
    backward(sync, names_of(3))
    assert len(shelf.jobs) == 2
    backward(sync, names_of(2)[:1])
    backward(sync, names_of(2)[1:] or names_of(3))
    assert len(shelf.jobs) == 4
    sync.finish(0.0, 5)
    assert shelf.jobs == []
    sync.close()
    assert shelf.closed


def test_nothing_leaves_before_the_last_backward() -> None:
    shelf = Shelf()
    sync = sync_with(shelf, SoloGroup())
    everything = [tensor.name for tensor in PLAN.tensors]
    sync.begin()
    backward(sync, everything)
    backward(sync, everything)
    assert len(shelf.jobs) == 0
    sync.arm()
    backward(sync, everything)
    assert len(shelf.jobs) == len(BUCKETS)
    sync.finish(0.0, 5)
    for tensor in PLAN.tensors:
        gradient = sync._parameters[tensor.name].grad
        assert gradient is not None
        wanted = 3 * KNOWN.total(tensor)[torch.from_numpy(PLAN.local_rows(tensor, 1, 0).copy())]
        assert torch.equal(gradient.reshape(wanted.shape), wanted)


def test_each_bucket_is_reduced_once_with_its_whole_content() -> None:
    scribe, shelf = Scribe(), Shelf()
    sync = sync_with(shelf, scribe)
    for _ in range(2):
        sync.begin()
        sync.arm()
        backward(sync, [tensor.name for tensor in PLAN.tensors])
        sync.finish(0.0, 5)
    sizes = [sum(PLAN.tensor(name).elements for name in names) for names in BUCKETS]
    assert scribe.reduced == 2 * [*sizes, 2]  # loss sum and tokens go last


def test_after_close_gradients_launch_nothing() -> None:
    shelf = Shelf()
    sync = sync_with(shelf, SoloGroup())
    sync.begin()
    sync.arm()
    sync.close()
    before = len(shelf.jobs)
    backward(sync, [tensor.name for tensor in PLAN.tensors])
    assert len(shelf.jobs) == before


@pytest.mark.parametrize("fail_at", [0, 1, 3])
def test_finish_raises_what_went_wrong_on_the_way(fail_at: int) -> None:
    scribe = Scribe(fail_at)
    sync = sync_with(ThreadLane(), scribe)
    sync.begin()
    sync.arm()
    backward(sync, [tensor.name for tensor in PLAN.tensors])
    with pytest.raises(GenerationDead, match="0/3 failed"):
        sync.finish(0.0, 5)
    assert len(scribe.reduced) == fail_at
    sync.close()


def test_jobs_run_in_order_in_another_thread(lane: ThreadLane) -> None:
    done: list[Any] = []
    for number in range(20):
        lane.put(lambda n=number: done.append((n, threading.current_thread())))
    lane.drain()
    assert [number for number, _ in done] == list(range(20))
    assert {thread for _, thread in done} == {lane._thread}
    lane.drain()


def test_after_a_failure_later_jobs_are_left_out_and_every_drain_raises(lane: ThreadLane) -> None:
    done: list[int] = []

    def wrong() -> None:
        raise ValueError("broken on the way")

    lane.put(lambda: done.append(1))
    lane.put(wrong)
    lane.put(lambda: done.append(2))
    for _ in range(2):
        with pytest.raises(ValueError, match="broken on the way"):
            lane.drain()
    assert done == [1]


def test_the_lane_of_a_cpu_is_a_thread() -> None:
    lane = lane_for(CPU)
    assert isinstance(lane, ThreadLane)
    lane.close()


def run_once(scribe: Scribe, weak: list[weakref.ref[Any]]) -> None:
    """A generation from its first step to its end, as a worker has it."""
    lane = ThreadLane()
    sync = sync_with(lane, scribe)
    parameter: nn.Parameter = sync._parameters["norm.weight"]
    weak += [weakref.ref(sync), weakref.ref(sync.buckets[0].buffer), weakref.ref(parameter)]
    weak += [weakref.ref(scribe), weakref.ref(lane)]
    try:
        sync.begin()
        sync.arm()
        backward(sync, [tensor.name for tensor in PLAN.tensors])
        sync.finish(0.0, 5)
    except GenerationDead:
        pass
    finally:
        sync.close()


@pytest.mark.parametrize("fail_at", [None, 0, 2], ids=["done", "failed at once", "failed late"])
def test_after_close_nothing_is_kept_even_without_the_collector(fail_at: int | None) -> None:
    """What the collector frees it frees in some thread at some time; groups must not wait for it,
    least of all after a failure."""
    weak: list[weakref.ref[Any]] = []
    gc.collect()
    gc.disable()
    try:
        run_once(Scribe(fail_at), weak)
        limit = time.monotonic() + SOON_S
        while any(ref() is not None for ref in weak) and time.monotonic() < limit:
            time.sleep(0.005)
        assert [ref() for ref in weak] == [None] * len(weak)
    finally:
        gc.enable()


def test_a_main_thread_that_gave_up_leaves_nothing_behind_either() -> None:
    """The forward pass gives up while buckets of the step are still under way."""
    released = threading.Event()
    weak: list[weakref.ref[Any]] = []

    class Stuck(Scribe):
        def all_reduce(self, tensor: Tensor, op: Reduction = "sum") -> None:
            released.wait(SOON_S)
            raise GenerationDead("0/3 failed")

    def give_up() -> None:
        sync = sync_with(ThreadLane(), Stuck())
        weak.append(weakref.ref(sync))
        weak.append(weakref.ref(sync.buckets[0].buffer))
        try:
            sync.begin()
            sync.arm()
            backward(sync, names_of(0))
            raise GenerationDead("0/3 failed")
        except GenerationDead:
            pass
        finally:
            sync.close()

    gc.collect()
    gc.disable()
    try:
        give_up()
        released.set()
        limit = time.monotonic() + SOON_S
        while any(ref() is not None for ref in weak) and time.monotonic() < limit:
            time.sleep(0.005)
        assert [ref() for ref in weak] == [None, None]
    finally:
        gc.enable()


class HeldBack:
    """The group of a replica from which an extra rank's gradients do not come back yet."""

    rank, size = 1, 2

    def __init__(self) -> None:
        self.asked, self.come = threading.Event(), threading.Event()

    def all_reduce(self, tensor: Tensor, op: Reduction = "sum") -> None:
        raise AssertionError("inside a replica gradients are exchanged")

    def exchange(
        self,
        received: Tensor,
        sent: Tensor,
        received_counts: Sequence[int],
        sent_counts: Sequence[int],
    ) -> None:
        if len(received):
            self.asked.set()
            assert self.come.wait(SOON_S)


def test_an_extra_rank_does_not_come_to_its_vote_before_its_gradients_are_back() -> None:
    """It votes when all it needs for the step is in its own memory: after `finish`."""
    held = HeldBack()
    state = initial_state(PLAN, (2, 1), 1, torch.float64, CPU)
    made = make_buckets(bucket_plans(PLAN, 2, 1, 1, BUCKETS), torch.float64, CPU)
    sync = GradientSync(made, parameters_of(state), held, SoloGroup(), ThreadLane())
    sync.begin()
    finished = threading.Event()

    def finish() -> None:
        sync.finish(0.0, 5)
        finished.set()

    threading.Thread(target=finish, daemon=True).start()
    assert held.asked.wait(SOON_S)
    assert not finished.wait(0.1)
    held.come.set()
    assert finished.wait(SOON_S)
    sync.close()


def test_an_idle_lane_is_not_taken_for_one_that_is_busy() -> None:
    """Else a rank whose lane had long nothing to do would be given up at its next job."""
    progress, inside, go_on = Progress(), threading.Event(), threading.Event()
    lane = ThreadLane(progress)

    def job() -> None:
        inside.set()
        assert go_on.wait(SOON_S)

    lane.put(lambda: None)
    lane.drain()
    time.sleep(0.3)
    assert lane._track is not None
    with progress.relying_on(lane._track):
        assert progress.beat().waiting
    lane.put(job)
    assert inside.wait(SOON_S)
    with progress.relying_on(lane._track):
        beat = progress.beat()
    assert not beat.waiting
    assert beat.age_s < 0.2, "busy with this job, not with the time before it"
    go_on.set()
    lane.close()
