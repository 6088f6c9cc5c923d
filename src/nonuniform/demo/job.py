"""The job of the demo and what happens to it.

Out: the text of JOB.toml, the scripted incidents, and the number of parameters by arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass

LAYERS, HIDDEN, HEADS, KV_HEADS, FFN, VOCAB = 4, 160, 10, 5, 432, 256
REPLICAS, DEGREE, MIN_DEGREE = 2, 4, 2
SEQUENCES, LENGTH, STEPS = 12, 64, 60


@dataclass(frozen=True)
class Incident:
    """One line of the script: at the start of `step` a GPU is lost, or found healthy again."""

    gpu: str
    step: int

    @property
    def flag(self) -> str:
        return f"gpu={self.gpu}@step={self.step}"


# Both losses hit one replica, 4 -> 3 -> 2 GPUs. Neither GPU is the last of its replica, so that the
# last one takes over the place of the lost one. The returns leave time to start a process.
FAILS = (Incident("1/2", 12), Incident("1/0", 20))
RETURNS = (Incident("1/2", 28), Incident("1/0", 35))


def job_toml() -> str:
    return f"""\
# A byte-level language model on the source text of Python's standard library.
[model]
layers = {LAYERS}
hidden = {HIDDEN}
heads = {HEADS}
kv_heads = {KV_HEADS}
ffn = {FFN}
vocab = {VOCAB}
tied = true

[parallel]
replicas = {REPLICAS}
degree = {DEGREE}
min_degree = {MIN_DEGREE}

[batch]
sequences = {SEQUENCES}
length = {LENGTH}

[run]
steps = {STEPS}
seed = 1
dtype = "float32"
val_every = 20
log_sample_ids = true
"""


def parameters() -> int:
    """Embedding (tied to the output), then per layer attention, feed-forward and two norms."""
    head = HIDDEN // HEADS
    attention = 2 * HIDDEN * HEADS * head + 2 * HIDDEN * KV_HEADS * head
    per_layer = attention + 3 * HIDDEN * FFN + 2 * HIDDEN
    return VOCAB * HIDDEN + LAYERS * per_layer + HIDDEN
