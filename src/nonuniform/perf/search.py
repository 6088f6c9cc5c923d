"""The best spread of a model on a cluster.

In: `Machine`, `Work`, a number of GPUs. Out: `Found`: the fastest spreads that fit, and why others
were refused. Domain and memory limits are those of parallelism.py and memory_training.py. Does not
know: progress bars; it calls back.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from nonuniform.errors import BadInput
from nonuniform.perf.hardware import Machine
from nonuniform.perf.memory_training import misfit, training_bytes
from nonuniform.perf.parallelism import Parallel, Recompute, Work, refusal
from nonuniform.perf.step_time import Step, step_time

Progress = Callable[[int, int], None]
EVERY = 1000  # candidates between two calls


@dataclass(frozen=True)
class Candidate:
    parallel: Parallel
    step: Step
    memory_bytes: float


@dataclass(frozen=True)
class Found:
    """`best` fastest first. `refused`: how many, by reason; `examples`: one line for each."""

    best: tuple[Candidate, ...]
    examined: int
    refused: dict[str, int]
    examples: dict[str, str]


def divisors(number: int) -> list[int]:
    return [n for n in range(1, number + 1) if number % n == 0]


def spreads(machine: Machine, work: Work, gpus: int, like: Parallel) -> Iterator[Parallel]:
    """All that could be asked; what cannot run is refused later, with its reason."""
    layers = work.model.layers
    for tensor in divisors(gpus):
        if tensor > 2 * machine.domain_gpus:
            break
        for pipeline in divisors(gpus // tensor):
            if pipeline > layers:
                break
            for context in _powers(min(8, gpus // tensor // pipeline)):
                data, rest = divmod(gpus // tensor // pipeline, context)
                if not rest:
                    yield from _programs(work, like, (tensor, pipeline, data, context))


def _powers(most: int) -> list[int]:
    return [1 << i for i in range(most.bit_length())]


def _programs(
    work: Work, like: Parallel, shape: tuple[int, int, int, int]
) -> Iterator[Parallel]:  # fmt: skip
    tensor, pipeline, data, context = shape
    kinds: tuple[Recompute, ...] = ("none", "full") if like.fused else ("none", "selective", "full")
    experts = divisors(work.model.experts) if work.model.experts else [1]
    chunks = divisors(work.model.layers // pipeline) if pipeline > 1 else [1]
    for micro_batch in (1, 2, 4, 8, 16):
        for interleave in chunks:
            for expert in experts:
                for recompute in kinds:
                    yield Parallel(
                        tensor, pipeline, data, context, expert, interleave, micro_batch,
                        like.precision, recompute, like.zero, like.gradient_bytes,
                        like.sequence_parallel, like.fused, like.overlap_tensor,
                        like.overlap_data, like.overlap_pipeline,
                    )  # fmt: skip


def search(
    machine: Machine,
    work: Work,
    candidates: Iterable[Parallel],
    keep: int = 10,
    progress: Progress | None = None,
) -> Found:
    """`candidates` as of `spreads`, or a person's own list."""
    asked = list(candidates)
    best: list[tuple[float, int, Candidate]] = []
    refused: Counter[str] = Counter()
    examples: dict[str, str] = {}
    for index, p in enumerate(asked):
        if progress and index % EVERY == 0:
            progress(index, len(asked))
        kind, reason = _refused(machine, work, p)
        if reason:
            refused[kind] += 1
            examples.setdefault(kind, reason)
            continue
        step = step_time(machine, work, p)
        if len(best) == keep and step.total_s >= -best[0][0]:
            continue
        found = Candidate(p, step, training_bytes(machine, work, p).total)
        (heapq.heappush if len(best) < keep else heapq.heapreplace)(
            best, (-step.total_s, -index, found)
        )
    if progress:
        progress(len(asked), len(asked))
    order = sorted(best, key=lambda entry: (-entry[0], -entry[1]))
    fastest = tuple(candidate for _, _, candidate in order)
    return Found(fastest, len(asked), dict(refused.most_common()), examples)


def _refused(machine: Machine, work: Work, p: Parallel) -> tuple[str, str | None]:
    """A short kind to count by, and the line."""
    reason = refusal(machine, work, p)
    if reason:
        return _kind(reason), reason
    return "memory", misfit(machine, training_bytes(machine, work, p))


def _kind(reason: str) -> str:
    for word in ("domain", "interleave", "expert", "context", "micro_batch", "heads"):
        if word in reason:
            return word
    return "other"


def need_one(found: Found, gpus: int) -> Candidate:
    """The best, or a line why there is none."""
    if found.best:
        return found.best[0]
    most = max(found.refused, key=found.refused.__getitem__, default="")
    example = f"; for example {found.examples[most]}" if most else ""
    raise BadInput(f"none of {found.examined} spreads on {gpus} GPUs can run{example}")
