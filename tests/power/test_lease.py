"""The machine of leases: single turns, and all orders of everything against a model world."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from nonuniform.power.actuators.base import ActuatorRefused, LimitsW, lower, read
from nonuniform.power.lease import begin, step
from nonuniform.power.lease_values import (
    Action,
    Ask,
    Event,
    Found,
    Gone,
    LeaseOptions,
    Lower,
    Note,
    NotWritten,
    Owed,
    Raise,
    Read,
    RecordLost,
    Refused,
    Release,
    Renew,
    Sample,
    State,
    Stop,
    Tell,
    Tick,
    Wish,
    Write,
    Written,
)

NOMINAL_W, BOOST_W = 700.0, 900.0
OPTIONS = LeaseOptions(stale_s=5.0, tolerance_w=1.0)


def ask(*gpus: str, holder: str = "h", **more: Any) -> Ask:
    return Ask(holder, tuple(Wish(gpu, BOOST_W, NOMINAL_W) for gpu in gpus), 10.0, **more)


def played(state: State, *events: Event, now_s: float = 0.0) -> tuple[State, list[Action]]:
    orders: list[Action] = []
    for event in events:
        state, actions, _ = step(state, event, now_s)
        orders += actions
    return state, orders


def held(*gpus: str, options: LeaseOptions = OPTIONS, **more: Any) -> State:
    owed = tuple(Owed(gpu, NOMINAL_W, BOOST_W) for gpu in gpus)
    state, orders = played(
        begin(options),
        ask(*gpus, **more),
        *(Found(gpu, NOMINAL_W) for gpu in gpus),
        Written(owed),
        *(Found(gpu, BOOST_W, "raise") for gpu in gpus),
    )
    assert isinstance(orders[-1], Tell)
    assert orders[-1].granted
    return state


def refusal(actions: tuple[Action, ...] | list[Action]) -> str:
    (tell,) = (action for action in actions if isinstance(action, Tell))
    assert not tell.granted
    return tell.reason


def test_a_record_comes_before_the_first_watt() -> None:
    state, orders = played(begin(OPTIONS), ask("0", "1"), Found("0", NOMINAL_W))
    assert orders == [Read("0", before=True), Read("1", before=True)]
    owed = (Owed("0", 700.0, 900.0), Owed("1", 690.0, 900.0))
    state, orders = played(state, Found("1", 690.0))
    assert orders == [Write(owed)]
    state, orders = played(state, Written(owed[:1]))
    assert orders == [Raise("0", 900.0)]
    state, orders = played(state, Written(owed))
    assert orders == [Raise("1", 900.0)]
    assert state.record == owed


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (Found("1", 750.0), "at 750 W, not at its nominal 700 W"),
        (Found("1", 700.0, highest_w=800.0), "takes 800 W at the most, 900 W are needed"),
        (Found("1", math.nan), "reads nan W"),
        (Refused("1", "no permission"), "no permission"),
    ],
)
def test_one_gpu_that_cannot_means_that_none_is_raised(found: Event, said: str) -> None:
    state, _ = played(begin(OPTIONS), ask("0", "1"), Found("0", NOMINAL_W))
    state, actions, reason = step(state, found, 0.0)
    assert said in refusal(actions)
    assert said in reason
    assert state.leases == ()
    assert not any(isinstance(action, Write | Raise | Lower) for action in actions)


@pytest.mark.parametrize(
    "answer", [Found("1", 800.0, "raise"), Found("1", math.nan, "raise"), Refused("1", "", "raise")]
)
def test_a_clamp_or_a_refusal_takes_all_of_them_back(answer: Event) -> None:
    owed = tuple(Owed(gpu, NOMINAL_W, BOOST_W) for gpu in "01")
    state, _ = played(
        begin(OPTIONS),
        ask("0", "1"),
        *(Found(gpu, NOMINAL_W) for gpu in "01"),
        Written(owed),
        Found("0", BOOST_W, "raise"),
    )
    state, actions, _ = step(state, answer, 0.0)
    assert [action for action in actions if isinstance(action, Lower)] == [
        Lower("0", NOMINAL_W),
        Lower("1", NOMINAL_W),
    ]
    assert actions[-1] == Tell("h", False, refusal(actions))
    assert state.record == owed


def test_an_answer_to_an_older_order_restores_nothing() -> None:
    state, _ = played(held("0"), Gone("h"))
    state, actions = played(state, Found("0", NOMINAL_W, "read"), Found("0", NOMINAL_W, "raise"))
    assert not actions
    assert state.record
    state, actions = played(state, Found("0", NOMINAL_W, "lower"))
    assert not state.leases
    assert isinstance(actions[0], Note)


def test_the_record_goes_only_when_the_set_point_is_read_back() -> None:
    state, actions = played(held("0"), Release("h"))
    assert actions[0] == Lower("0", NOMINAL_W)
    state, actions = played(state, Refused("0", "busy", "lower"), Found("0", BOOST_W, "lower"))
    assert [type(action) for action in actions] == [Note, Note]
    for _ in range(3):
        state, actions = played(state, Tick())
        assert actions == [Lower("0", NOMINAL_W)]
    state, _ = played(state, Found("0", NOMINAL_W, "lower"))
    state, actions = played(state, Tick())
    assert actions == [Write(())]
    state, _ = played(state, Written(()))
    assert state.idle


def settles(state: State, now_s: float, record: tuple[Owed, ...]) -> None:
    """Read as it should be at `now_s`, it is owed until it is read so again after `settle_s`."""
    end_s = now_s + OPTIONS.settle_s
    state, actions = played(state, Tick(), Found("0", NOMINAL_W), now_s=end_s - 0.1)
    assert actions == [Read("0")]
    assert state.record == record
    assert "being restored" in refusal(played(state, ask("0", holder="other"))[1])
    state, actions = played(state, Refused("0", "no answer"), Found("0", NOMINAL_W), now_s=end_s)
    assert [action.kind for action in actions if isinstance(action, Note)] == [
        "boost_not_restored",
        "boost_restored",
    ]
    assert state.record == ()


def test_a_raise_that_may_still_happen_keeps_the_record() -> None:
    owed = (Owed("0", NOMINAL_W, BOOST_W),)
    state, _ = played(begin(OPTIONS), ask("0"), Found("0", NOMINAL_W), Written(owed))
    state, _ = played(state, Refused("0", "no answer", "raise"), Found("0", NOMINAL_W, "lower"))
    settles(state, 0.0, owed)
    state, actions = played(state, Found("0", BOOST_W), now_s=5.0)  # there it is
    assert actions[0] == Lower("0", NOMINAL_W)
    state, actions = played(state, Found("0", NOMINAL_W, "lower"), now_s=6.0)
    assert not actions
    settles(state, 6.0, owed)


def test_what_a_dead_supervisor_ordered_may_still_happen() -> None:
    owed = (Owed("0", NOMINAL_W, BOOST_W),)
    state, actions = played(begin(OPTIONS, owed), Tick(), Found("0", NOMINAL_W, "lower"))
    assert actions == [Lower("0", NOMINAL_W)]
    settles(state, 0.0, owed)


def test_a_cap_by_somebody_else_settles_as_well() -> None:
    """It may be one wrong reading of a GPU that is still raised."""
    state, _ = played(held("0"), Release("h"), Found("0", 650.0, "lower"))
    assert state.record
    state, actions = played(state, Found("0", BOOST_W))
    assert actions[0] == Lower("0", NOMINAL_W)


@pytest.mark.parametrize("watts", [0.0, -1.0, math.nan, 150.0])
def test_what_no_gpu_can_be_at_is_no_reading(watts: float) -> None:
    state, _ = played(begin(OPTIONS), ask("0"))
    assert "reads" in refusal(played(state, Found("0", watts, lowest_w=200.0))[1])
    state, actions = played(held("0"), Found("0", watts, lowest_w=200.0))
    assert actions[0] == Lower("0", NOMINAL_W)
    state, actions = played(state, Found("0", watts, "lower", lowest_w=200.0), Tick())
    assert isinstance(actions[0], Note)
    assert actions[1] == Lower("0", NOMINAL_W)
    assert state.record


def test_signs_of_life_lengthen_a_lease_up_to_its_end() -> None:
    state = held("0", lasts_s=25.0, options=LeaseOptions(100.0, 1.0))
    for now_s in (9.0, 18.0, 24.0):
        state, actions = played(state, Renew("h"), Tick(), now_s=now_s)
        assert actions == [Read("0")]
    _, actions = played(state, Renew("h"), Tick(), now_s=25.0)
    assert "may last" in refusal(actions)
    _, actions = played(held("0"), Renew("h"), Tick(), now_s=10.0)  # too late
    assert "no sign of life" in refusal(actions)


def test_a_check_that_fails_is_no_news_and_news_become_stale() -> None:
    state, actions = played(held("0"), Refused("0", "no answer"), now_s=4.0)
    assert not actions
    _, fresh = played(state, Found("0", BOOST_W), Tick(), now_s=5.0)
    assert fresh == [Read("0")]
    _, actions = played(state, Tick(), now_s=5.1)
    assert "no news of GPU 0 for 5.1 s, stale after 5 s" in refusal(actions)


def test_telemetry_from_elsewhere_is_asked_for_before_and_during() -> None:
    options = LeaseOptions(5.0, 1.0, external_telemetry=True)
    _, actions = played(begin(options), ask("0"))
    assert refusal(actions) == "no news of GPU 0, stale after 5 s"
    state, _ = played(begin(options), Sample("0", 50.0), now_s=0.0)
    owed = (Owed("0", NOMINAL_W, BOOST_W),)
    state, _ = played(state, ask("0", limit_c=85.0), Found("0", NOMINAL_W), Written(owed))
    state, _ = played(state, Found("0", BOOST_W, "raise"), now_s=4.0)
    _, actions = played(state, Tick(), now_s=6.0)  # reading it back is no telemetry
    assert "stale" in refusal(actions)
    _, actions = played(state, Sample("0", 84.9), Tick(), now_s=6.0)
    assert actions == [Read("0")]
    _, actions = played(state, Sample("0", 85.0), now_s=4.0)
    assert "85 degC" in refusal(actions)


def test_who_else_sets_a_boosted_gpu_ends_the_boost() -> None:
    _, actions = played(held("0"), Found("0", 600.0))
    assert "held at 900 W and reads 600 W" in refusal(actions)


def test_what_cannot_be_asked() -> None:
    state = held("0")
    for wish, said in (
        (ask("0", holder="other"), "boosted for another"),
        (ask("1"), "holds a boost already"),
        (ask(holder="other"), "0 GPUs"),
        (ask("1", "1", holder="other"), "2 GPUs were named, 1 different"),
    ):
        after, actions = played(state, wish)
        assert said in refusal(actions)
        assert after == state
    state, _ = played(state, Stop())
    _, actions = played(state, ask("1", holder="other"))
    assert "stopping" in refusal(actions)
    _, actions = played(begin(OPTIONS, state.record), ask("0"))
    assert "being restored" in refusal(actions)


def test_no_record_no_boost_and_the_disk_is_tried_again() -> None:
    state, _ = played(begin(OPTIONS), ask("0"), Found("0", NOMINAL_W))
    state, actions = played(state, NotWritten("disk full"))
    assert "no record of it: disk full" in refusal(actions)
    assert not state.idle
    assert not state.leases
    state, actions = played(state, Tick(), NotWritten("disk full"), Tick())
    assert actions == [Write(()), Write(())]


def cooled(answer: Event) -> tuple[State, list[Action]]:
    """A GPU with a valve that was at 1.5 l/min, after this answer to its raise."""
    found = Found("0", NOMINAL_W, flow_l_per_min=1.5)
    state, orders = played(begin(OPTIONS), ask("0"), found)
    owed = (Owed("0", NOMINAL_W, BOOST_W, 1.5),)
    assert orders[-1] == Write(owed)
    return played(state, Written(owed), answer)


def test_coolant_is_owed_as_watts_are() -> None:
    state, _ = cooled(Found("0", BOOST_W, "raise"))
    state, actions = played(state, Release("h"))
    assert actions[0] == Lower("0", NOMINAL_W, 1.5)
    state, _ = played(state, Refused("0", "the valve is stuck", "lower"))
    _, actions = played(begin(OPTIONS, state.record), Tick())
    assert actions == [Lower("0", NOMINAL_W)]
    state, _ = played(state, Found("0", NOMINAL_W, "lower"))
    assert state.record == ()


def test_coolant_stays_while_a_raise_may_still_happen() -> None:
    state, actions = cooled(Refused("0", "no answer", "raise"))
    assert actions[1] == Lower("0", NOMINAL_W)
    state, _ = played(state, Found("0", 600.0, "lower"))
    state, actions = played(state, Found("0", 600.0), now_s=OPTIONS.settle_s)
    assert actions == [Lower("0", NOMINAL_W, 1.5)]
    state, _ = played(state, Refused("0", "stuck", "lower"), now_s=20.0)
    state, actions = played(state, Tick(), Found("0", 600.0, "lower"), now_s=21.0)
    assert actions[0] == Lower("0", NOMINAL_W, 1.5)
    assert state.record == ()


def test_a_record_that_is_gone_is_written_again_or_the_boost_ends() -> None:
    state, actions = played(held("0"), RecordLost(), RecordLost(), Tick())
    owed = (Owed("0", NOMINAL_W, BOOST_W),)
    assert [type(action) for action in actions] == [Note, Read, Write]
    assert actions[-1] == Write(owed)
    written, actions = played(state, Written(owed), NotWritten("disk full"))
    assert written.holders  # as what the disk says names it in any case
    _, actions = played(state, NotWritten("disk full"))
    assert "no record of it: disk full" in refusal(actions)
    assert actions[0] == Lower("0", NOMINAL_W)


def test_answers_carry_the_number_of_their_ask() -> None:
    state, _ = played(held("0", number=7), ask("1", holder="h", number=8))
    _, (tell,) = played(state, ask("1", holder="h", number=8))
    assert isinstance(tell, Tell)
    assert tell.number == 8
    _, actions = played(state, Gone("h"))
    assert [action.number for action in actions if isinstance(action, Tell)] == [7]


def test_news_may_call_a_gpu_by_another_name() -> None:
    options = LeaseOptions(5.0, 1.0, external_telemetry=True)
    wish = Wish("GPU-abc", BOOST_W, NOMINAL_W, known_as="3")
    for name in ("3", "GPU-abc"):
        state, actions = played(begin(options), Sample(name, 50.0), Ask("h", (wish,), 10.0, 99, 85))
        assert actions == [Read("GPU-abc", before=True)]
        assert "90 degC" in refusal(played(state, Sample(name, 90.0))[1])
    assert "no news of GPU GPU-abc" in refusal(played(begin(options), Ask("h", (wish,), 10.0))[1])


# ------------------------------------------------------------------- all orders of everything


@dataclass
class World:
    """Real set points, a disk, and a supervisor that may be dead. Orders wait in a queue, and
    dying loses the queue, as a process that is killed loses its. It is an `Actuator`."""

    now_s: float = 0.0
    watts: dict[str, float] = field(default_factory=lambda: dict.fromkeys("0123", NOMINAL_W))
    ceiling_w: dict[str, float] = field(default_factory=lambda: dict.fromkeys("0123", math.inf))
    deaf: set[str] = field(default_factory=set)
    """Orders fail."""
    stuck: set[str] = field(default_factory=set)
    """Orders seem to succeed, and change nothing."""
    late: set[str] = field(default_factory=set)
    """A raise seems to succeed, and happens `LATE_S` later."""
    lies: dict[str, float] = field(default_factory=dict)
    """What is read, whatever is set."""
    lies_once: set[str] = field(default_factory=set)
    """One reading seems to be a cap of somebody else's."""
    coming: list[tuple[float, str, float]] = field(default_factory=list)
    disk: tuple[Owed, ...] = ()
    disk_full: bool = False

    def read_w(self, gpu: str) -> float:
        if gpu in self.deaf:
            raise ActuatorRefused("deaf")
        if gpu in self.lies_once:
            self.lies_once.discard(gpu)
            return 650.0
        return self.lies.get(gpu, self.watts[gpu])

    def set_w(self, gpu: str, watts: float) -> None:
        if gpu in self.deaf:
            raise ActuatorRefused("deaf")
        if watts > NOMINAL_W:
            owed = {line.gpu: line.restore_w for line in self.disk}
            assert owed[gpu] <= NOMINAL_W  # never raised without a record of what it was
        if gpu in self.late and watts > NOMINAL_W:
            self.coming.append((self.now_s + LATE_S, gpu, watts))
        elif gpu not in self.stuck:
            self.watts[gpu] = min(watts, self.ceiling_w[gpu])

    def limits_w(self, gpu: str) -> LimitsW:
        return LimitsW(200.0, 1000.0)

    def go_on(self, now_s: float) -> None:
        """Whatever was late and is due by now happens."""
        self.now_s = now_s
        for due in [due for due in self.coming if due[0] <= now_s]:
            self.coming.remove(due)
            self.watts[due[1]] = due[2]


PERIOD_S = 1.0
LEASE_S = 6.0
LATE_S = 2.0
SETTLE_S = 3.0


class Leases(RuleBasedStateMachine):
    @initialize(external=st.booleans())
    def start(self, external: bool) -> None:
        self.world = World()
        self.options = LeaseOptions(4.0, 1.0, external, SETTLE_S)
        self.now_s = 0.0
        self.next_tick_s = 0.0
        self.state = begin(self.options)
        self.queue: list[Action] = []
        self.alive: set[str] = set()  # holders whose processes live
        self.beat_s: dict[str, float] = {}
        self.wanted: dict[str, set[str]] = {}
        self.count = 0

    # ---- what the supervisor does

    def hear(self, event: Event) -> None:
        self.state, actions, reason = step(self.state, event, self.now_s)
        assert (reason != "") == any(isinstance(action, Tell | Note) for action in actions)
        self.queue += actions

    def carry_out(self) -> None:
        """One order, and the machine hears of it."""
        action = self.queue.pop(0)
        world = self.world
        if isinstance(action, Write):
            if world.disk_full:
                self.hear(NotWritten("disk full"))
            else:
                world.disk = action.owed
                self.hear(Written(action.owed))
            return
        if isinstance(action, Tell) and not action.granted:
            self.alive.discard(action.holder)
        if not isinstance(action, Read | Raise | Lower):
            return
        gpu = action.gpu
        after = {Read: "read", Raise: "raise", Lower: "lower"}[type(action)]
        before_w = world.watts[gpu]
        try:
            if isinstance(action, Lower):
                found = lower(world, gpu, action.watts, 1.0)
                assert world.watts[gpu] <= max(before_w, NOMINAL_W)
            else:
                if isinstance(action, Raise):
                    world.set_w(gpu, action.watts)
                found = read(world, gpu)
        except ActuatorRefused as refusal:
            self.hear(Refused(gpu, str(refusal), after))  # type: ignore[arg-type]
            return
        self.hear(Found(gpu, found.watts, after, found.highest_w, found.lowest_w))  # type: ignore[arg-type]

    def finish(self) -> None:
        while self.queue:
            self.carry_out()

    # ---- what happens

    @rule(
        gpus=st.sets(st.sampled_from("0123"), min_size=1, max_size=2),
        lasts_s=st.sampled_from([3.0, 1e9]),
        heard_of=st.sampled_from([True, True, True, False]),
        orders=st.sampled_from([0, 1, 2, 3, 4, 5, 99, 99, 99]),
    )
    def a_holder_asks(self, gpus: set[str], lasts_s: float, heard_of: bool, orders: int) -> None:
        self.count += 1
        name = f"holder {self.count}"
        self.alive.add(name)
        self.beat_s[name] = self.now_s
        self.wanted[name] = gpus
        for gpu in gpus if heard_of else ():
            self.hear(Sample(gpu, 50.0))
        wishes = tuple(Wish(gpu, BOOST_W, NOMINAL_W) for gpu in sorted(gpus))
        self.hear(Ask(name, wishes, LEASE_S, lasts_s, 85.0))
        self.some(orders)

    @precondition(lambda self: self.alive)
    @rule(data=st.data())
    def a_holder_renews(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.alive)))
        self.beat_s[name] = self.now_s
        self.hear(Renew(name))

    @precondition(lambda self: self.alive)
    @rule(data=st.data(), how=st.sampled_from([Release, Gone]))
    def a_holder_leaves(self, data: st.DataObject, how: type[Release] | type[Gone]) -> None:
        name = data.draw(st.sampled_from(sorted(self.alive)))
        self.alive.discard(name)
        self.hear(how(name))

    @rule(gpu=st.sampled_from("0123"), temperature_c=st.sampled_from([50.0, 50.0, 90.0]))
    def telemetry(self, gpu: str, temperature_c: float) -> None:
        self.hear(Sample(gpu, temperature_c))

    @precondition(lambda self: self.queue)
    @rule(orders=st.integers(1, 5))
    def orders_are_carried_out(self, orders: int) -> None:
        self.some(orders)

    @rule(for_s=st.sampled_from([0.0, 0.5, 10.0]), orphan=st.booleans())
    def the_supervisor_is_killed_and_the_next_one_starts(self, for_s: float, orphan: bool) -> None:
        """What it had just told somebody may still happen."""
        first = self.queue[0] if self.queue else None
        if orphan and isinstance(first, Raise):
            self.world.coming.append((self.now_s + LATE_S, first.gpu, first.watts))
        self.now_s += for_s
        self.world.go_on(self.now_s)
        self.start_again()

    @rule(orders=st.integers(0, 20))
    def it_is_told_to_stop_and_the_next_one_starts(self, orders: int) -> None:
        self.hear(Stop())
        self.some(orders)
        self.start_again()

    @rule(gpus=st.sets(st.sampled_from("0123"), max_size=1))
    def these_gpus_clamp(self, gpus: set[str]) -> None:
        self.world.ceiling_w = {gpu: 800.0 if gpu in gpus else math.inf for gpu in "0123"}

    @rule(gpus=st.sets(st.sampled_from("0123"), max_size=1))
    def these_gpus_are_deaf(self, gpus: set[str]) -> None:
        self.world.deaf = gpus

    @rule(gpus=st.sets(st.sampled_from("0123"), max_size=1))
    def these_gpus_are_stuck(self, gpus: set[str]) -> None:
        self.world.stuck = gpus

    @rule(gpus=st.sets(st.sampled_from("0123"), max_size=2))
    def a_raise_of_these_gpus_lands_late(self, gpus: set[str]) -> None:
        self.world.late = gpus

    @rule(
        gpus=st.sets(st.sampled_from("0123"), max_size=1),
        watts=st.sampled_from([0.0, -1.0, math.nan, 150.0]),
    )
    def a_read_of_these_gpus_lies(self, gpus: set[str], watts: float) -> None:
        self.world.lies = dict.fromkeys(gpus, watts)

    @rule(gpu=st.sampled_from("0123"))
    def one_read_of_this_gpu_lies(self, gpu: str) -> None:
        self.world.lies_once.add(gpu)

    @rule()
    def a_tick_comes_between(self) -> None:
        """While orders are under way."""
        self.hear(Tick())

    @rule(gpu=st.sampled_from("0123"))
    def somebody_caps_a_gpu(self, gpu: str) -> None:
        self.world.watts[gpu] = min(self.world.watts[gpu], 600.0)

    @rule(full=st.sampled_from([False, False, True]))
    def the_disk(self, full: bool) -> None:
        self.world.disk_full = full

    @precondition(lambda self: not self.world.disk_full)
    @rule()
    def the_record_is_removed_and_the_next_tick_finds_out(self) -> None:
        self.finish()
        self.world.disk = ()
        self.hear(RecordLost())
        self.tick()

    @rule(seconds=st.sampled_from([0.3, 1.0, 2.5]))
    def time_passes(self, seconds: float) -> None:
        """Orders are quick, so that a tick finds nothing in the queue; periods are kept."""
        end_s = self.now_s + seconds
        while self.next_tick_s <= end_s:
            self.now_s = max(self.now_s, self.next_tick_s)
            self.world.go_on(self.now_s)
            self.finish()
            self.tick()
        self.now_s = end_s
        self.world.go_on(end_s)

    def tick(self) -> None:
        self.next_tick_s = self.now_s + PERIOD_S
        self.hear(Tick())
        self.finish()

    def some(self, orders: int) -> None:
        while self.queue and orders:
            self.carry_out()
            orders -= 1

    def start_again(self) -> None:
        self.queue = []
        self.alive = set()
        self.state = begin(self.options, self.world.disk)
        self.tick()

    # ---- what must hold

    @invariant()
    def whatever_is_raised_is_on_disk(self) -> None:
        owed = {line.gpu: line.restore_w for line in self.world.disk}
        for gpu, watts in self.world.watts.items():
            assert watts <= NOMINAL_W or owed[gpu] <= NOMINAL_W

    @invariant()
    def nobody_is_boosted_past_the_lease_and_a_period(self) -> None:
        """Of GPUs that hear, once nothing is left to carry out. One that was deaf until now is
        restored by the next tick."""
        if self.queue:
            return
        latest_s = dict.fromkeys("0123", -math.inf)
        for name in self.alive:
            for gpu in self.wanted[name]:
                latest_s[gpu] = max(latest_s[gpu], self.beat_s[name] + LEASE_S)
        restoring = {lease.gpu for lease in self.state.leases if not lease.holder}
        for gpu, watts in self.world.watts.items():
            if watts > NOMINAL_W and gpu not in self.world.deaf | restoring:
                assert self.now_s <= latest_s[gpu] + PERIOD_S

    def teardown(self) -> None:
        """In the end all GPUs hear, the disk has room and nobody holds: all must be back."""
        if not hasattr(self, "world"):
            return
        self.world.deaf = set()
        self.world.stuck = set()
        self.world.lies = {}
        self.world.disk_full = False
        self.time_passes(LEASE_S + PERIOD_S)
        self.time_passes(2 * (SETTLE_S + LATE_S) + 2 * PERIOD_S)
        assert max(self.world.watts.values()) <= NOMINAL_W
        assert self.world.disk == ()
        assert self.state.idle


TestLeases = Leases.TestCase
TestLeases.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
