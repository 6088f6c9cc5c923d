"""Gradient sync across replicas of unequal degree: the executor of the bucket plans.

In: bucket plans (integers), two groups (the rank's replica; the same label of every replica).
Out: in each parameter's `.grad` the sum over all tokens of the step, the same bits on every owner
in every replica; the norm of the whole gradient. DESIGN "Gradient sync".

Parameters' gradients are views into the bucket buffers, so nothing is packed that need not move.
Buckets leave in one planned order, each as soon as backward has finished its tensors. On CPU a
thread of its own carries them; on CUDA the same calls are queued on a side stream (that path has
not been run on hardware yet). Knows nothing of losses, optimizers or outcomes.
"""

from __future__ import annotations

import math
import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from nonuniform.reshard.sync_plan import BucketPlan, Slice, Span
from nonuniform.train.groups import Group
from nonuniform.train.progress import Progress, Track


@dataclass(frozen=True)
class _Leg:
    """One side of an exchange: elements per label, and where they lie."""

    counts: tuple[int, ...]
    slices: tuple[Slice, ...]


class _Route:
    """One direction of a bucket's exchange, with every view made once."""

    def __init__(self, buffer: Tensor, out: _Leg, into: _Leg) -> None:
        self.sent = buffer.new_empty(sum(out.counts))
        self.received = buffer.new_empty(sum(into.counts))
        self.sent_counts, self.received_counts = out.counts, into.counts
        self._pack_from = [_part(buffer, s.buffer) for s in out.slices]
        self._pack_to = [self.sent.narrow(0, s.wire, s.buffer.length) for s in out.slices]
        unpack = [(s, self.received.narrow(0, s.wire, s.buffer.length)) for s in into.slices]
        self._copy = [(_part(buffer, s.buffer), wire) for s, wire in unpack if not s.add]
        self._add = [(_part(buffer, s.buffer), wire) for s, wire in unpack if s.add]

    def run(self, group: Group) -> None:
        _copy_all(self._pack_to, self._pack_from)
        group.exchange(self.received, self.sent, self.received_counts, self.sent_counts)
        _copy_all([to for to, _ in self._copy], [wire for _, wire in self._copy])
        for to, wire in self._add:  # one after the other: partials may share a destination
            to.add_(wire)


class Bucket:
    """The flat buffer of one bucket on this rank and its way to the other replicas and back."""

    def __init__(self, plan: BucketPlan, dtype: torch.dtype, device: torch.device) -> None:
        self.plan = plan
        self.buffer = torch.zeros(plan.size, dtype=dtype, device=device)
        self.reduced = self.buffer.narrow(0, 0, plan.reduced)
        self._zero = [_part(self.buffer, span) for span in plan.zero]
        self._own_out = [self._pair(src, dst) for src, dst, _ in plan.own_out]
        self._own_back = [self._pair(src, dst) for src, dst in plan.own_back]
        self._out = _Route(
            self.buffer, _Leg(plan.send_counts, plan.pack), _Leg(plan.recv_counts, plan.unpack)
        )
        self._back = _Route(
            self.buffer,
            _Leg(plan.back_send_counts, plan.back_pack),
            _Leg(plan.back_recv_counts, plan.back_unpack),
        )

    def _pair(self, src: Span, dst: Span) -> tuple[Tensor, Tensor]:
        return _part(self.buffer, src), _part(self.buffer, dst)

    def sync(self, replica: Group, across: Group) -> None:
        """Sum the bucket over all replicas; every owner ends with the primary's bits."""
        for staging in self._zero:
            staging.zero_()
        _copy_all([dst for _, dst in self._own_out], [src for src, _ in self._own_out])
        self._out.run(replica)
        across.all_reduce(self.reduced)
        _copy_all([dst for _, dst in self._own_back], [src for src, _ in self._own_back])
        self._back.run(replica)


def _part(buffer: Tensor, span: Span) -> Tensor:
    return buffer.narrow(0, span.offset, span.length)


def _copy_all(targets: list[Tensor], sources: list[Tensor]) -> None:
    if targets:
        torch._foreach_copy_(targets, sources)


LANE = "gradient sync"  # the mark of a rank whose buckets are on their way


class Lane(Protocol):
    """Where buckets travel while backward goes on."""

    def put(self, job: Callable[[], None]) -> None: ...

    def drain(self) -> None:
        """Return when all jobs are done; raise what one of them raised."""

    def close(self) -> None: ...


class ThreadLane:
    """Jobs one after the other in a thread: for collectives that block the host. Where that thread
    is stuck, `progress` says so for the rank as soon as somebody waits for it."""

    def __init__(self, progress: Progress | None = None) -> None:
        self._progress = progress or Progress()
        self._track: Track | None = None
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="gradient-sync", daemon=True)
        self._thread.start()

    def put(self, job: Callable[[], None]) -> None:
        self._jobs.put(job)

    def drain(self) -> None:
        done = threading.Event()
        self._jobs.put(done.set)
        with self._progress.relying_on(self._track):
            done.wait()
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        self._jobs.put(None)

    def _next_job(self) -> Callable[[], None] | None:
        with self._progress.waiting():  # idle is not busy
            return self._jobs.get()

    def _work(self) -> None:
        track = self._track = self._progress.helper(LANE)
        while (job := self._next_job()) is not None:
            track.at(LANE)
            if self._failure is not None and not _is_marker(job):
                continue
            try:
                job()
            except BaseException as error:
                self._failure = error
        self._failure = None  # its traceback leads back here: a cycle that holds all buffers


def _is_marker(job: Callable[[], None]) -> bool:
    """The event of a `drain`: it must be set also after a failure."""
    return isinstance(getattr(job, "__self__", None), threading.Event)


class StreamLane:
    """Jobs queued on a CUDA side stream. Untested on hardware."""

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device)

    def put(self, job: Callable[[], None]) -> None:
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            job()

    def drain(self) -> None:
        torch.cuda.current_stream().wait_stream(self._stream)

    def close(self) -> None:
        self.drain()


class GradientSync:
    """All buckets of one rank for one generation."""

    def __init__(
        self,
        buckets: Sequence[Bucket],
        parameters: dict[str, nn.Parameter],
        replica: Group,
        across: Group,
        lane: Lane,
    ) -> None:
        self.buckets = buckets
        self._replica, self._across, self._lane = replica, across, lane
        self._parameters = parameters
        self._bucket_of = {name: i for i, b in enumerate(buckets) for name, _ in b.plan.grads}
        self._waiting: list[set[str]] = []
        self._launched = len(buckets)
        device = buckets[0].buffer.device
        self._totals = torch.zeros(2, dtype=torch.float64, device=device)  # loss sum, tokens
        self._overlapping = False
        self._hooks = list(self._attach())

    def _attach(self) -> Iterator[RemovableHandle]:
        for bucket in self.buckets:
            for name, span in bucket.plan.grads:
                parameter = self._parameters[name]
                parameter.grad = _part(bucket.buffer, span).view(parameter.shape)
                yield parameter.register_post_accumulate_grad_hook(self._hook(name))

    def _hook(self, name: str) -> Callable[[Tensor], None]:
        return lambda parameter: self._ready(name)

    def begin(self) -> None:
        """Clear all gradients."""
        torch._foreach_zero_([bucket.buffer for bucket in self.buckets])
        self._waiting = [{name for name, _ in bucket.plan.grads} for bucket in self.buckets]
        self._launched = 0
        self._overlapping = False

    def arm(self) -> None:
        """The next backward is the last one of the step: let buckets leave as they fill."""
        self._overlapping = True

    def _ready(self, name: str) -> None:
        if not self._overlapping:
            return
        self._waiting[self._bucket_of[name]].discard(name)
        while self._launched < len(self.buckets) and not self._waiting[self._launched]:
            self._launch()

    def _launch(self) -> None:
        bucket = self.buckets[self._launched]
        self._launched += 1
        self._lane.put(lambda: bucket.sync(self._replica, self._across))

    def finish(self, loss_sum: Tensor | float, tokens: int) -> None:
        """Flush what got no gradient as zeros; return when all gradients are final, and the
        replicas' `loss_sum` and `tokens` are added up."""
        while self._launched < len(self.buckets):
            self._launch()
        self._set_totals(loss_sum, tokens)
        self._lane.put(lambda: self._across.all_reduce(self._totals))
        self._lane.drain()

    def _set_totals(self, loss_sum: Tensor | float, tokens: int) -> None:
        self._totals[0] = loss_sum
        self._totals[1] = float(tokens)

    def totals(self, loss_sum: Tensor | float, tokens: int) -> tuple[float, int]:
        """Loss sum and tokens of all replicas, where there is no gradient."""
        self._set_totals(loss_sum, tokens)
        self._across.all_reduce(self._totals)
        _, loss, count = self._tell_all([])
        return loss, count

    def norm_and_totals(self, p: float) -> tuple[float, float, int]:
        """(p-norm of the summed gradient, loss sum, tokens of the step): the same bits everywhere.

        Every logical element counts once: sync ranks take the norm of what they reduced, each in
        a slot of its own, so the sum over the replica adds nothing but zeros to it, and all
        combine the slots in the same order. Extra ranks reduce nothing, so theirs stay empty.
        """
        parts, loss, tokens = self._tell_all([self._local_norm(p)])
        return combine_norms(parts, p), loss, tokens

    def _tell_all(self, own: list[Tensor]) -> tuple[list[float], float, int]:
        """Every rank's value in a slot of its own, and the totals as rank 0 of each replica has
        them: those were added in one group, so no two ranks differ in the last bit."""
        slots = self._totals.new_zeros(self._replica.size + 2)
        for value in own:
            slots[self._replica.rank] = value
        if self._replica.rank == 0:
            slots[-2:] = self._totals
        self._replica.all_reduce(slots)
        *parts, loss, tokens = slots.tolist()
        return parts, loss, int(tokens)

    def _local_norm(self, p: float) -> Tensor:
        norms = [
            torch.linalg.vector_norm(bucket.reduced, p, dtype=torch.float64)
            for bucket in self.buckets
            if bucket.plan.reduced
        ]
        if not norms:
            return self._totals.new_zeros(())
        return torch.linalg.vector_norm(torch.stack(norms), p)

    def scale(self, factor: float) -> None:
        """Multiply all gradients, once they are final."""
        torch._foreach_mul_([bucket.buffer for bucket in self.buckets], factor)

    def close(self) -> None:
        """Stop the lane and let go of the parameters. A hook lives on the C++ side, where the
        garbage collector sees no cycle: left there it would keep buffers and sockets forever."""
        for hook in self._hooks:
            hook.remove()
        self._lane.close()


def combine_norms(parts: Iterable[float], p: float) -> float:
    """The p-norm of a vector from the p-norms of its parts."""
    parts = list(parts)
    if any(math.isnan(part) for part in parts):
        return math.nan
    peak = max(parts, default=0.0)
    if p == math.inf or peak in (0.0, math.inf):
        return peak
    return float(peak * sum((part / peak) ** p for part in parts) ** (1.0 / p))


def make_buckets(
    plans: Sequence[BucketPlan], dtype: torch.dtype, device: torch.device
) -> list[Bucket]:
    return [Bucket(plan, dtype, device) for plan in plans]


def lane_for(device: torch.device, progress: Progress | None = None) -> Lane:
    return StreamLane(device) if device.type == "cuda" else ThreadLane(progress)
