"""A Llama-style decoder in plain torch: RMSNorm, rotary embedding, grouped-query attention, SwiGLU.

In: token ids [B, S]; out: logits [B, S, V]. It knows nothing of ranks, cutting or failure, and
runs as it is in one process (the reference of every parity test). The only generality that a
cut needs is one any grouped-query attention has: `kv_of_query` says which KV head each query
head reads. Names of parameters are the logical names of `layout.model_plan.plan_llama`.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 (the name torch's own documentation uses)
from torch import Tensor, nn

from nonuniform.layout.model_plan import ModelShape, kv_of_query


class Linear(nn.Module):
    """y = x W^T. Weights are set by logical name afterwards, so none are drawn here."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight)


class Embedding(nn.Module):
    def __init__(self, vocab: int, hidden: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocab, hidden))

    def forward(self, tokens_BS: Tensor) -> Tensor:
        return F.embedding(tokens_BS, self.weight)


class RMSNorm(nn.Module):
    def __init__(self, hidden: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden))
        self.eps = eps

    def forward(self, x_BSH: Tensor) -> Tensor:
        return F.rms_norm(x_BSH, (x_BSH.shape[-1],), self.weight, self.eps)


class Rotary(nn.Module):
    """Angles for every position up to the longest sequence seen; halves rotated as pairs."""

    def __init__(self, head_dim: int, base: float) -> None:
        super().__init__()
        self.head_dim = head_dim
        self.base = base
        self._cache: dict[tuple[int, torch.dtype, torch.device], tuple[Tensor, Tensor]] = {}

    def forward(self, length: int, like: Tensor) -> tuple[Tensor, Tensor]:
        key = (length, like.dtype, like.device)
        if key not in self._cache:
            exponent = torch.arange(0, self.head_dim, 2, dtype=torch.float64) / self.head_dim
            angle_SD = torch.outer(
                torch.arange(length, dtype=torch.float64), self.base**-exponent
            ).repeat(1, 2)
            self._cache[key] = (angle_SD.cos().to(like), angle_SD.sin().to(like))
        return self._cache[key]


def rotate(x_BHSD: Tensor, cos_SD: Tensor, sin_SD: Tensor) -> Tensor:
    first, second = x_BHSD.chunk(2, dim=-1)
    return x_BHSD * cos_SD + torch.cat((-second, first), dim=-1) * sin_SD


class Attention(nn.Module):
    """Causal grouped-query attention over however many heads its projections produce."""

    def __init__(self, shape: ModelShape, rotary: Rotary) -> None:
        super().__init__()
        self.head_dim = shape.head_dim
        self.rotary = rotary
        self.q = Linear(shape.hidden, shape.heads * shape.head_dim)
        self.k = Linear(shape.hidden, shape.kv_heads * shape.head_dim)
        self.v = Linear(shape.hidden, shape.kv_heads * shape.head_dim)
        self.o = Linear(shape.heads * shape.head_dim, shape.hidden)
        self.kv_of_query = torch.tensor(
            [kv_of_query(q, shape.heads, shape.kv_heads) for q in range(shape.heads)]
        )

    def forward(self, x_BSH: Tensor) -> Tensor:
        q, k, v = (self._heads(project(x_BSH)) for project in (self.q, self.k, self.v))
        cos_SD, sin_SD = self.rotary(x_BSH.shape[1], x_BSH)
        q, k = rotate(q, cos_SD, sin_SD), rotate(k, cos_SD, sin_SD)
        k, v = k.index_select(1, self.kv_of_query), v.index_select(1, self.kv_of_query)
        mixed_BQSD = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o(mixed_BQSD.transpose(1, 2).flatten(2))

    def _heads(self, x_BSE: Tensor) -> Tensor:
        return x_BSE.unflatten(-1, (x_BSE.shape[-1] // self.head_dim, self.head_dim)).transpose(
            1, 2
        )


class FeedForward(nn.Module):
    """SwiGLU."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.gate = Linear(shape.hidden, shape.ffn)
        self.up = Linear(shape.hidden, shape.ffn)
        self.down = Linear(shape.ffn, shape.hidden)

    def forward(self, x_BSH: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x_BSH)) * self.up(x_BSH))


class Block(nn.Module):
    def __init__(self, shape: ModelShape, rotary: Rotary, eps: float) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(shape.hidden, eps)
        self.attention = Attention(shape, rotary)
        self.ffn_norm = RMSNorm(shape.hidden, eps)
        self.ffn = FeedForward(shape)

    def forward(self, x_BSH: Tensor) -> Tensor:
        x_BSH = x_BSH + self.attention(self.attention_norm(x_BSH))
        return x_BSH + self.ffn(self.ffn_norm(x_BSH))


class Llama(nn.Module):
    def __init__(self, shape: ModelShape, rope_base: float = 10000.0, eps: float = 1e-5) -> None:
        super().__init__()
        rotary = Rotary(shape.head_dim, rope_base)
        self.embed = Embedding(shape.vocab, shape.hidden)
        self.layers = nn.ModuleList(Block(shape, rotary, eps) for _ in range(shape.layers))
        self.norm = RMSNorm(shape.hidden, eps)
        self.head = Linear(shape.hidden, shape.vocab)
        if shape.tied:
            self.head.weight = self.embed.weight

    def forward(self, tokens_BS: Tensor) -> Tensor:
        x_BSH = self.embed(tokens_BS)
        for layer in self.layers:
            x_BSH = layer(x_BSH)
        return self.head(self.norm(x_BSH))
