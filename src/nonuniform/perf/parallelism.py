"""How a training job is spread over GPUs, and whether that is possible.

In: `Work` (a model and a batch) and `Parallel`. Out: the same, checked: the first thing that does
not fit together is refused in one line with its numbers. Does not know: time or memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from nonuniform.errors import BadInput
from nonuniform.perf.hardware import PRECISIONS, Machine
from nonuniform.perf.model import Model

Recompute = Literal["none", "selective", "full"]


@dataclass(frozen=True)
class Work:
    """One step: `sequences` of `length` tokens through `model`."""

    model: Model
    sequences: int
    length: int

    @property
    def tokens(self) -> int:
        return self.sequences * self.length


@dataclass(frozen=True)
class Parallel:
    """The spread of a job, and what its program does.

    `zero`: 0 every rank steps all of its weights; 1 the optimizer state is cut over `data`; 3
    weights and gradients too. `fused`: attention and the loss in one kernel each, not through
    memory. `overlap_*`: whether the collectives of that kind run beside computation.
    `cross_domain`: a tensor-parallel group may be larger than a domain.
    """

    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    context: int = 1
    expert: int = 1
    interleave: int = 1
    micro_batch: int = 1
    precision: str = "bf16"
    recompute: Recompute = "none"
    zero: int = 1
    gradient_bytes: int = 4
    sequence_parallel: bool = True
    fused: bool = True
    overlap_tensor: bool = True
    overlap_data: bool = True
    overlap_pipeline: bool = True
    cross_domain: bool = False

    @property
    def gpus(self) -> int:
        return self.tensor * self.context * self.pipeline * self.data

    def micro_batches(self, work: Work) -> int:
        """Per replica and step."""
        return work.sequences // (self.data * self.micro_batch)


_COUNTS = ("tensor", "pipeline", "data", "context", "expert", "interleave", "micro_batch")


def refusal(machine: Machine, work: Work, parallel: Parallel) -> str | None:
    """Why this cannot run, or None. Cheap, since a search asks it of every candidate."""
    return (
        refuse_values(machine, work, parallel)
        or _refuse_model(work.model, parallel)
        or _refuse_batch(work, parallel)
        or _refuse_groups(machine, parallel)
    )


def check(machine: Machine, work: Work, parallel: Parallel) -> None:
    """The same as an error."""
    reason = refusal(machine, work, parallel)
    if reason:
        raise BadInput(reason)


def refuse_values(machine: Machine, work: Work, p: Parallel) -> str | None:
    """What is wrong whatever the spread."""
    for key in _COUNTS:
        if getattr(p, key) < 1:
            return f"[parallel] {key} = {getattr(p, key)}: must be at least 1"
    if work.sequences < 1 or work.length < 1:
        return f"[batch] sequences = {work.sequences}, length = {work.length}: must be at least 1"
    if p.precision not in PRECISIONS:
        return f"[parallel] precision = {p.precision}: known are {', '.join(PRECISIONS)}"
    if p.precision != "bf16" and not machine.gpu.fp8_tflops:
        return f"[parallel] precision = {p.precision}: {machine.gpu.name} has no FP8"
    if p.recompute not in ("none", "selective", "full"):
        return f"[parallel] recompute = {p.recompute}: known are none, selective, full"
    if p.zero not in (0, 1, 3):
        return f"[parallel] zero = {p.zero}: known are 0, 1, 3"
    if p.gradient_bytes not in (2, 4):
        return f"[parallel] gradient_bytes = {p.gradient_bytes}: known are 2, 4"
    return None


def _refuse_model(model: Model, p: Parallel) -> str | None:
    chunks = p.pipeline * p.interleave
    if model.layers % chunks:
        return (
            f"[parallel] {model.layers} layers do not divide by pipeline x interleave = "
            f"{p.pipeline} x {p.interleave}"
        )
    if p.tensor > model.heads:
        return f"[parallel] tensor = {p.tensor}: more than the {model.heads} heads"
    if p.expert > 1 and (not model.experts or model.experts % p.expert):
        return f"[parallel] expert = {p.expert}: {model.experts} experts do not divide by it"
    return None


def _refuse_batch(work: Work, p: Parallel) -> str | None:
    if work.sequences % (p.data * p.micro_batch):
        return (
            f"[batch] sequences = {work.sequences} do not divide by data x micro_batch = "
            f"{p.data} x {p.micro_batch}"
        )
    if p.interleave > 1 and (p.pipeline == 1 or p.micro_batches(work) % p.pipeline):
        return (
            f"[parallel] interleave = {p.interleave}: needs stages, and micro-batches "
            f"({p.micro_batches(work)}) that divide by them ({p.pipeline})"
        )
    if work.length % p.context:
        return f"[batch] length = {work.length} does not divide by context = {p.context}"
    return None


def _refuse_groups(machine: Machine, p: Parallel) -> str | None:
    if p.tensor > machine.domain_gpus and not p.cross_domain:
        return (
            f"[parallel] tensor = {p.tensor}: more than the {machine.domain_gpus} GPUs of a domain "
            "(cross_domain = true allows it)"
        )
    if p.expert > 1 and (p.data * p.context * p.tensor) % p.expert:
        return (
            f"[parallel] expert = {p.expert}: does not divide data x context x tensor = "
            f"{p.data * p.context * p.tensor}"
        )
    return None
