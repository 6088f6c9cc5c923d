"""How long one layer of one micro-batch takes on the fullest rank of its group.

In: machine, model, the rank's `Part` and what the program does (`Micro`). Out: `LayerTime`, forward
and backward by kind. DESIGN "Step time". Attention is causal; each GEMM of the forward pass has two
in the backward. Kernels that only move data are counted in bytes per element, read and written.
Does not know: pipelines, replicas, optimizers.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from nonuniform.perf.comm import all_to_all_s, exposed_s, gather_s
from nonuniform.perf.gemm import batched_gemm_s, gemm_s
from nonuniform.perf.hardware import FLASH_FILL, Machine
from nonuniform.perf.model import Model, Part


class Micro(NamedTuple):
    """What one rank does with a micro-batch: `sequences` of `length`, `context` ranks sharing
    each sequence. `near`: ranks of the tensor-parallel group in one domain; `expert_near` the same
    of the expert group."""

    sequences: int
    length: int
    context: int = 1
    precision: str = "bf16"
    recompute: str = "none"
    fused: bool = True
    sequence_parallel: bool = True
    overlap_tensor: bool = True
    near: int = 8
    expert: int = 1
    expert_near: int = 8

    @property
    def tokens(self) -> float:
        return self.sequences * self.length / self.context


class LayerTime(NamedTuple):
    """Seconds. `_comm` are those that show: of tensor, of context and of expert parallelism."""

    gemm_forward: float
    gemm_backward: float
    attention_forward: float
    attention_backward: float
    memory_forward: float
    memory_backward: float
    tensor_comm: float
    context_comm: float
    expert_comm: float
    again: float  # recompute, computation only

    @property
    def compute(self) -> float:
        return sum(self[:6]) + self.again

    @property
    def comm(self) -> float:
        return self.tensor_comm + self.context_comm + self.expert_comm

    @property
    def total(self) -> float:
        return self.compute + self.comm


@lru_cache(maxsize=65536)
def layer_time(machine: Machine, model: Model, part: Part, micro: Micro) -> LayerTime:
    gemm_forward, gemm_backward = _gemms(machine, model, part, micro)
    attention = _fused_attention if micro.fused else _separate_attention
    attention_forward, attention_backward = attention(machine, model, part, micro)
    memory_forward, memory_backward = _memory(machine, model, part, micro)
    again = 0.0
    if micro.recompute == "full":
        again = gemm_forward + attention_forward + memory_forward
    elif micro.recompute == "selective" and not micro.fused:
        again = attention_forward
    return LayerTime(
        gemm_forward,
        gemm_backward,
        attention_forward,
        attention_backward,
        memory_forward,
        memory_backward,
        _tensor_comm(machine, model, part, micro, (gemm_forward, gemm_backward)),
        _context_comm(machine, model, part, micro, attention_forward),
        _expert_comm(machine, model, micro),
        again,
    )


def _gemms(machine: Machine, model: Model, part: Part, micro: Micro) -> tuple[float, float]:
    """Query-key-value, output, and the FFN."""
    tokens, hidden, precision = micro.tokens, model.hidden, micro.precision
    width = part.heads * model.head_dim
    columns = width + 2 * part.kv_heads * model.head_dim
    up = (2 if model.gated else 1) * part.ffn
    shapes = [(tokens, columns, hidden, 1.0), (tokens, hidden, width, 1.0)]
    if model.experts:
        local = model.experts / micro.expert
        rows = tokens * model.experts_per_token * micro.expert / model.experts
        shapes += [(rows, up, hidden, local), (rows, hidden, part.ffn, local)]
    else:
        shapes += [(tokens, up, hidden, 1.0), (tokens, hidden, part.ffn, 1.0)]
    forward = backward = 0.0
    for m, n, k, count in shapes:
        forward += count * gemm_s(machine, m, n, k, precision)
        backward += count * gemm_s(machine, m, k, n, precision)
        backward += count * gemm_s(machine, n, k, m, precision, 8.0)
    return forward, backward


def attended(length: float, window: int) -> float:
    """Mean number of tokens that a token sees."""
    if not window or window >= length:
        return length / 2
    return window - window * window / (2 * length)


FLASH_BACKWARD = 3.0  # five products instead of two, each a little slower, as measured


def _fused_attention(
    machine: Machine, model: Model, part: Part, micro: Micro
) -> tuple[float, float]:
    width = part.heads * model.head_dim
    flops = 4.0 * micro.tokens * (attended(micro.length, model.window) + FLASH_FILL) * width
    compute_s = flops / machine.flash_flops_per_s
    moved = 4.0 * micro.tokens * (width + part.kv_heads * model.head_dim)
    memory_s = moved / machine.memory_bytes_per_s
    forward = max(compute_s, memory_s) + machine.launch_s
    return forward, FLASH_BACKWARD * forward


def _separate_attention(
    machine: Machine, model: Model, part: Part, micro: Micro
) -> tuple[float, float]:
    """Scores, softmax, dropout and values, each through memory; the whole square."""
    rows = micro.length / micro.context
    batch = micro.sequences * part.heads
    launch_s = machine.constants.launch_s
    scores_s = batched_gemm_s(machine, batch, rows, micro.length, model.head_dim)
    values_s = batched_gemm_s(machine, batch, rows, model.head_dim, micro.length)
    element_s = batch * rows * micro.length / machine.memory_bytes_per_s
    forward = scores_s + values_s + 9 * element_s + 2 * launch_s
    backward = 2 * (scores_s + values_s) + 11 * element_s + 2 * launch_s
    return forward, backward


def _memory(machine: Machine, model: Model, part: Part, micro: Micro) -> tuple[float, float]:
    """Norms, dropout and residual (cut by sequence parallelism), activation, transposes, and for
    FP8 what is cast."""
    tokens, hidden = micro.tokens, model.hidden
    width = part.heads * model.head_dim
    whole = hidden / part.ranks if micro.sequence_parallel else hidden
    copies = model.experts_per_token or 1
    ffn = copies * part.ffn
    # Bytes per token.
    forward = 22 * whole + (6 if model.gated else 4) * ffn + 16 * width
    backward = 34 * whole + (10 if model.gated else 6) * ffn + 16 * width
    if model.experts:  # gathered by expert, and back
        forward += 8 * copies * hidden
        backward += 8 * copies * hidden
    if micro.precision != "bf16":
        # Inputs of the four products, and gradients of their outputs.
        outer, inner = _cast_bytes(part, micro)
        kv_width = 2 * part.kv_heads * model.head_dim
        ends = (outer + inner * copies if model.experts else 2 * outer) * hidden
        forward += ends + inner * (width + ffn)
        backward += ends + inner * (width + kv_width + (2 if model.gated else 1) * ffn)
    rate, launch_s = machine.memory_bytes_per_s, machine.constants.launch_s
    return tokens * forward / rate + 8 * launch_s, tokens * backward / rate + 10 * launch_s


def _cast_bytes(part: Part, micro: Micro) -> tuple[float, float]:
    """Per element of what a tensor-parallel group gathers, and of what a rank has for itself: read,
    written by row and by column; one more look for the scale of a whole tensor. What is gathered is
    cast before, by the rank that has it; with one scale its transpose is made after."""
    blocks = micro.precision == "mxfp8"
    own = 4.0 if blocks else 6.0
    if part.ranks == 1 or not micro.sequence_parallel:
        return own, own
    return (own / part.ranks if blocks else 5.0 / part.ranks + 2.0), own


def _tensor_comm(
    machine: Machine, model: Model, part: Part, micro: Micro, gemms: tuple[float, float]
) -> float:
    """Two gathers and two scatters of the activations, each way: what an all-reduce is made of.
    With sequence parallelism FP8 is gathered where products take it; sums stay in BF16."""
    if part.ranks == 1:
        return 0.0
    size = 2.0 * micro.tokens * model.hidden
    scatter_s = gather_s(machine, size, part.ranks, micro.near)
    pass_s = 4.0 * scatter_s
    if micro.sequence_parallel and micro.precision != "bf16":
        pass_s = 2.0 * (scatter_s + gather_s(machine, size / 2, part.ranks, micro.near))
    if not micro.overlap_tensor:
        return (3 if micro.recompute == "full" else 2) * pass_s
    # Cut in as many pieces as ranks, and a rank begins with its own.
    forward = exposed_s(machine, pass_s, gemms[0])
    backward = exposed_s(machine, pass_s, gemms[1])
    return forward * (2 if micro.recompute == "full" else 1) + backward


def _context_comm(
    machine: Machine, model: Model, part: Part, micro: Micro, attention_s: float
) -> float:
    """Keys and values go round the ring of context ranks, beside attention."""
    if micro.context == 1:
        return 0.0
    size = 4.0 * micro.sequences * micro.length * part.kv_heads * model.head_dim
    near = max(1, machine.domain_gpus // part.ranks)
    pass_s = gather_s(machine, size, micro.context, near)
    forward = exposed_s(machine, pass_s, attention_s)
    return forward + exposed_s(machine, 2 * pass_s, FLASH_BACKWARD * attention_s)


def _expert_comm(machine: Machine, model: Model, micro: Micro) -> float:
    """To the experts and back, forward and backward; all of it shows."""
    if micro.expert == 1:
        return 0.0
    size = 2.0 * micro.tokens * model.experts_per_token * model.hidden
    times = 6 if micro.recompute == "full" else 4
    return times * all_to_all_s(machine, size, micro.expert, micro.expert_near)


class VocabTime(NamedTuple):
    forward: float
    backward: float
    comm: float

    @property
    def total(self) -> float:
        return self.forward + self.backward + self.comm


@lru_cache(maxsize=65536)
def vocab_time(machine: Machine, model: Model, part: Part, micro: Micro) -> VocabTime:
    """Logits and the loss, on the last stage. Logits stay in BF16 products."""
    tokens, hidden = micro.tokens, model.hidden
    forward = gemm_s(machine, tokens, part.vocab, hidden)
    backward = gemm_s(machine, tokens, hidden, part.vocab)
    backward += gemm_s(machine, part.vocab, hidden, tokens, "bf16", 8.0)
    element_s = tokens * part.vocab / machine.memory_bytes_per_s
    each = (6, 4) if micro.fused else (34, 14)
    forward += each[0] * element_s + machine.constants.launch_s
    backward += each[1] * element_s + machine.constants.launch_s
    comm = 4 * gather_s(machine, 2.0 * tokens * hidden, part.ranks, micro.near)
    return VocabTime(forward, backward, comm)
