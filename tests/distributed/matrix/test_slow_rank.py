"""A rank that needs far longer for its work than the others is told, and drained if wanted."""

from __future__ import annotations

from typing import Any

import pytest
from means.bouts import STEPS, check_samples, fight, story
from means.strikes import ENOUGH, Strike, strike_folder

GPU = "1/0"
FACTOR = 5.0


@pytest.mark.parametrize("action", ["report", "drain", "ignore"])
def test_a_slow_rank_is_told_and_drained_if_the_policy_says_so(
    lab: Any, elastic: Any, reference: Any, action: str
) -> None:
    def during(live: Any) -> None:
        if action == "ignore":
            live.wait_step(5)
        else:
            live.wait_events("slow")
        if action == "drain":
            live.wait("a generation without it", lambda: live.steps[-1]["degrees"] == [3, 2, 3])
        (strike_folder(live.folder) / ENOUGH).touch()

    health = {"slow_action": action, "slow_steps": 3, "slow_factor": FACTOR}
    strike = Strike((GPU,), "nowhere", "slow", step=2)
    bout = fight(lab, strike, {"health": health}, during=during)
    run = bout.run
    assert run.status == 0, story(bout)
    elastic.assert_same_training(run, reference, steps=STEPS)
    check_samples(bout)
    slow = run.of_kind("slow")
    assert [event["gpu"] for event in slow] == ([] if action == "ignore" else [GPU])
    assert all(event["ratio"] > FACTOR for event in slow)
    assert run.of_kind("failed") == []
    assert [e["gpu"] for e in run.of_kind("drained")] == ([GPU] if action == "drain" else [])
