"""How long a training step takes, part by part.

In: `Machine`, `Work`, `Parallel`. Out: `Step`. DESIGN "Step time". All analytic, no state: the same
call for a search, a simulation and a person. Every part is what shows on the clock of the slowest
stage. Does not know: uneven degrees (nonuniform.py does), memory (memory_training.py does),
stragglers, loading of data.
"""

from __future__ import annotations

from typing import NamedTuple

from nonuniform.perf.comm import exposed_s, gather_s, send_s
from nonuniform.perf.flops import flops_per_token
from nonuniform.perf.hardware import Machine
from nonuniform.perf.layer import LayerTime, Micro, VocabTime, layer_time, vocab_time
from nonuniform.perf.model import Model, Part, even_part
from nonuniform.perf.parallelism import Parallel, Work

ADAM_BYTES = (
    34.0  # per parameter: gradient, weight and moments in FP32, read and written, BF16 copy
)
SWEEP_BYTES = 4.0  # gradients set to zero
FORWARD_OF_BOTH = 1 / 3


class Step(NamedTuple):
    """Seconds of a step by what they are spent on; FLOPs are those of the model, per GPU."""

    gemm_s: float
    attention_s: float
    memory_s: float
    vocab_s: float
    recompute_s: float
    tensor_comm_s: float
    context_comm_s: float
    expert_comm_s: float
    pipeline_comm_s: float
    data_comm_s: float
    bubble_s: float
    optimizer_s: float
    total_s: float
    flops_per_gpu: float

    @property
    def compute_s(self) -> float:
        return self.gemm_s + self.attention_s + self.memory_s + self.vocab_s + self.recompute_s

    @property
    def tflops_per_gpu(self) -> float:
        return self.flops_per_gpu / self.total_s / 1e12


class Pace(NamedTuple):
    """What one stage spends on a micro-batch."""

    layer: LayerTime
    layers: int
    vocab: VocabTime
    send_s: float

    @property
    def middle_s(self) -> float:
        return self.layers * self.layer.total + self.send_s

    @property
    def last_s(self) -> float:
        return self.middle_s + self.vocab.total


def step_time(machine: Machine, work: Work, p: Parallel, part: Part | None = None) -> Step:
    """`part`: what the fullest rank holds, where that is not an even share."""
    model = work.model
    part = part or even_part(model, p.tensor)
    pace = stage_pace(machine, work, p, part)
    count = p.micro_batches(work)
    # As pipeline_s, for stages that are equal but for the last.
    waited = (p.pipeline - 1) * pace.middle_s / p.interleave
    data_s, optimizer_s = after_backward(machine, model, p, part, pace, count)
    layer, times = pace.layer, count * pace.layers
    total = count * pace.last_s + waited + data_s + optimizer_s
    return Step(
        gemm_s=times * (layer.gemm_forward + layer.gemm_backward),
        attention_s=times * (layer.attention_forward + layer.attention_backward),
        memory_s=times * (layer.memory_forward + layer.memory_backward),
        vocab_s=count * (pace.vocab.forward + pace.vocab.backward),
        recompute_s=times * layer.again,
        tensor_comm_s=times * layer.tensor_comm + count * pace.vocab.comm,
        context_comm_s=times * layer.context_comm,
        expert_comm_s=times * layer.expert_comm,
        pipeline_comm_s=count * pace.send_s,
        data_comm_s=data_s,
        bubble_s=waited,
        optimizer_s=optimizer_s,
        total_s=total,
        flops_per_gpu=flops_per_token(model, work.length) * work.tokens / p.gpus,
    )


def micro_of(machine: Machine, work: Work, p: Parallel) -> Micro:
    domain = machine.domain_gpus
    return Micro(
        sequences=p.micro_batch,
        length=work.length,
        context=p.context,
        precision=p.precision,
        recompute=p.recompute,
        fused=p.fused,
        sequence_parallel=p.sequence_parallel,
        overlap_tensor=p.overlap_tensor,
        near=min(p.tensor, domain),
        expert=p.expert,
        expert_near=min(p.expert, max(1, domain // p.tensor)),
    )


def stage_pace(machine: Machine, work: Work, p: Parallel, part: Part) -> Pace:
    micro = micro_of(machine, work, p)
    layer = layer_time(machine, work.model, part, micro)
    layers = work.model.layers // p.pipeline
    vocab = vocab_time(machine, work.model, part, micro)
    return Pace(layer, layers, vocab, _send(machine, work, p, layers * layer.total))


def _send(machine: Machine, work: Work, p: Parallel, stage_s: float) -> float:
    """Activations to the next stage and gradients back, scattered over the tensor ranks."""
    if p.pipeline == 1:
        return 0.0
    far = 2 * p.tensor * p.context * p.data > machine.domain_gpus
    size = 2.0 * p.micro_batch * work.length / p.context * work.model.hidden / p.tensor
    comm_s = 2 * p.interleave * send_s(machine, size, far)
    return exposed_s(machine, comm_s, stage_s) if p.overlap_pipeline else comm_s


def stage_parameters(model: Model, p: Parallel, part: Part) -> float:
    """Of the fullest rank, on the stage with an embedding."""
    hidden, dim = model.hidden, model.head_dim
    attention = 2 * hidden * dim * (part.heads + part.kv_heads)
    ffn = (3 if model.gated else 2) * hidden * part.ffn
    if model.experts:
        ffn = ffn * model.experts / p.expert + hidden * model.experts
    tables = 2 if p.pipeline == 1 and not model.tied else 1
    return model.layers / p.pipeline * (attention + ffn) + tables * part.vocab * hidden


def after_backward(
    machine: Machine, model: Model, p: Parallel, part: Part, pace: Pace, count: int
) -> tuple[float, float]:
    """What shows of gradient sync and of fresh weights, and the optimizer."""
    held = stage_parameters(model, p, part)
    group = p.data * p.context
    near = max(1, machine.domain_gpus // p.tensor)
    reduce_s = gather_s(machine, held * p.gradient_bytes, group, near)
    spread_s = gather_s(machine, held * 2.0, group, near) if p.zero else reduce_s
    moved = held / (group if p.zero else 1) * ADAM_BYTES + held * SWEEP_BYTES
    optimizer_s = moved / machine.memory_bytes_per_s
    if p.zero == 3:  # weights come for both passes of each micro-batch, gradients leave after it
        all_s = count * (reduce_s + 2 * spread_s)
        shown = exposed_s(machine, all_s, count * pace.middle_s) if p.overlap_data else all_s
        return shown, optimizer_s
    if p.overlap_data:
        # Beside the last backward and the first forward, in time on the clock: what is hidden
        # twice beside the same computation would make a slower GPU faster.
        forward_s = FORWARD_OF_BOTH * pace.middle_s
        reduce_s = exposed_s(machine, reduce_s, pace.middle_s - forward_s)
        spread_s = exposed_s(machine, spread_s, forward_s) if p.zero else spread_s
    return reduce_s + spread_s, optimizer_s
