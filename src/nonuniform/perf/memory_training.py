"""How many bytes a GPU needs in a job of this spread, before anything is built.

In: `Machine`, `Work`, `Parallel`, and the degrees of hurt replicas. Out: `TrainingBytes` and one
line where they do not fit. DESIGN "Generations": memory at `min_degree`, sync buffers of a healthy
rank (n/m) included. Per parameter: 2 bytes of weight, `gradient_bytes`, 12 of FP32 weight and
moments, the latter cut over `data` with ZeRO. Activations as Korthikanti et al. count them.
memory.py is exact for a job of the live runtime; this is for jobs of any program. Does not know:
fragmentation; `CONTEXT_BYTES` stands for libraries and buffers.
"""

from __future__ import annotations

from typing import NamedTuple

from nonuniform.perf.hardware import Machine
from nonuniform.perf.model import Model, Part, even_part
from nonuniform.perf.parallelism import Parallel, Work
from nonuniform.perf.step_time import stage_parameters

CONTEXT_BYTES = 2.0e9
STATE_BYTES = 12.0  # FP32 weight and two moments
GB = 1e9


class TrainingBytes(NamedTuple):
    """Of the fullest GPU. `sync`: what buckets hold beyond its own gradients."""

    weights: float
    gradients: float
    optimizer: float
    activations: float
    logits: float
    sync: float
    context: float

    @property
    def total(self) -> float:
        return sum(self)


def training_bytes(
    machine: Machine,
    work: Work,
    p: Parallel,
    part: Part | None = None,
    sync_degree: int | None = None,
) -> TrainingBytes:
    """`part`: of a hurt replica; `sync_degree`: the smallest degree in the job, where a whole
    replica's gradients grow to n/m of their size."""
    part = part or even_part(work.model, p.tensor)
    held = stage_parameters(work.model, p, part)
    group = p.data * p.context
    cut = group if p.zero == 3 else 1
    gained = part.ranks / sync_degree - 1 if sync_degree and sync_degree < part.ranks else 0.0
    return TrainingBytes(
        weights=2.0 * held / cut,
        gradients=p.gradient_bytes * held / cut,
        optimizer=STATE_BYTES * held / (group if p.zero else 1),
        activations=_activations(work, p, part),
        logits=_logits(work, p, part),
        sync=gained * held * p.gradient_bytes,
        context=CONTEXT_BYTES,
    )


def activation_bytes_per_token(model: Model, p: Parallel, part: Part, length: int) -> float:
    """What one layer keeps for its backward pass."""
    if p.recompute == "full":
        return 2.0 * model.hidden / (part.ranks if p.sequence_parallel else 1)
    # What a product keeps as its input is an FP8 copy there. Inputs of norms, and what products
    # give to attention and to the gate, stay in BF16. Models with a gate have no dropout.
    kept_input = 2.0 if p.precision == "bf16" else 1.0
    whole = (4.0 + 2 * kept_input + (0.0 if model.gated else 2.0)) * model.hidden
    whole /= part.ranks if p.sequence_parallel else 1
    width, kv_width = part.heads * model.head_dim, part.kv_heads * model.head_dim
    kept = 4.0 * width + 4.0 * kv_width
    copies = max(1, model.experts_per_token)
    kept += ((4.0 if model.gated else 2.0) + kept_input) * part.ffn * copies
    if not p.fused and p.recompute == "none":
        kept += 5.0 * part.heads * length
    return whole + kept


def _activations(work: Work, p: Parallel, part: Part) -> float:
    """The first stage holds as many micro-batches as there are stages; interleaving adds."""
    tokens = p.micro_batch * work.length / p.context
    in_flight = min(p.pipeline, p.micro_batches(work))
    layers = work.model.layers / p.pipeline * in_flight
    if p.interleave > 1:
        layers *= 1 + (p.pipeline - 1) / (p.pipeline * p.interleave)
    return tokens * layers * activation_bytes_per_token(work.model, p, part, work.length)


def _logits(work: Work, p: Parallel, part: Part) -> float:
    """In BF16 with a fused loss, else also in FP32, and their gradient."""
    tokens = p.micro_batch * work.length / p.context
    return tokens * part.vocab * (4.0 if p.fused else 10.0)


def misfit(machine: Machine, need: TrainingBytes) -> str | None:
    """By how much it does not fit, or None."""
    over = need.total - machine.memory_bytes
    if over <= 0:
        return None
    parts = ", ".join(f"{key} {value / GB:.1f}" for key, value in need._asdict().items() if value)
    return (
        f"does not fit: needs {need.total / GB:.1f} GB of {machine.memory_bytes / GB:.0f} GB on "
        f"{machine.gpu.name}, {over / GB:.1f} GB too many ({parts})"
    )
