"""The built-in model: what it computes, and that cutting it for one rank changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 (the name torch's own documentation uses)
from standins.shards import CPU, KV_GROUPS, SHARED_KV, plan_of
from torch import Tensor

from nonuniform.layout.cuts import ModelPlan
from nonuniform.layout.model_plan import ModelShape
from nonuniform.train.cut import IGNORED, CutModel, cut_llama
from nonuniform.train.groups import SoloGroup
from nonuniform.train.model import Llama, Rotary, rotate
from nonuniform.train.state import ShardState, initial_state

ROPE, EPS = 1000.0, 1e-6
SHAPES = {
    "shared KV": SHARED_KV,
    "KV groups, tied": KV_GROUPS,
    "shared KV, tied": replace(SHARED_KV, tied=True),
    "one KV head": replace(SHARED_KV, kv_heads=1),
}


@pytest.fixture(autouse=True)
def in_double_precision() -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


def both(shape: ModelShape) -> tuple[Llama, CutModel, ModelPlan]:
    """The plain model and its cut for the only rank of a replica, with the same weights."""
    plan = plan_of(shape, 3)
    state = initial_state(plan, (1, 0), 5, torch.float64, CPU)
    plain = Llama(shape, ROPE, EPS)
    with torch.no_grad():
        for name, parameter in plain.named_parameters():
            parameter.copy_(logical(plan, state, name))
    return plain, cut_llama(shape, state, SoloGroup(), ROPE, EPS), plan


def logical(plan: ModelPlan, state: ShardState, name: str, matrix: Tensor | None = None) -> Tensor:
    """A shard of degree 1 as the parameter that is not cut."""
    tensor = plan.tensor(name)
    stored = state.matrices[name][0] if matrix is None else matrix
    rows = torch.from_numpy(plan.local_rows(tensor, 1, 0).copy())
    whole = torch.empty(tensor.rows, tensor.row_elements)
    whole[rows] = stored.reshape(whole.shape)
    return (whole.t() if tensor.axis == 1 else whole).reshape(tensor.shape)


def tokens(shape: ModelShape) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(3)
    drawn = torch.randint(0, shape.vocab - 1, (3, 8), generator=random)  # one token never comes
    targets = drawn[:, 1:].clone()
    targets[1, 2:5] = IGNORED
    return drawn[:, :-1], targets


def plain_loss(plain: Llama, inputs: Tensor, targets: Tensor) -> Tensor:
    logits = plain(inputs).flatten(0, 1)
    return F.cross_entropy(logits, targets.flatten(), ignore_index=IGNORED, reduction="sum")


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_cut_for_one_rank_it_is_the_plain_model(shape: ModelShape) -> None:
    plain, model, plan = both(shape)
    inputs, targets = tokens(shape)
    expected, loss = plain_loss(plain, inputs, targets), model.loss_sum(inputs, targets)
    assert torch.allclose(loss, expected, rtol=1e-14, atol=0.0)
    expected.backward()
    loss.backward()
    gradients = {name: p.grad for name, p in plain.named_parameters()}
    assert set(gradients) == set(model.parameters) == {tensor.name for tensor in plan.tensors}
    state = initial_state(plan, (1, 0), 5, torch.float64, CPU)
    for name, parameter in model.parameters.items():
        found = logical(plan, state, name, parameter.grad)
        assert gradients[name] is not None
        assert torch.allclose(found, gradients[name], rtol=1e-11, atol=1e-15), name


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_logits_come_out_in_the_order_of_the_shard(shape: ModelShape) -> None:
    plain, model, plan = both(shape)
    inputs, _ = tokens(shape)
    rows = torch.from_numpy(plan.local_rows(plan.tensor("embed.weight"), 1, 0).copy())
    assert torch.allclose(model.module(inputs), plain(inputs)[..., rows], rtol=1e-13, atol=1e-16)


def test_parameters_are_the_memory_of_the_shard() -> None:
    plan = plan_of(KV_GROUPS, 3)
    state = initial_state(plan, (3, 1), 5, torch.float64, CPU)
    model = cut_llama(KV_GROUPS, state, SoloGroup(), ROPE, EPS)
    for name, parameter in model.parameters.items():
        assert parameter.data_ptr() == state.matrices[name][0].data_ptr()
    registered = {id(parameter) for parameter in model.module.parameters()}
    assert registered == {id(parameter) for parameter in model.parameters.values()}
    assert not any(parameter.is_meta for parameter in model.module.parameters())


@pytest.mark.parametrize("shape", [KV_GROUPS, replace(SHARED_KV, tied=True)])
def test_a_tied_weight_is_one_parameter_in_either_form(shape: ModelShape) -> None:
    plain, model, plan = both(shape)
    assert plain.head.weight is plain.embed.weight
    assert "head.weight" not in dict(plain.named_parameters())
    assert model.module.head.weight is model.module.embed.weight is model.parameters["embed.weight"]
    assert "head.weight" not in {tensor.name for tensor in plan.tensors}
    inputs, targets = tokens(shape)
    plain_loss(plain, inputs, targets).backward()
    gradient = plain.embed.weight.grad
    assert gradient is not None
    assert gradient[shape.vocab - 1].abs().sum() > 0  # from the head alone


def test_untied_weights_are_two_parameters() -> None:
    plain = Llama(SHARED_KV, ROPE, EPS)
    assert plain.head.weight is not plain.embed.weight
    assert {"head.weight", "embed.weight"} <= set(dict(plain.named_parameters()))


@pytest.mark.parametrize(
    ("heads", "kv_heads", "wanted"),
    [
        (8, 4, [0, 0, 1, 1, 2, 2, 3, 3]),
        (3, 2, [0, 0, 1]),
        (5, 3, [0, 0, 1, 1, 2]),
        (4, 1, [0, 0, 0, 0]),
        (3, 3, [0, 1, 2]),
    ],
)
def test_each_query_head_reads_its_kv_head(heads: int, kv_heads: int, wanted: list[int]) -> None:
    shape = replace(SHARED_KV, heads=heads, kv_heads=kv_heads)
    layer = Llama(shape, ROPE, EPS).layers[0]
    assert layer.attention.kv_of_query.tolist() == wanted
    plan = plan_of(shape, 2)
    for degree, label in ((1, 0), (2, 0), (2, 1)):
        state = initial_state(plan, (degree, label), 5, torch.float64, CPU)
        cut = cut_llama(shape, state, SoloGroup(), ROPE, EPS).module.layers[0].attention.inner
        rows = plan.local_rows(plan.tensor("layers.0.attention.q.weight"), degree, label)
        queries = rows[:: shape.head_dim] // shape.head_dim
        rows = plan.local_rows(plan.tensor("layers.0.attention.k.weight"), degree, label)
        keys = rows[:: shape.head_dim] // shape.head_dim
        assert [keys[index] for index in cut.kv_of_query.tolist()] == [wanted[q] for q in queries]


def test_a_query_sees_nothing_that_comes_after_it() -> None:
    plain, model, _ = both(SHARED_KV)
    inputs, _ = tokens(SHARED_KV)
    changed = inputs.clone()
    changed[:, 4:] = (changed[:, 4:] + 1) % SHARED_KV.vocab
    for module in (plain, model.module):
        before, after = module(inputs), module(changed)
        assert torch.equal(before[:, :4], after[:, :4])
        assert not torch.allclose(before[:, 4:], after[:, 4:])


def test_rotation_keeps_lengths_and_depends_on_distance_only() -> None:
    random = torch.Generator().manual_seed(1)
    query, key = torch.randn(2, 6, generator=random)
    cos, sin = Rotary(6, ROPE)(12, query)
    turned = [rotate(x.expand(1, 1, 12, 6), cos, sin)[0, 0] for x in (query, key)]
    assert torch.allclose(turned[0].norm(dim=-1), query.norm())
    scores = turned[0] @ turned[1].t()
    for distance in range(-5, 6):
        line = torch.diagonal(scores, distance)
        assert torch.allclose(line, line[0].expand_as(line))
    assert not torch.allclose(scores[0, 1], scores[0, 2])


def test_loss_of_what_is_ignored_is_nothing() -> None:
    _, model, _ = both(SHARED_KV)
    inputs, targets = tokens(SHARED_KV)
    loss = model.loss_sum(inputs, torch.full_like(targets, IGNORED))
    loss.backward()
    assert loss.item() == 0.0
    for parameter in model.parameters.values():
        assert parameter.grad is None or not parameter.grad.any()
