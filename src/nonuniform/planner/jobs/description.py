"""A job as the planner needs it.

In: values that were read and found to go together (settle.py). Out: `JobDescription`, and the
same as `Parallel` and `Work` of the step-time model. DESIGN "Outside contract". Does not know:
files.
"""

from __future__ import annotations

from dataclasses import dataclass

from nonuniform.perf.model import Model
from nonuniform.perf.parallelism import Parallel, Recompute, Work


@dataclass(frozen=True, kw_only=True)
class JobDescription:
    """None: the file does not say, and nothing that it says leads to it.

    `sequences`: the global batch. `domain`: GPUs of a scale-up domain that the job means to use, a
    hint. `days`: how long it runs, `limit_days`: after what time its scheduler ends it. `requeue`:
    it is queued again by itself after a failure. `preemptible`: others may take its GPUs.
    `uneven`: stages may hold unequal numbers of layers. `zero` as DeepSpeed counts, 0..3.
    """

    name: str
    model: Model | None
    tensor: int
    pipeline: int
    context: int
    expert: int
    data: int | None
    interleave: int
    micro_batch: int
    sequences: int | None
    length: int | None
    precision: str = "bf16"
    recompute: Recompute = "none"
    zero: int = 0
    sequence_parallel: bool = False
    overlap_tensor: bool = False
    overlap_data: bool = False
    overlap_pipeline: bool = False
    gpus: int | None = None
    domain: int | None = None
    nodes: int | None = None
    gpus_per_node: int | None = None
    steps: int | None = None
    tokens: float | None = None
    days: float | None = None
    limit_days: float | None = None
    checkpoint_every_steps: int | None = None
    preemptible: bool = False
    requeue: bool = False
    uneven: bool = False

    @property
    def gpus_per_replica(self) -> int:
        return self.tensor * self.pipeline * self.context

    @property
    def accumulation(self) -> int | None:
        """Micro-batches that a replica adds up before a step."""
        if self.sequences is None or self.data is None:
            return None
        return self.sequences // (self.data * self.micro_batch)

    def parallel(self, cross_domain: bool = False) -> Parallel | None:
        """None where the number of replicas is not known. ZeRO-2 counts as 1: gradients are cut
        as well, what travels is the same."""
        if self.data is None:
            return None
        return Parallel(
            tensor=self.tensor,
            pipeline=self.pipeline,
            data=self.data,
            context=self.context,
            expert=self.expert,
            interleave=self.interleave,
            micro_batch=self.micro_batch,
            precision=self.precision,
            recompute=self.recompute,
            zero=1 if self.zero == 2 else self.zero,
            sequence_parallel=self.sequence_parallel,
            overlap_tensor=self.overlap_tensor,
            overlap_data=self.overlap_data,
            overlap_pipeline=self.overlap_pipeline,
            cross_domain=cross_domain,
        )

    def work(self) -> Work | None:
        """None where model or batch are not known."""
        if self.model is None or self.sequences is None or self.length is None:
            return None
        return Work(self.model, self.sequences, self.length)
