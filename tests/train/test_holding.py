"""What a process holds from one generation to the next: its shard, and the model around it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from standins.checkpoints import ranks, save
from standins.shards import KV_GROUPS, cut, plan_of, same_bits, some_whole

from nonuniform.cluster.health import ClusterState
from nonuniform.cluster.topology import Gpu
from nonuniform.placement.ntp import NtpOptions
from nonuniform.protocol.record import Position, Record, Report
from nonuniform.protocol.regroup import next_record
from nonuniform.train.checkpoint.shelf import Shelf
from nonuniform.train.cut import cut_llama
from nonuniform.train.groups import Group, SoloGroup
from nonuniform.train.holding import Holding

PLAN = plan_of(KV_GROUPS, 4, 2)
OPTIONS = NtpOptions(min_degree=2, sequences=12)
STEP = 6


def holding_of(gpu: str) -> Holding:
    return Holding(gpu, PLAN, 1, Path("nowhere"), torch.float64, torch.device("cpu"))


def nobody(name: str, rank: int, size: int) -> Group:
    pytest.fail(f"{name}: nothing is to be moved")


def record_of(step: int, *down: str, spares: int = 0) -> Record:
    gpus = [Gpu(*map(int, gpu.split("/"))) for gpu in down]
    state = ClusterState(2, 4, frozenset(gpus), spares)
    everyone = [Report(f"{r}/{i}", step, 4, i) for r in range(2) for i in range(4)]
    reports = [report for report in everyone if report.gpu not in down] if step else []
    return next_record(PLAN, OPTIONS, state, reports, Position(step, 0), 2)[0]


def settle(holding: Holding, record: Record) -> int:
    member = record.placement.where(holding.gpu)
    assert member is not None
    return holding.settle(record, member, nobody, SoloGroup())


def started(gpu: str) -> Holding:
    holding = holding_of(gpu)
    assert holding.report() == Report(gpu, step=-1, degree=0, label=0)
    assert settle(holding, record_of(0)) == 0
    assert holding.state is not None
    holding.model = cut_llama(KV_GROUPS, holding.state, SoloGroup(), 1e4, 1e-5)
    return holding


def test_a_shard_that_stays_keeps_its_model() -> None:
    holding = started("0/1")
    state, model = holding.state, holding.model
    assert settle(holding, record_of(0)) == 0
    assert state is not None
    state.step = STEP
    # The other replica is hurt; this rank lends nothing to it.
    record = record_of(STEP, "1/3")
    assert settle(holding, replace(record, moving=())) == 0
    assert holding.state is state
    assert holding.model is model
    assert holding.report() == Report("0/1", STEP, 4, 1)


def test_a_new_shard_lets_the_model_around_the_old_one_go() -> None:
    holding = started("0/1")
    seed_of_another_degree = record_of(0, "0/3")
    settle(holding, seed_of_another_degree)
    assert holding.state is not None
    assert holding.state.degree == 3
    assert holding.model is None


def test_who_has_no_work_keeps_what_is_committed_and_nothing_else() -> None:
    holding = started("0/1")
    state = holding.state
    assert state is not None
    state.step = STEP
    holding.lend(replace(record_of(STEP), moving=()), nobody)
    assert holding.state is state
    holding.lend(replace(record_of(STEP + 1), moving=()), nobody)
    assert holding.state is None
    assert holding.model is None


def test_between_generations_the_model_holds_no_group() -> None:
    holding = started("0/1")
    assert holding.model is not None
    holding.let_groups_go()
    with pytest.raises(AssertionError, match="between two generations"):
        holding.model.group.all_reduce(torch.ones(1))
    holding_of("0/2").let_groups_go()


def test_between_generations_the_model_keeps_no_gradients() -> None:
    """They lie in buckets of a generation that is over."""
    holding = started("0/1")
    assert holding.model is not None
    for parameter in holding.model.parameters.values():
        parameter.grad = torch.ones_like(parameter)
    holding.let_groups_go()
    assert all(p.grad is None for p in holding.model.parameters.values())


def test_a_shard_that_takes_long_to_read_or_to_make_is_no_hang(tmp_path: Path) -> None:
    signs: list[int] = []
    holding = replace(holding_of("0/1"), working=lambda: signs.append(1))
    settle(holding, record_of(0))
    assert len(signs) == len(PLAN.tensors)
    whole = some_whole(PLAN, seed=2)
    saved = save(Shelf(tmp_path, 2), PLAN, whole, ranks(4, 4), STEP)
    signs.clear()
    holding = replace(holding, checkpoints=tmp_path, state=None, model=None)
    settle(holding, replace(record_of(STEP), load=saved.path.name))
    assert holding.state is not None
    assert same_bits(holding.state, cut(PLAN, whole, 4, 1, STEP))
    assert len(signs) >= 3 * len(PLAN.tensors)
