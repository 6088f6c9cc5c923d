"""What a training job asks of a cluster: the form of its replicas and its batch.

In: plain numbers. Out: one frozen value, checked by itself (`limits.py` checks it against a
cluster and a policy). DESIGN "Words". Knows nothing of failures or of policies.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from nonuniform.errors import BadInput

_LEAST = {
    "degree": 1,
    "stages": 1,
    "sequences_per_replica": 1,
    "replicas": 0,
    "layers": 0,
    "microbatch_sequences": 1,
    "sequence_tokens": 0,
}


@dataclass(frozen=True)
class TrainingJob:
    """`replicas` 0: as many as fit; `layers` 0: all stages take equally long."""

    degree: int
    stages: int = 1
    sequences_per_replica: int = 1
    replicas: int = 0
    layers: int = 0
    microbatch_sequences: int = 1
    sequence_tokens: int = 0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value < _LEAST[field.name]:
                raise BadInput(
                    f"[job] {field.name} = {value} must be at least {_LEAST[field.name]}"
                )
        if 0 < self.layers < self.stages:
            raise BadInput(
                f"[job] layers = {self.layers} is fewer than stages = {self.stages}: "
                "every stage needs at least one"
            )
        if self.sequences_per_replica % self.microbatch_sequences:
            raise BadInput(
                f"[job] sequences_per_replica = {self.sequences_per_replica} is not a multiple "
                f"of microbatch_sequences = {self.microbatch_sequences}"
            )

    @property
    def short_stages(self) -> int:
        """Stages with one layer fewer than the others; they come last."""
        over = self.layers % self.stages
        return self.stages - over if over else 0

    @property
    def long_layers(self) -> int:
        """Layers of a long stage; 1 where all stages take equally long."""
        return -(-self.layers // self.stages) if self.short_stages else 1

    @property
    def short_layers(self) -> int:
        return self.long_layers - 1 if self.short_stages else 1
