"""Who works where: each rule on any state, and the optimum by trying everything on small ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nonuniform.cluster.health import ClusterState, HealthEvent
from nonuniform.cluster.topology import Gpu
from nonuniform.errors import RunFailed
from nonuniform.placement.crews import Crews, lent_crews, own_crews, work_places
from nonuniform.placement.ntp import NtpOptions, next_placement
from nonuniform.placement.placement import Placement, ReplicaPlacement


def everyone(state: ClusterState) -> list[Gpu]:
    return list(replace(state, down=frozenset()).healthy())


def as_placement(crews: Crews, state: ClusterState) -> Placement:
    working = {gpu for crew in crews.values() for gpu in crew}
    rows = [ReplicaPlacement(r, tuple(map(str, crew)), 1) for r, crew in sorted(crews.items())]
    return Placement(tuple(rows), tuple(str(g) for g in everyone(state) if g not in working))


def at(state: ClusterState, *names: str) -> ClusterState:
    return replace(state, down=frozenset(Gpu(*map(int, name.split("/"))) for name in names))


@dataclass(frozen=True)
class Moment:
    """A placement that some history may have led to, and what is healthy now."""

    state: ClusterState
    min_degree: int
    before: Placement | None

    def crews(self) -> Crews:
        return lent_crews(self.state, self.min_degree, self.before)

    @property
    def worked(self) -> dict[Gpu, int]:
        return work_places(self.state, self.before)

    def stayers(self, replica: int) -> set[Gpu]:
        healthy = set(self.state.healthy())
        return {gpu for gpu, where in self.worked.items() if where == replica and gpu in healthy}

    def living(self) -> list[int]:
        replicas = range(self.state.replicas)
        return [r for r in replicas if len(self.stayers(r)) >= self.min_degree]

    def free(self) -> list[Gpu]:
        kept = {gpu for replica in self.living() for gpu in self.stayers(replica)}
        return [gpu for gpu in self.state.healthy() if gpu not in kept]


@st.composite
def moments(draw: st.DrawFn, replicas: int = 4, degree: int = 5, spares: int = 3) -> Moment:
    whole = ClusterState(
        draw(st.integers(1, replicas)),
        draw(st.integers(1, degree)),
        spares=draw(st.integers(0, spares)),
    )
    min_degree = draw(st.integers(1, whole.degree))
    gpus = everyone(whole)
    before = None
    if draw(st.booleans()):
        order = draw(st.permutations(gpus))
        sizes = [
            draw(st.sampled_from([0, *range(min_degree, whole.degree + 1)]))
            for _ in range(whole.replicas)
        ]
        crews = {r: tuple(order.pop() for _ in range(n) if order) for r, n in enumerate(sizes)}
        crews = {r: crew for r, crew in crews.items() if len(crew) >= min_degree}
        before = as_placement(crews, whole) if crews else None
    down = draw(st.lists(st.sampled_from(gpus), unique=True))
    return Moment(replace(whole, down=frozenset(down)), min_degree, before)


@settings(max_examples=150, deadline=None)
@given(moments())
def test_every_rule_of_lending(moment: Moment) -> None:
    crews, state = moment.crews(), moment.state
    working = [gpu for crew in crews.values() for gpu in crew]
    assert len(working) == len(set(working)), "nobody works twice"
    assert set(working) <= set(state.healthy())
    assert all(moment.min_degree <= len(crew) <= state.degree for crew in crews.values())
    assert all(crew == tuple(sorted(crew)) for crew in crews.values())
    assert list(crews) == sorted(crews)
    for replica in moment.living():
        assert moment.stayers(replica) <= set(crews[replica]), "who works stays where he works"
    idle = [gpu for gpu in state.healthy() if gpu not in working]
    if idle and crews:
        assert all(len(crew) == state.degree for crew in crews.values()), "a hole, and a GPU idles"
    dead = set(range(state.replicas)) - set(crews)
    assert len(idle) < moment.min_degree or not dead, "a replica more could live"


@settings(max_examples=100, deadline=None)
@given(moments())
def test_a_gpu_that_comes_back_goes_home_unless_a_replica_cannot_live_without_it(
    moment: Moment,
) -> None:
    crews, living = moment.crews(), moment.living()
    rebuilt = [replica for replica in crews if replica not in living]
    for gpu in moment.free():
        if gpu in moment.worked or gpu.replica not in living:
            continue
        home = crews[gpu.replica]
        if gpu not in home and len(home) < moment.state.degree:
            strangers = [g for g in home if moment.worked.get(g, g.replica) != gpu.replica]
            assert not strangers, "a stranger has taken the place of one who came back"
            assert any(gpu in crews[replica] for replica in rebuilt)


@settings(max_examples=100, deadline=None)
@given(moments())
def test_lending_never_costs_a_working_gpu_or_a_replica(moment: Moment) -> None:
    lent, own = lent_crews(moment.state, moment.min_degree, None), moment.state
    alone = own_crews(own, moment.min_degree)
    assert len(lent) >= len(alone)
    assert sum(map(len, lent.values())) >= sum(map(len, alone.values()))
    assert all(set(alone[replica]) <= set(lent[replica]) for replica in alone)
    if not moment.state.down:
        assert lent == alone, "at launch everybody is at home, and spares are idle"


Score = tuple[int, int, int, tuple[int, ...]]


def score(moment: Moment, places: Counter[int], at_home: int) -> Score:
    """What is wanted, in this order: working GPUs, living replicas, GPUs at home, and the degrees
    from the smallest on."""
    return sum(places.values()), len(places), at_home, tuple(sorted(places.values()))


def every_way(moment: Moment) -> Iterator[Score]:
    """Each free GPU in each replica or idle, as far as that is legal."""
    free, living = moment.free(), moment.living()
    fixed = Counter({replica: len(moment.stayers(replica)) for replica in living})
    home = [moment.worked.get(gpu, gpu.replica) for gpu in free]
    seen = set()
    for choice in product(range(-1, moment.state.replicas), repeat=len(free)):
        at_home = sum(a == b for a, b in zip(choice, home, strict=True))
        places = fixed + Counter(replica for replica in choice if replica >= 0)
        key = (tuple(sorted(places.items())), at_home)
        if key in seen:
            continue
        seen.add(key)
        if all(moment.min_degree <= n <= moment.state.degree for n in places.values()):
            yield score(moment, places, at_home)


@settings(max_examples=120, deadline=None)
@given(moments(replicas=3, degree=4, spares=2).filter(lambda m: len(m.free()) <= 6))
def test_no_other_way_is_better(moment: Moment) -> None:
    crews = moment.crews()
    free = moment.free()
    at_home = sum(gpu in crews.get(moment.worked.get(gpu, gpu.replica), ()) for gpu in free)
    found = score(moment, Counter({r: len(crew) for r, crew in crews.items()}), at_home)
    assert found == max(every_way(moment))


@settings(max_examples=150, deadline=None)
@given(moments(), st.data())
def test_only_state_and_placement_before_count(moment: Moment, data: st.DataObject) -> None:
    """Neither the order of events nor the labels before."""
    state, before = moment.state, moment.before
    again = replace(state, down=frozenset())
    down = sorted(state.down)
    flaky = data.draw(st.lists(st.sampled_from(everyone(state)), max_size=3))
    events = [HealthEvent("failed", gpu) for gpu in flaky]
    events += [HealthEvent("returned", gpu) for gpu in data.draw(st.permutations(flaky))]
    events += [HealthEvent("failed", gpu) for gpu in data.draw(st.permutations(down))]
    for event in events:
        again = again.apply(event)
    if before is not None:
        rows = [replace(row, gpus=row.gpus[::-1]) for row in before.replicas]
        before = Placement(tuple(rows), before.spares[::-1])
    assert lent_crews(again, moment.min_degree, before) == moment.crews()


@settings(max_examples=100, deadline=None)
@given(moments())
def test_without_a_change_nothing_changes(moment: Moment) -> None:
    crews = moment.crews()
    if crews:
        before = as_placement(crews, moment.state)
        assert lent_crews(moment.state, moment.min_degree, before) == crews


@settings(max_examples=100, deadline=None)
@given(moments(), st.booleans())
def test_the_placement_is_made_of_the_crews(moment: Moment, borrow: bool) -> None:
    options = NtpOptions(moment.min_degree, 20, borrow)
    own = own_crews(moment.state, moment.min_degree)
    crews = moment.crews() if borrow else own
    if not crews:
        with pytest.raises(RunFailed, match=r"no replica is left: [^\n]*$"):
            next_placement(moment.state, options, before=moment.before)
        return
    placement, reason = next_placement(moment.state, options, before=moment.before)
    assert {row.replica: row.gpus for row in placement.replicas} == {
        replica: tuple(map(str, crew)) for replica, crew in crews.items()
    }
    listed = [member.gpu for member in placement.members()] + list(placement.spares)
    assert sorted(listed) == sorted(map(str, moment.state.healthy()))
    assert sum(placement.shares) == 20
    assert reason
    assert "\n" not in reason
    for gpu in moment.state.down:
        assert gpu.replica == moment.state.replicas or str(gpu) in reason


WHOLE = ClusterState(3, 4, spares=1)
OPTIONS = NtpOptions(2, 12)


def follow(*states: ClusterState, options: NtpOptions = OPTIONS) -> tuple[Placement, str]:
    """The placement after several changes, each from the one before."""
    placement, reason = next_placement(WHOLE, options)
    for state in states:
        placement, reason = next_placement(state, options, before=placement)
    return placement, reason


def test_a_spare_takes_the_place_of_a_lost_gpu_and_keeps_it() -> None:
    placement, reason = follow(at(WHOLE, "1/2"))
    assert placement.degrees == (4, 4, 4)
    assert placement.replicas[1].gpus == ("1/0", "1/1", "1/3", "3/0")
    assert reason == ("replica 1 runs at degree 4 of 4 (1/2 down, borrows 3/0); batch shares 4+4+4")
    placement, reason = follow(at(WHOLE, "1/2"), WHOLE)
    assert placement.replicas[1].gpus == ("1/0", "1/1", "1/3", "3/0")
    assert placement.spares == ("1/2",)
    assert reason == (
        "all GPUs healthy; replica 1 runs at degree 4 of 4 (with 3/0); "
        "1/2 spare, its place is taken; batch shares 4+4+4"
    )


def test_a_returned_gpu_fills_its_own_hole_before_a_smaller_replica() -> None:
    hurt = at(WHOLE, "3/0", "0/3", "1/2", "1/3")
    placement, _ = follow(hurt, at(WHOLE, "3/0", "1/2", "1/3"))
    assert placement.degrees == (4, 2, 4)


def test_a_spare_goes_to_the_smallest_replica() -> None:
    placement, reason = follow(
        at(WHOLE, "3/0", "0/3", "1/2", "1/3"), at(WHOLE, "0/3", "1/2", "1/3")
    )
    assert placement.degrees == (3, 3, 4)
    assert "replica 1 runs at degree 3 of 4 (1/2, 1/3 down, borrows 3/0)" in reason


def test_the_rest_of_a_dissolved_replica_works_elsewhere_and_stays_there() -> None:
    alone = at(WHOLE, "3/0", "0/1", "2/0", "2/1", "2/2")
    placement, reason = follow(alone)
    assert [(row.replica, row.gpus) for row in placement.replicas] == [
        (0, ("0/0", "0/2", "0/3", "2/3")),
        (1, ("1/0", "1/1", "1/2", "1/3")),
    ]
    assert "replica 0 runs at degree 4 of 4 (0/1 down, borrows 2/3)" in reason
    assert "replica 2 is dissolved (2/0, 2/1, 2/2 down, min_degree is 2 of 4)" in reason
    placement, reason = follow(alone, at(WHOLE, "2/0", "2/1", "2/2"))
    assert placement.replicas[2].gpus == ("0/1", "3/0")
    assert "replica 2 is rebuilt at degree 2 of 4 (2/0, 2/1, 2/2 down, borrows 0/1, 3/0)" in reason
    assert "replica 0 runs at degree 4 of 4 (with 2/3)" in reason


def test_what_is_left_of_a_replica_goes_on_there_with_spares() -> None:
    placement, reason = follow(at(WHOLE, "1/0", "1/1", "1/2"))
    assert placement.replicas[1].gpus == ("1/3", "3/0")
    assert "replica 1 is rebuilt at degree 2 of 4 (1/0, 1/1, 1/2 down, borrows 3/0)" in reason


def test_one_who_came_back_is_called_to_a_replica_that_cannot_live_without_it() -> None:
    """0/3 has a hole of its own; with it replica 1 lives, and five GPUs work instead of four."""
    state = ClusterState(2, 4)
    hurt = at(state, "0/3", "1/0", "1/1", "1/2")
    options = NtpOptions(2, 12)
    before = Placement((ReplicaPlacement(0, ("0/0", "0/1", "0/2"), 12),), ("1/3",))
    filled, _ = next_placement(hurt, options, before=before)
    assert filled.degrees == (4,)
    both, _ = next_placement(at(state, "1/0", "1/1", "1/2"), options, before=before)
    assert [row.gpus for row in both.replicas] == [("0/0", "0/1", "0/2"), ("0/3", "1/3")]


def test_who_is_called_back_comes_from_the_largest_replica() -> None:
    """0/3 and 1/3 came back; replica 2 needs one of them."""
    state = at(ClusterState(3, 4), "0/2", "2/1", "2/2", "2/3")
    rows = (ReplicaPlacement(0, ("0/0", "0/1"), 5), ReplicaPlacement(1, ("1/0", "1/1", "1/2"), 7))
    placement, _ = next_placement(state, OPTIONS, before=Placement(rows, ("2/0",)))
    assert [row.gpus for row in placement.replicas] == [
        ("0/0", "0/1", "0/3"),
        ("1/0", "1/1", "1/2"),
        ("1/3", "2/0"),
    ]


def test_without_borrowing_everybody_works_at_home_or_not_at_all() -> None:
    options = NtpOptions(2, 12, borrow=False)
    placement, reason = follow(at(WHOLE, "1/2", "2/0", "2/1", "2/2"), options=options)
    assert placement.degrees == (4, 3)
    assert placement.spares == ("2/3", "3/0")
    assert "2/3, 3/0 spare" in reason


def test_when_nobody_is_left_the_counts_say_so() -> None:
    state = at(ClusterState(2, 3, spares=2), "0/0", "0/1", "0/2", "1/0", "1/1", "2/0")
    with pytest.raises(
        RunFailed, match="0, 1 healthy GPUs per replica and 1 spares, min_degree is 3"
    ):
        next_placement(state, NtpOptions(3, 6))
