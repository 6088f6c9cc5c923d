"""The built-in model, cut for one rank: the modules stay, their weights become local shards.

In: the model's shape, the rank's shard, the tensor-parallel group. Out: a `CutModel` with the
loss of a batch and the parameters by logical name. The model's own code is not touched: each
attention and feed-forward module becomes the inside of a `Region`, embedding and head become
their vocabulary-parallel forms. Knows nothing of replicas, gradients' way, or failure.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from nonuniform.layout.model_plan import ModelPlan, ModelShape, local_kv_index
from nonuniform.train.groups import Group
from nonuniform.train.model import Llama
from nonuniform.train.parallel import (
    Region,
    RowLinear,
    VocabEmbedding,
    VocabHead,
    vocab_cross_entropy,
)
from nonuniform.train.relay import Relay
from nonuniform.train.state import ShardState

IGNORED = -100  # a target that counts neither in the loss nor as a token


class CutModel:
    """One rank's part of the model. `parameters[name]` shares memory with the weights of `state`;
    the model serves as long as that shard does, in whatever generation `group` is handed on."""

    def __init__(
        self,
        module: Llama,
        parameters: dict[str, nn.Parameter],
        state: ShardState,
        group: Relay,
    ) -> None:
        self.module = module
        self.parameters = parameters
        self.state = state
        self.group = group
        self._row_of_token: Tensor = module.embed.row_of_token  # type: ignore[assignment]

    def loss_sum(self, inputs_BS: Tensor, targets_BS: Tensor) -> Tensor:
        """Cross-entropy summed over the valid tokens of the batch; equal on all ranks."""
        logits_NV = self.module(inputs_BS).flatten(0, 1)
        targets_N = targets_BS.flatten()
        valid_N = targets_N != IGNORED
        row_N = self._row_of_token[targets_N.clamp(min=0)]
        row_N = row_N.masked_fill(~valid_N, -1)
        return vocab_cross_entropy(logits_NV, row_N, valid_N, self.group)


def cut_llama(
    shape: ModelShape, state: ShardState, group: Group, rope_base: float, eps: float
) -> CutModel:
    """Build the rank's model around the weights of `state`, without copying them."""
    relay = Relay(group)
    with torch.device("meta"):
        module = Llama(shape, rope_base, eps)
    parameters = {}
    for tensor in state.plan.tensors:
        matrix = state.matrices[tensor.name][0]
        weight = matrix.view(tensor.shape) if tensor.axis is None else matrix
        parameters[tensor.name] = nn.Parameter(weight)
    for name, parameter in parameters.items():
        _set_weight(module, name, parameter)
    _cut_attention(module, state, relay)
    _cut_ffn(module, relay)
    embedding = parameters["embed.weight"]
    rows = _row_of_token(state.plan, state.degree, state.label).to(embedding.device)
    module.embed = VocabEmbedding(embedding, rows, relay)  # type: ignore[assignment]
    head = parameters.get("head.weight", embedding)
    module.head = VocabHead(head, relay)  # type: ignore[assignment]
    return CutModel(module, parameters, state, relay)


def _set_weight(module: nn.Module, name: str, parameter: nn.Parameter) -> None:
    path, _, attribute = name.rpartition(".")
    setattr(module.get_submodule(path), attribute, parameter)


def _cut_ffn(module: Llama, group: Group) -> None:
    layer: Any
    for layer in module.layers:
        layer.ffn.down = RowLinear(layer.ffn.down.weight)
        layer.ffn = Region(layer.ffn, group)


def _cut_attention(module: Llama, state: ShardState, group: Group) -> None:
    layer: Any
    index = torch.tensor(
        local_kv_index(state.plan, state.degree, state.label), dtype=torch.int64
    ).to(module.norm.weight.device)
    for layer in module.layers:
        layer.attention.o = RowLinear(layer.attention.o.weight)
        layer.attention.kv_of_query = index
        layer.attention = Region(layer.attention, group)


def _row_of_token(plan: ModelPlan, degree: int, label: int) -> Tensor:
    """[vocab]: the local row of each token, -1 where another rank holds it."""
    tensor = plan.tensor("embed.weight")
    rows = torch.from_numpy(plan.local_rows(tensor, degree, label).copy())
    row_of_token = torch.full((tensor.rows,), -1, dtype=torch.int64)
    row_of_token[rows] = torch.arange(len(rows))
    return row_of_token
