"""State transfer, simulated: moves are carried out on dictionaries of rows, then compared with
what the new label holds, position by position."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nonuniform.errors import BadInput
from nonuniform.layout import ModelPlan, ModelShape, Ownership, plan_llama
from nonuniform.reshard import (
    Holding,
    Target,
    TransferPlan,
    assign_labels,
    plan_transfer,
)

Array = npt.NDArray[np.int64]
BASE = 6
PLAN = plan_llama(ModelShape(1, 4, 12, 4, 2, 100, 77, tied=False), BASE, 1, allow_empty=True)


@dataclass(frozen=True)
class Cluster:
    """replica -> gpu -> label; a dead GPU is in no replica."""

    replicas: tuple[dict[str, int], ...]

    def holdings(self) -> list[Holding]:
        return [
            Holding(gpu, len(labels), label)
            for labels in self.replicas
            for gpu, label in labels.items()
        ]

    def targets(self) -> list[Target]:
        return [
            Target(gpu, replica, len(labels), label)
            for replica, labels in enumerate(self.replicas)
            for gpu, label in labels.items()
        ]

    def home(self) -> dict[str, int]:
        return {gpu: r for r, labels in enumerate(self.replicas) for gpu in labels}


def _whole(replicas: int, degree: int) -> Cluster:
    return Cluster(tuple({f"{r}/{i}": i for i in range(degree)} for r in range(replicas)))


def _change(
    before: Cluster, replica: int, lost: set[str], joined: set[str]
) -> tuple[Cluster, list[Holding]]:
    """(cluster after, holdings of those alive) when `replica` loses and gains GPUs."""
    labels = before.replicas[replica]
    survivors = {gpu: label for gpu, label in labels.items() if gpu not in lost}
    changed = list(before.replicas)
    changed[replica] = assign_labels(PLAN, len(labels), survivors, joined)
    return Cluster(tuple(changed)), [h for h in before.holdings() if h.gpu not in lost]


def _shards(degree: int, label: int) -> dict[tuple[str, int], Array]:
    """(tensor, unit) -> logical row numbers: what a rank has in memory."""
    return {
        (tensor.name, unit): PLAN.local_rows(tensor, degree, label)[start:stop]
        for tensor in PLAN.tensors
        for unit, start, stop in PLAN.local_unit_spans(tensor, degree, label)
    }


def _check_carried_out(
    plan: ModelPlan, transfer: TransferPlan, holdings: list[Holding], after: Cluster
) -> None:
    memory = {h.gpu: _shards(h.degree, h.label) for h in holdings}
    arrived: dict[str, dict[tuple[str, int], Array]] = {t.gpu: {} for t in after.targets()}
    for move in transfer.moves:
        for tensor in plan.tensors_of(move.family):
            key = (tensor.name, move.unit)
            assert key not in memory.get(move.target, {}), "it had that already"
            assert key not in arrived[move.target], "it came twice"
            arrived[move.target][key] = memory[move.source][key]
    for target in after.targets():
        has = memory.get(target.gpu, {}) | arrived[target.gpu]
        used = 0
        for tensor in plan.tensors:
            units = plan.family(tensor.family).at(target.degree).held[target.label]
            rows = [has[tensor.name, unit] for unit in units]
            shard = np.concatenate(rows) if rows else np.zeros(0, dtype=np.int64)
            assert np.array_equal(shard, plan.local_rows(tensor, target.degree, target.label))
            used += sum((tensor.name, unit) in arrived[target.gpu] for unit in units)
        assert used == len(arrived[target.gpu]), "something came that nobody needs"


def _sharded_moves(transfer: TransferPlan, family: str = "ffn") -> int:
    return sum(move.family == family for move in transfer.moves)


@pytest.mark.parametrize("degree", [2, 3, 4, 6])
def test_the_loss_of_any_label_costs_its_units_and_what_the_relabelled_gpu_gives_away(
    degree: int,
) -> None:
    before = _whole(2, degree)
    for lost in range(degree):
        after, holdings = _change(before, 0, {f"0/{lost}"}, set())
        transfer = plan_transfer(PLAN, holdings, after.targets(), before.home())
        assert transfer.missing == ()
        _check_carried_out(PLAN, transfer, holdings, after)
        for name in ("ffn", "vocab", "query"):
            old, new = (PLAN.family(name).at(d) for d in (degree, degree - 1))
            given_away = set(old.held[-1]) - set(new.held[lost]) if lost < degree - 1 else set()
            assert _sharded_moves(transfer, name) == old.sizes[lost] + len(given_away)
            # What its own replica still has comes from there.
            outside = [m for m in transfer.moves if m.family == name and m.source[0] == "1"]
            assert {m.unit for m in outside} == set(old.held[lost])


def test_only_units_of_the_last_label_move_when_it_dies() -> None:
    before = _whole(2, 4)
    after, holdings = _change(before, 0, {"0/3"}, set())
    transfer = plan_transfer(PLAN, holdings, after.targets(), before.home())
    for move in transfer.moves:
        family = PLAN.family(move.family)
        assert 3 in family.at(4).owners(move.unit)
        if family.ownership is Ownership.SHARDED:
            assert move.source == "1/3"


@settings(max_examples=40, deadline=None)
@given(st.integers(2, BASE), st.data())
def test_several_losses_at_once_with_and_without_joiners(degree: int, data: st.DataObject) -> None:
    before = _whole(3, degree)
    lost = data.draw(st.sets(st.integers(0, degree - 1), max_size=degree - 1))
    room = BASE - degree + len(lost)
    joined = {f"9/{i}" for i in range(data.draw(st.integers(0, min(room, 3))))}
    after, holdings = _change(before, 1, {f"1/{i}" for i in lost}, joined)
    transfer = plan_transfer(PLAN, holdings, after.targets(), before.home())
    assert transfer.missing == ()
    _check_carried_out(PLAN, transfer, holdings, after)
    sizes = {f.name: PLAN.unit_elements(f.name) for f in PLAN.families}
    assert transfer.elements(PLAN) == sum(sizes[m.family][m.unit] for m in transfer.moves)


def test_shrink_then_return_restores_every_shard() -> None:
    before = _whole(2, 4)
    hurt, holdings = _change(before, 0, {"0/1"}, set())
    transfer = plan_transfer(PLAN, holdings, hurt.targets(), before.home())
    _check_carried_out(PLAN, transfer, holdings, hurt)
    healed, holdings = _change(hurt, 0, set(), {"0/1"})
    back = plan_transfer(PLAN, holdings, healed.targets(), hurt.home())
    _check_carried_out(PLAN, back, holdings, healed)
    assert {len(labels) for labels in healed.replicas} == {4}
    assert {move.target for move in back.moves} == {"0/1"}, "survivors only give"
    assert {move.source[0] for move in back.moves} == {"0"}, "its own replica has everything"
    assert sorted(healed.replicas[0].values()) == [0, 1, 2, 3]
    assert _sharded_moves(back) == PLAN.family("ffn").at(4).sizes[healed.replicas[0]["0/1"]]


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_any_history_of_losses_and_returns(data: st.DataObject) -> None:
    cluster = _whole(2, 4)
    dead: dict[int, set[str]] = {0: set(), 1: set()}
    for _ in range(data.draw(st.integers(1, 5))):
        replica = data.draw(st.integers(0, 1))
        labels = cluster.replicas[replica]
        lost = data.draw(st.sets(st.sampled_from(sorted(labels)), max_size=len(labels) - 1))
        joined = set(dead[replica])
        if joined:
            joined = data.draw(st.sets(st.sampled_from(sorted(joined))))
        after, holdings = _change(cluster, replica, lost, joined)
        transfer = plan_transfer(PLAN, holdings, after.targets(), cluster.home())
        assert transfer.missing == ()
        _check_carried_out(PLAN, transfer, holdings, after)
        dead[replica] = (dead[replica] | lost) - joined
        cluster = after


def test_a_dissolved_replica_still_sends_and_a_spare_gpu_fills_another() -> None:
    before = _whole(2, 3)
    # 1/0 and 1/1 die; 1/2 becomes a spare and joins replica 0, which had lost 0/1.
    holdings = [h for h in before.holdings() if h.gpu in ("0/0", "0/2", "1/2")]
    labels = assign_labels(PLAN, 3, {"0/0": 0, "0/2": 2}, ["1/2"])
    after = Cluster((labels,))
    transfer = plan_transfer(PLAN, holdings, after.targets(), before.home())
    lost = {(f, unit) for f in ("ffn", "vocab") for unit in PLAN.family(f).at(3).held[1]}
    assert lost <= set(transfer.missing)
    assert ("replicated", 0) not in transfer.missing
    assert transfer == plan_transfer(PLAN, holdings[::-1], after.targets()[::-1], before.home())


def test_units_that_nobody_holds_are_named_once() -> None:
    before = _whole(1, 4)
    after, holdings = _change(before, 0, {"0/2"}, set())
    transfer = plan_transfer(PLAN, holdings, after.targets(), before.home())
    ffn = [unit for family, unit in transfer.missing if family == "ffn"]
    assert ffn == sorted(PLAN.family("ffn").at(4).held[2])
    assert not {(m.family, m.unit) for m in transfer.moves} & set(transfer.missing)


def test_lost_units_are_fetched_evenly_from_the_replicas_that_hold_them() -> None:
    before = _whole(4, 4)
    after, holdings = _change(before, 0, {"0/1"}, set())
    transfer = plan_transfer(PLAN, holdings, after.targets(), before.home())
    sent: Counter[str] = Counter()
    for move in transfer.moves:
        sent[move.source] += int(PLAN.unit_elements(move.family)[move.unit])
    outside = [count for gpu, count in sent.items() if gpu[0] != "0"]
    assert len(outside) == 3
    largest = max(int(PLAN.unit_elements(f.name).max()) for f in PLAN.families)
    assert max(outside) - min(outside) <= largest


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2), st.integers())
def test_the_order_of_the_input_does_not_matter(lost: int, seed: int) -> None:
    before = _whole(3, 4)
    after, holdings = _change(before, 1, {f"1/{lost}", "1/3"}, {"9/0", "9/1"})
    expected = plan_transfer(PLAN, holdings, after.targets(), before.home())
    shuffled = random.Random(seed)
    targets, home = after.targets(), list(before.home().items())
    for values in (holdings, targets, home):
        shuffled.shuffle(values)
    assert plan_transfer(PLAN, holdings, targets, dict(home)) == expected


def test_moves_are_sorted_and_found_by_pair() -> None:
    before = _whole(2, 4)
    after, holdings = _change(before, 0, {"0/0"}, set())
    transfer = plan_transfer(PLAN, holdings, after.targets(), before.home())
    keys = [(m.source, m.target, m.family, m.unit) for m in transfer.moves]
    assert keys == sorted(keys)
    pairs = {(m.source, m.target) for m in transfer.moves}
    assert sum(len(transfer.between(*pair)) for pair in pairs) == len(keys)
    assert transfer.between("0/1", "0/1") == ()


def test_nothing_moves_when_nothing_changes() -> None:
    cluster = _whole(2, 3)
    transfer = plan_transfer(PLAN, cluster.holdings(), cluster.targets(), cluster.home())
    assert transfer == TransferPlan((), ())


def test_a_gpu_in_two_places_is_refused() -> None:
    cluster = _whole(1, 2)
    with pytest.raises(BadInput, match="targets: 4 for 2 GPUs"):
        plan_transfer(PLAN, cluster.holdings(), cluster.targets() * 2, {})
    with pytest.raises(BadInput, match="holdings: 4 for 2 GPUs"):
        plan_transfer(PLAN, cluster.holdings() * 2, cluster.targets(), {})
