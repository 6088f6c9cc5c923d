"""The placement as a value: rank order, fingerprint, JSON, and what it refuses to be."""

from __future__ import annotations

import json
from typing import Any

import pytest

from nonuniform.errors import BadInput
from nonuniform.placement.placement import Member, Placement, ReplicaPlacement

HURT = Placement(
    (ReplicaPlacement(0, ("0/0", "0/3", "0/1"), 5), ReplicaPlacement(2, ("2/1", "2/0"), 3)),
    spares=("1/0",),
)


def test_ranks_go_by_replica_then_by_label() -> None:
    assert HURT.members() == (
        Member("0/0", 0, 0),
        Member("0/3", 0, 1),
        Member("0/1", 0, 2),
        Member("2/1", 2, 0),
        Member("2/0", 2, 1),
    )
    assert HURT.where("0/1") == ("0/1", 0, 2)
    assert HURT.where("1/0") is None
    assert HURT.where("9/9") is None


def test_degrees_shares_and_sync_degree() -> None:
    assert (HURT.degrees, HURT.shares, HURT.sync_degree) == ((3, 2), (5, 3), 2)


def test_json_reads_back_as_the_same_placement() -> None:
    again = Placement.from_json(json.loads(json.dumps(HURT.to_json())))
    assert again == HURT
    assert again.fingerprint() == HURT.fingerprint()


def test_every_part_is_in_the_fingerprint() -> None:
    first = HURT.replicas[0]
    others = [
        Placement(HURT.replicas),
        Placement((first,), HURT.spares),
        Placement((first, ReplicaPlacement(2, ("2/0", "2/1"), 3)), HURT.spares),
        Placement((first, ReplicaPlacement(2, ("2/1", "2/0"), 4)), HURT.spares),
        Placement((first, ReplicaPlacement(3, ("2/1", "2/0"), 3)), HURT.spares),
    ]
    prints = {placement.fingerprint() for placement in [HURT, *others]}
    assert len(prints) == 1 + len(others)


@pytest.mark.parametrize(
    ("replicas", "spares", "message"),
    [
        ([], [], "at least one"),
        ([(1, ["1/0"], 1), (0, ["0/0"], 1)], [], r"\[1, 0\] must be ascending"),
        ([(0, ["0/0"], 1), (0, ["0/1"], 1)], [], r"\[0, 0\] must be ascending"),
        ([(0, [], 1)], [], "replica 0 has 0 GPUs"),
        ([(0, ["0/0"], 0)], [], "share of 0"),
        ([(0, ["0/0", "0/0"], 1)], [], "gpu 0/0 is used more than once"),
        ([(0, ["0/0"], 1)], ["0/0"], "gpu 0/0 is used more than once"),
    ],
)
def test_impossible_placements_are_refused(
    replicas: list[tuple[int, list[str], int]], spares: list[str], message: str
) -> None:
    rows = [{"replica": r, "gpus": gpus, "share": share} for r, gpus, share in replicas]
    with pytest.raises(BadInput, match=message):
        Placement.from_json({"replicas": rows, "spares": spares})


@pytest.mark.parametrize(
    "data", [{}, {"replicas": 3, "spares": []}, {"replicas": [{"replica": "x"}], "spares": []}]
)
def test_unreadable_json_is_bad_input(data: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match="placement: not readable"):
        Placement.from_json(data)
