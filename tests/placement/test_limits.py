"""Jobs and policies that don't fit say which keys and numbers disagree, in one line."""

from __future__ import annotations

from typing import Any

import pytest

from nonuniform.errors import BadInput
from nonuniform.placement.job import TrainingJob
from nonuniform.placement.limits import replicas_of
from nonuniform.placement.policy import PolicyOptions


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"degree": 0}, "[job] degree = 0 must be at least 1"),
        ({"degree": 8, "stages": 8, "layers": 6}, "layers = 6 is fewer than stages = 8"),
        (
            {"degree": 8, "sequences_per_replica": 8, "microbatch_sequences": 3},
            "sequences_per_replica = 8 is not a multiple of microbatch_sequences = 3",
        ),
    ],
)
def test_a_job_that_contradicts_itself(keys: dict[str, int], message: str) -> None:
    with pytest.raises(BadInput) as refused:
        TrainingJob(**keys)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"kind": "dp"}, 'kind = "dp": expected one of "uniform", "dp-drop", "ntp", "ntp-pw"'),
        ({"batch": "shrunk"}, 'batch = "shrunk": expected one of "shrink", "fixed"'),
        ({"spare_domains": -1}, "spare_domains = -1 must be at least 0"),
        ({"restart_s": float("nan")}, "restart_s = nan must be at least 0 and finite"),
        ({"max_speedup": 0.9}, "max_speedup = 0.9 must be at least 1 and finite"),
        ({"degrees": (30, 30)}, "degrees = [30, 30] must be different and at least 1"),
        ({"on_failure": "restart"}, 'on_failure = "restart" belongs to uniform, not to ntp'),
        (
            {"packing": "none", "spare_domains": 16},
            'packing = "none" can\'t use spare_domains = 16',
        ),
        ({"repack": "never", "spare_domains": 2}, 'repack = "never" can\'t use spare_domains = 2'),
        ({"repack": "next-checkpoint"}, 'repack = "next-checkpoint" needs checkpoint_every_s'),
        ({"batch": "fixed", "batch_at": ((30, 7),)}, 'batch_at belongs to batch = "shrink"'),
        ({"batch_at": ((30, 6), (28, 7))}, "(28 -> 7, 30 -> 6) must not give a lower degree more"),
        ({"batch_at": ((30, 6), (30, 7))}, "must name each degree once"),
        ({"speed_at": ((30, 0.9), (30, 0.8))}, "speed_at (30 -> 0.8, 30 -> 0.9) must name each"),
        ({"speed_at": ((30, 1.1),)}, "speed_at 30 -> 1.1 must be above 0 and at most 1"),
        ({"speed_at": ((30, 0.0),)}, "speed_at 30 -> 0 must be above 0"),
        ({"speed_at": ((30, 0.8), (28, 0.9))}, "must not make a lower degree faster"),
        ({"speedup_at": ((30, 0.9),)}, "speedup_at 30 -> 0.9 must be at least 1"),
        ({"speedup_at": ((30, float("nan")),)}, "speedup_at 30 -> nan must be at least 1"),
    ],
)
def test_options_that_contradict_one_another(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput) as refused:
        PolicyOptions(**{"kind": "ntp", **keys})
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


JOB = TrainingJob(32, stages=8, sequences_per_replica=8)


@pytest.mark.parametrize(
    ("domains", "domain", "job", "keys", "message"),
    [
        (64, 16, JOB, {}, "[job] degree = 32 is more than [cluster] domain = 16"),
        (64, 32, JOB, {"degrees": (33, 30)}, "degrees = [33, 30] go above [job] degree = 32"),
        (64, 32, JOB, {"min_degree": 40}, "min_degree = 40 is more than [job] degree = 32"),
        (
            64,
            32,
            JOB,
            {"degrees": (30, 28), "batch_at": ((29, 7),)},
            "batch_at 29 -> 7: degree 29 is not legal (degrees: 28, 30, min_degree = 1)",
        ),
        (64, 32, JOB, {"min_degree": 30, "batch_at": ((28, 7),)}, "min_degree = 30"),
        (64, 32, JOB, {"batch_at": ((40, 7),)}, "degree 40 is above [job] degree = 32"),
        (64, 32, JOB, {"batch_at": ((30, 9),)}, "takes [job] sequences_per_replica = 8"),
        (
            7,
            32,
            JOB,
            {},
            "one replica of 8 stages at degree 32 needs 8 groups; [cluster] 7 domains of 32 GPUs "
            "hold 7",
        ),
        (
            64,
            32,
            TrainingJob(32, stages=8, replicas=8),
            {"spare_domains": 1},
            "replicas = 8 of 8 stages at degree 32 need 64 groups; [cluster] 64 domains of "
            "32 GPUs, 1 of them spare hold 63",
        ),
    ],
)
def test_what_does_not_fit_the_cluster(
    domains: int, domain: int, job: TrainingJob, keys: dict[str, Any], message: str
) -> None:
    with pytest.raises(BadInput) as refused:
        replicas_of(domains, domain, job, PolicyOptions("ntp", **keys))
    assert message in str(refused.value)


def test_as_many_replicas_as_fit_beside_the_spares() -> None:
    options = PolicyOptions("ntp", spare_domains=16)
    assert replicas_of(1024, 32, JOB, options) == 126
    assert replicas_of(56, 72, TrainingJob(8, stages=4), PolicyOptions("ntp")) == 126
