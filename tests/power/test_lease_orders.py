"""The machine of leases: all orders of everything against a model world."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

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
    Stop,
    Tell,
    Tick,
    Wish,
    Write,
    Written,
)

NOMINAL_W, BOOST_W = 700.0, 900.0


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
