"""Seeds in this process, in others, and on whatever backend is registered."""

from __future__ import annotations

from functools import partial
from typing import Any

import joblib
import pytest
from joblib.parallel import ThreadingBackend, register_parallel_backend

from nonuniform.cluster.fleet import Fleet
from nonuniform.cluster.sources.generate import generate
from nonuniform.cluster.sources.rates import Cause
from nonuniform.cluster.sources.repair import fixed
from nonuniform.cluster.trace import Trace
from nonuniform.errors import BadInput
from nonuniform.placement.job import TrainingJob
from nonuniform.placement.policy import PolicyOptions
from nonuniform.sim.engine import simulate
from nonuniform.sim.monte_carlo import run

FLEET, JOB = Fleet(512, 8), TrainingJob(8, 2, 8)
CAUSES = (Cause("any", 2e-3, fixed(48.0)),)
SOURCE = partial(generate, FLEET, CAUSES, 24.0 * 60)
POLICIES = {
    "dp-drop": (JOB, PolicyOptions("dp-drop")),
    "ntp": (JOB, PolicyOptions("ntp", restart_s=60.0)),
}
SEEDS = range(5, 16)


def by_hand() -> dict[str, list[Any]]:
    return {
        name: [simulate(SOURCE(seed), FLEET, job, options) for seed in SEEDS]
        for name, (job, options) in POLICIES.items()
    }


def test_one_job_tells_of_every_seed() -> None:
    told: list[int] = []
    found = run(FLEET, SOURCE, POLICIES, SEEDS, 1, told.append)
    assert found == by_hand()
    assert told == list(range(1, 12))
    assert len(set(found["ntp"])) == len(SEEDS)


def test_two_processes_give_the_same() -> None:
    told: list[int] = []
    assert run(FLEET, SOURCE, POLICIES, SEEDS, 2, told.append) == by_hand()
    assert told[-1] == len(SEEDS)
    assert told == sorted(told)


def test_any_registered_backend_will_do() -> None:
    class Elsewhere(ThreadingBackend):
        """One of those that give all results at last."""

        tasks = 0
        supports_return_generator = False

        def submit(self, *args: Any, **more: Any) -> Any:
            type(self).tasks += 1
            return super().submit(*args, **more)

    register_parallel_backend("elsewhere", Elsewhere)
    told: list[int] = []
    with joblib.parallel_config(backend="elsewhere"):
        found = run(FLEET, SOURCE, POLICIES, SEEDS, 2, told.append)
    assert found == by_hand()
    assert Elsewhere.tasks > 0
    assert told[-1] == len(SEEDS)


def test_what_a_source_cannot_give_is_said_from_other_processes_too() -> None:
    def broken(seed: int) -> Trace:
        if seed == 8:
            raise BadInput("failures: nothing known of seed 8")
        return SOURCE(seed)

    with pytest.raises(BadInput, match="seed 8"):
        run(FLEET, broken, POLICIES, SEEDS, 2)


def test_a_policy_that_does_not_fit_is_told_before_anything_runs() -> None:
    def never(seed: int) -> Trace:
        raise AssertionError("no trace should be asked for")

    with pytest.raises(BadInput, match="degree = 16"):
        run(FLEET, never, {"ntp": (TrainingJob(16), PolicyOptions("ntp"))}, SEEDS, 2)


@pytest.mark.parametrize(("seeds", "jobs", "text"), [((), 1, "no seeds"), ((1,), 0, "jobs = 0")])
def test_wrong_numbers(seeds: tuple[int, ...], jobs: int, text: str) -> None:
    with pytest.raises(BadInput, match=text):
        run(FLEET, SOURCE, POLICIES, seeds, jobs)
