"""The machine of leases: single turns."""

from __future__ import annotations

import math
from typing import Any

import pytest

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
