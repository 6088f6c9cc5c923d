"""The ntp policy: capacity in GPUs, dissolved replicas, independence of the order of events."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nonuniform.cluster.health import ClusterState, HealthEvent
from nonuniform.cluster.topology import Gpu, parse_gpu
from nonuniform.errors import BadInput, RunFailed
from nonuniform.placement.ntp import NtpOptions, next_placement
from nonuniform.placement.shares import batch_shares


def lose(state: ClusterState, names: Iterable[str]) -> ClusterState:
    for name in names:
        state = state.apply(HealthEvent("failed", parse_gpu(name), "test"))
    return state


def test_a_whole_cluster_is_a_uniform_placement() -> None:
    placement, reason = next_placement(ClusterState(2, 4), NtpOptions(2, 12))
    assert placement.degrees == (4, 4)
    assert placement.shares == (6, 6)
    assert placement.replicas[1].gpus == ("1/0", "1/1", "1/2", "1/3")
    assert placement.spares == ()
    assert reason == "all GPUs healthy; batch shares 6+6"


def test_capacity_is_counted_in_gpus() -> None:
    """Two of eight lost is degree 6, not a lost node of four, and not a power of two."""
    state = lose(ClusterState(1, 8), ["0/2", "0/5"])
    placement, _ = next_placement(state, NtpOptions(1, 8))
    assert placement.degrees == (6,)
    assert placement.replicas[0].gpus == ("0/0", "0/1", "0/3", "0/4", "0/6", "0/7")


@pytest.mark.parametrize("lost", range(1, 8))
def test_every_loss_costs_one_degree(lost: int) -> None:
    state = lose(ClusterState(2, 8), [f"1/{index}" for index in range(lost)])
    placement, _ = next_placement(state, NtpOptions(1, 30))
    assert placement.degrees == (8, 8 - lost)
    assert placement.shares == batch_shares([1.0, (8 - lost) / 8], 30)


def test_below_the_least_degree_a_replica_is_dissolved() -> None:
    state = lose(ClusterState(3, 12), [f"1/{index}" for index in (0, 3, 4)])
    placement, reason = next_placement(state, NtpOptions(10, 12))
    assert [entry.replica for entry in placement.replicas] == [0, 2]
    assert placement.shares == (6, 6)
    assert placement.spares == tuple(f"1/{index}" for index in (1, 2, 5, 6, 7, 8, 9, 10, 11))
    assert "replica 1 is dissolved (1/0, 1/3, 1/4 down, min_degree is 10 of 12)" in reason


def test_a_dissolved_replica_comes_back_with_its_gpus() -> None:
    state = lose(ClusterState(2, 4), ["1/0", "1/1", "1/2"])
    options = NtpOptions(2, 12)
    assert next_placement(state, options)[0].degrees == (4,)
    state = state.apply(HealthEvent("returned", Gpu(1, 1)))
    assert next_placement(state, options)[0].replicas[1].gpus == ("1/1", "1/3")


def test_the_reason_tells_degree_losses_and_the_price_of_whole_sequences() -> None:
    state = lose(ClusterState(2, 4), ["1/2"])
    _, reason = next_placement(state, NtpOptions(2, 12))
    expected = "replica 1 runs at degree 3 of 4 (1/2 down); batch shares 7+5; "
    assert reason == expected + "whole sequences cost 2.1%"


def test_labels_are_the_choice_of_the_callable() -> None:
    asked = []

    def reverse(replica: int, gpus: tuple[str, ...]) -> tuple[str, ...]:
        asked.append((replica, gpus))
        return gpus[::-1]

    state = lose(ClusterState(2, 3), ["0/1"])
    placement, _ = next_placement(state, NtpOptions(1, 6), reverse)
    assert asked == [(0, ("0/0", "0/2")), (1, ("1/0", "1/1", "1/2"))]
    assert placement.replicas[0].gpus == ("0/2", "0/0")


def test_a_callable_that_loses_a_gpu_is_caught() -> None:
    with pytest.raises(AssertionError, match="labels of replica 0"):
        next_placement(ClusterState(1, 3), NtpOptions(1, 6), lambda replica, gpus: gpus[1:])


def test_no_replica_left_ends_the_run_with_the_counts() -> None:
    state = lose(ClusterState(2, 3), ["0/0", "0/1", "1/2", "1/0"])
    with pytest.raises(RunFailed, match="1, 1 healthy GPUs per replica, min_degree is 2, borrow"):
        next_placement(state, NtpOptions(2, 6, borrow=False))
    both, _ = next_placement(state, NtpOptions(2, 6))
    assert both.replicas[0].gpus == ("0/2", "1/1")


def test_bad_options_name_the_keys() -> None:
    for wrong in (0, 5):
        with pytest.raises(
            BadInput, match=f"min_degree = {wrong} must be between 1 and degree = 4"
        ):
            next_placement(ClusterState(2, 4), NtpOptions(wrong, 12))
    with pytest.raises(BadInput, match="sequences = 2 is fewer than the 3 replicas"):
        next_placement(ClusterState(3, 4), NtpOptions(2, 2))


@st.composite
def losses(draw: st.DrawFn) -> tuple[list[Gpu], list[Gpu], list[Gpu]]:
    """GPUs that are down in the end, the same in another order, and some that went and came."""
    every = [Gpu(replica, index) for replica in range(3) for index in range(11)]
    down = draw(st.lists(st.sampled_from(every), unique=True, max_size=12))
    flaky = draw(st.lists(st.sampled_from(every), unique=True, max_size=5))
    return down, draw(st.permutations(down)), flaky


@settings(max_examples=100, deadline=None)
@given(losses(), st.integers(1, 11), st.integers(3, 40))
def test_the_same_members_give_the_same_placement(
    lost: tuple[list[Gpu], list[Gpu], list[Gpu]], min_degree: int, sequences: int
) -> None:
    down, shuffled, flaky = lost
    straight = lose(ClusterState(3, 11), map(str, down))
    detour = lose(ClusterState(3, 11), map(str, flaky))
    for gpu in flaky:
        detour = detour.apply(HealthEvent("returned", gpu))
    detour = lose(detour, map(str, shuffled))
    options = NtpOptions(min_degree, sequences)
    try:
        placement, reason = next_placement(straight, options)
    except RunFailed as error:
        with pytest.raises(RunFailed, match=str(error)):
            next_placement(detour, options)
        return
    assert next_placement(detour, options) == (placement, reason)
    assert next_placement(detour, options)[0].fingerprint() == placement.fingerprint()
    used = {member.gpu for member in placement.members()} | set(placement.spares)
    assert used == {str(gpu) for r in range(3) for gpu in straight.healthy_of(r)}
    assert sum(placement.shares) == sequences
    assert placement.sync_degree >= min_degree
