"""The shape of a transformer, as far as its step time depends on it.

In: catalog/models/NAME.toml or values. Out: `Model`, its parameters and what one rank holds of it
(`Part`). DESIGN "Step time". Does not know: how fast anything is, how the model
is cut exactly (layout does): only the load of the fullest rank is needed here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from nonuniform.errors import BadInput


@dataclass(frozen=True, eq=False)
class Model:
    """A decoder. Compared by identity, so that it is a cheap key of a cache.

    `ffn` is the width of one expert where `experts` is above 0. `window` 0: attention sees all that
    came before. `gated`: the FFN has a gate beside its up projection.
    """

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    gated: bool = True
    tied: bool = False
    window: int = 0
    experts: int = 0
    experts_per_token: int = 0

    def __post_init__(self) -> None:
        sizes = ("layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab")
        for key in sizes:
            if getattr(self, key) < 1:
                raise BadInput(f"model {self.name}: {key} = {getattr(self, key)}: must be above 0")
        if self.kv_heads > self.heads:
            raise BadInput(
                f"model {self.name}: kv_heads = {self.kv_heads} is more than heads = {self.heads}"
            )
        if not 0 <= self.experts_per_token <= self.experts:
            raise BadInput(
                f"model {self.name}: experts_per_token = {self.experts_per_token} "
                f"with experts = {self.experts}"
            )
        if (self.experts > 0) != (self.experts_per_token > 0) or self.window < 0:
            raise BadInput(
                f"model {self.name}: experts = {self.experts}, experts_per_token = "
                f"{self.experts_per_token}, window = {self.window} do not go together"
            )

    @property
    def attention_parameters(self) -> int:
        """Of one layer."""
        return self.hidden * self.head_dim * (2 * self.heads + 2 * self.kv_heads)

    @property
    def expert_parameters(self) -> int:
        """Of one FFN, or of one expert."""
        return (3 if self.gated else 2) * self.hidden * self.ffn

    @property
    def layer_parameters(self) -> int:
        """Of one layer with all its experts."""
        router = self.hidden * self.experts
        return self.attention_parameters + max(1, self.experts) * self.expert_parameters + router

    @property
    def embedding_parameters(self) -> int:
        return self.vocab * self.hidden

    @property
    def parameters(self) -> int:
        tables = 1 if self.tied else 2
        return self.layers * self.layer_parameters + tables * self.embedding_parameters

    @property
    def active_parameters(self) -> int:
        """What takes part in the products of one token: no look-up, only the experts used."""
        ffns = max(1, self.experts_per_token)
        layer = self.attention_parameters + ffns * self.expert_parameters
        layer += self.hidden * self.experts
        return self.layers * layer + self.embedding_parameters


class Part(NamedTuple):
    """What the fullest rank of a tensor-parallel group holds: heads, columns and rows.

    Whole numbers where units are whole; fractions where the cut is finer than the units.
    """

    ranks: int
    heads: float
    kv_heads: float
    ffn: float
    vocab: float


def even_part(model: Model, ranks: int) -> Part:
    """A cut without remainder to speak of: the mean load. KV heads are copied where they are
    fewer than ranks."""
    return Part(
        ranks,
        model.heads / ranks,
        max(1.0, model.kv_heads / ranks),
        model.ffn / ranks,
        model.vocab / ranks,
    )


def whole_part(model: Model, ranks: int, ffn_block: int = 1) -> Part:
    """The fullest rank where heads are whole and columns come in blocks of `ffn_block`."""
    heads = -(-model.heads // ranks)
    groups = model.heads / model.kv_heads
    # Query heads that follow one another touch this many KV heads at least.
    kv_heads = max(1, -(-heads // max(1, int(groups))))
    blocks = -(-model.ffn // ffn_block)
    ffn = min(model.ffn, -(-blocks // ranks) * ffn_block)
    return Part(ranks, heads, kv_heads, ffn, -(-model.vocab // ranks))
