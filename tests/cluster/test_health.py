"""The cluster state after health events."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nonuniform.cluster.health import ClusterState, EventKind, HealthEvent
from nonuniform.cluster.topology import Gpu
from nonuniform.errors import BadInput

REPLICAS, DEGREE = 3, 4
GPUS = st.builds(Gpu, st.integers(0, REPLICAS - 1), st.integers(0, DEGREE - 1))
KINDS: st.SearchStrategy[EventKind] = st.sampled_from(["failed", "returned", "drained"])


def after(events: list[HealthEvent]) -> ClusterState:
    state = ClusterState(REPLICAS, DEGREE)
    for event in events:
        state = state.apply(event)
    return state


@pytest.mark.parametrize("kind", ["failed", "drained"])
def test_a_gpu_that_is_gone_comes_back_when_it_returns(kind: EventKind) -> None:
    start = ClusterState(2, 4)
    hurt = start.apply(HealthEvent(kind, Gpu(1, 2), "xid 79"))
    assert hurt.healthy_of(1) == (Gpu(1, 0), Gpu(1, 1), Gpu(1, 3))
    assert hurt.healthy_of(0) == start.healthy_of(0)
    assert start.down == frozenset(), "the state before must not change"
    assert hurt.apply(HealthEvent("returned", Gpu(1, 2))) == start


def test_failing_twice_is_one_loss_and_returning_twice_one_gain() -> None:
    failed, back = HealthEvent("failed", Gpu(0, 0)), HealthEvent("returned", Gpu(0, 0))
    assert after([failed, failed]) == after([failed])
    assert after([failed, failed, back]) == after([back]) == after([])


@given(st.dictionaries(GPUS, st.lists(KINDS, min_size=1, max_size=3)), st.randoms())
def test_only_the_last_event_of_each_gpu_counts(
    kinds: dict[Gpu, list[EventKind]], random: object
) -> None:
    queues = {gpu: list(row) for gpu, row in kinds.items()}
    events = []
    while queues:
        gpu = random.choice(sorted(queues))  # type: ignore[attr-defined]
        events.append(HealthEvent(queues[gpu].pop(0), gpu))
        if not queues[gpu]:
            del queues[gpu]
    assert after(events).down == {gpu for gpu, row in kinds.items() if row[-1] != "returned"}


@pytest.mark.parametrize("gpu", [Gpu(2, 0), Gpu(0, 4)])
def test_a_gpu_outside_the_job_is_refused_with_the_range(gpu: Gpu) -> None:
    state = ClusterState(2, 4)
    with pytest.raises(BadInput, match=rf"gpu {gpu}: the job has replicas 0\.\.1 with GPUs 0\.\.3"):
        state.apply(HealthEvent("failed", gpu))
    with pytest.raises(BadInput, match=f"gpu {gpu}"):
        ClusterState(2, 4, frozenset([gpu]))


def test_spares_are_named_like_one_replica_more_and_come_last() -> None:
    state = ClusterState(2, 2, spares=3)
    for gpu in (Gpu(2, 1), Gpu(0, 1)):
        state = state.apply(HealthEvent("failed", gpu))
    assert state.healthy() == (Gpu(0, 0), Gpu(1, 0), Gpu(1, 1), Gpu(2, 0), Gpu(2, 2))
    assert state.apply(HealthEvent("returned", Gpu(2, 1))).down == {Gpu(0, 1)}
    assert [len(state.healthy_of(replica)) for replica in range(2)] == [1, 2]
    assert ClusterState(2, 2).healthy() == (Gpu(0, 0), Gpu(0, 1), Gpu(1, 0), Gpu(1, 1))


@pytest.mark.parametrize("gpu", [Gpu(2, 3), Gpu(3, 0), Gpu(1, 2)])
def test_a_gpu_that_is_no_spare_either_is_refused_with_both_ranges(gpu: Gpu) -> None:
    text = rf"gpu {gpu}: .* 0\.\.1 with GPUs 0\.\.1 each and the spares 2/0 to 2/2$"
    with pytest.raises(BadInput, match=text):
        ClusterState(2, 2, spares=3).apply(HealthEvent("failed", gpu))
    with pytest.raises(BadInput, match=r"gpu 2/0: .* each$"):
        ClusterState(2, 2, frozenset([Gpu(2, 0)]))


def test_fewer_spares_than_none_are_refused() -> None:
    with pytest.raises(BadInput, match=r"\[parallel\] spares = -1: must be at least 0"):
        ClusterState(2, 2, spares=-1)


def test_an_empty_cluster_and_an_unknown_event_are_refused() -> None:
    with pytest.raises(BadInput, match="replicas = 0, degree = 4"):
        ClusterState(0, 4)
    with pytest.raises(BadInput, match='"exploded" of gpu 0/1'):
        HealthEvent("exploded", Gpu(0, 1))  # type: ignore[arg-type]
