"""Degrees of the groups of a domain: as large as its healthy GPUs allow, never an illegal one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nonuniform.cluster.health import ClusterState
from nonuniform.cluster.topology import Gpu
from nonuniform.errors import BadInput
from nonuniform.placement.crews import own_crews
from nonuniform.placement.groups import group_degrees, legal_degree
from nonuniform.placement.job import TrainingJob
from nonuniform.placement.policy import PolicyOptions

NTP = PolicyOptions("ntp")
DROP = PolicyOptions("dp-drop")


@given(
    healthy=st.integers(0, 40),
    degree=st.integers(1, 32),
    least=st.integers(1, 32),
    legal=st.sets(st.integers(1, 32)),
)
def test_the_legal_degree_is_the_largest_that_fits(
    healthy: int, degree: int, least: int, legal: set[int]
) -> None:
    legal = {d for d in legal if d <= degree}
    least = min(least, degree)
    known = legal | {degree} if legal else set(range(1, degree + 1))
    fitting = [d for d in known if least <= d <= healthy]
    assert legal_degree(healthy, degree, least, legal) == max(fitting, default=0)


@given(
    lost=st.integers(0, 72),
    degree=st.integers(1, 72),
    least=st.integers(1, 72),
    legal=st.sets(st.integers(1, 72), max_size=5),
)
def test_groups_fit_in_what_is_healthy(lost: int, degree: int, least: int, legal: set[int]) -> None:
    job = TrainingJob(degree)
    options = PolicyOptions("ntp", degrees=tuple(legal), min_degree=least)
    degrees = group_degrees(lost, 72, job, options)
    whole = group_degrees(lost, 72, job, replace(options, kind="dp-drop"))
    assert sum(degrees) <= 72 - lost
    assert len(degrees) <= 72 // degree
    assert list(degrees) == sorted(degrees, reverse=True)
    assert sum(d < degree for d in degrees) <= 1
    assert whole == tuple(d for d in degrees if d == degree)
    assert whole == group_degrees(lost, 72, job, PolicyOptions("uniform"))


def test_gpus_beyond_the_groups_are_spares_inside_the_domain() -> None:
    job = TrainingJob(64)
    assert group_degrees(8, 72, job, DROP) == (64,)
    assert group_degrees(9, 72, job, DROP) == ()
    assert group_degrees(9, 72, job, NTP) == (63,)


def test_several_groups_in_a_domain_lose_one_after_the_other() -> None:
    job = TrainingJob(8)
    assert group_degrees(1, 32, job, NTP) == (8, 8, 8, 7)
    assert group_degrees(11, 32, job, NTP) == (8, 8, 5)
    assert group_degrees(11, 32, job, replace(NTP, min_degree=6)) == (8, 8)
    assert group_degrees(11, 32, job, replace(NTP, degrees=(8, 4))) == (8, 8, 4)


def test_more_lost_than_there_are_is_refused() -> None:
    with pytest.raises(BadInput, match="33 lost GPUs in a domain of 32"):
        group_degrees(33, 32, TrainingJob(32), NTP)


@given(st.integers(1, 8), st.lists(st.integers(0, 8), min_size=1, max_size=5))
def test_the_trainer_gives_a_replica_the_same_degree(least: int, lost: list[int]) -> None:
    down = frozenset(Gpu(replica, index) for replica, n in enumerate(lost) for index in range(n))
    crews = own_crews(ClusterState(len(lost), 8, down), least)
    options = PolicyOptions("ntp", min_degree=least)
    for replica, n in enumerate(lost):
        degrees = (len(crews[replica]),) if replica in crews else ()
        assert group_degrees(n, 8, TrainingJob(8), options) == degrees
