"""Long runs with many failures and returns; left out by default."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

STEPS = 240
PHASE = 16
BOUND_S = 400.0


def incidents(draw: Random, replicas: int, degree: int) -> tuple[list[str], list[str]]:
    """In each phase one or two GPUs of one replica fail, and come back before the next phase."""
    fails, returns = [], []
    for start in range(2, STEPS - 2 * PHASE, PHASE):
        replica = draw.randrange(replicas)
        for index in draw.sample(range(degree), draw.randint(1, 2)):
            fail = start + draw.randint(0, 3)
            fails.append(f"{replica}/{index}@{fail}")
            returns.append(f"{replica}/{index}@{fail + draw.randint(2, 5)}")
    return fails, returns


@pytest.fixture(scope="module")
def long_reference(lab: Any) -> Any:
    run = lab.train(lab.job(run={"steps": STEPS, "val_every": 5}), bound_s=BOUND_S)
    assert run.status == 0, run.stderr
    return run


@pytest.mark.soak
@pytest.mark.parametrize("degree", [3])
@pytest.mark.parametrize("number", range(1))
def test_many_failures_and_returns(
    lab: Any, elastic: Any, long_reference: Any, draw: Random, degree: int, number: int
) -> None:
    fails, returns = incidents(draw, replicas=3, degree=degree)
    print(fails, returns)  # noqa: T201
    job = lab.job(
        parallel={"replicas": 3, "degree": degree},
        run={"steps": STEPS, "val_every": 5, "check_units": True},
    )
    run = lab.train(job, fails=fails, returns=returns, bound_s=BOUND_S)
    assert run.status == 0, run.stderr
    elastic.assert_same_training(run, long_reference, steps=STEPS, tolerance=1e-8)
    assert run.summary["failures"] == len(fails)
    assert run.summary["returns"] == len(returns)
    assert run.steps[-1]["degrees"] == [degree] * 3
    ours, theirs = run.of_kind("validation"), long_reference.of_kind("validation")
    assert [e["step"] for e in ours] == [e["step"] for e in theirs]
    assert [e["loss"] for e in ours] == pytest.approx([e["loss"] for e in theirs], rel=1e-8)
