"""From measured values to findings: what is fine, what is a warning, what stops a run."""

from __future__ import annotations

import pytest

from nonuniform.doctor import judge
from nonuniform.doctor.verdict import Check, Status, exit_status

OK, WARN, FAIL = Status.OK, Status.WARN, Status.FAIL


@pytest.mark.parametrize(
    ("check", "status"),
    [
        (judge.judge_platform("Linux", "3.12.1"), OK),
        (judge.judge_platform("Darwin", "3.12.1"), WARN),
        (judge.judge_packages({"numpy": "2.4.6", "scipy": "1.17"}), OK),
        (judge.judge_packages({"numpy": "2.4.6", "scipy": None}), FAIL),
        (judge.judge_torch("2.13.0+cpu"), OK),
        (judge.judge_torch("3.0.0a0+git1234"), OK),
        (judge.judge_torch("2.13rc1"), OK),
        (judge.judge_torch("2.9.1"), WARN),
        (judge.judge_torch(None), WARN),
        (judge.judge_torch("2.13.0", "libcudart.so.13 not found"), FAIL),
        (judge.judge_picture("3.11.2"), OK),
        (judge.judge_picture(None), WARN),
        (judge.judge_cores(2), OK),
        (judge.judge_cores(1.5), WARN),
        (judge.judge_memory(23.5), OK),
        (judge.judge_memory(1.5), WARN),
        (judge.judge_memory(0.7), FAIL),
        (judge.judge_gpus(0, []), OK),
        (judge.judge_gpus(8, ["H200, 139 GiB"] * 8), OK),
        (judge.judge_gpus(8, []), WARN),
        (judge.judge_round_trip("gloo", 0.002), OK),
        (judge.judge_round_trip("gloo", 0.5), WARN),
        (judge.judge_round_trip("nccl", None, "no answer within 20 s"), FAIL),
        (judge.judge_open_files(20000), OK),
        (judge.judge_open_files(512), WARN),
        (judge.judge_open_files(64), FAIL),
        (judge.judge_ports(64), OK),
        (judge.judge_ports(10, problem="Too many open files"), WARN),
        (judge.judge_ports(0, problem="Permission denied"), FAIL),
        (judge.judge_disk(50.0, "/runs"), OK),
        (judge.judge_disk(0.5, "/runs"), WARN),
        (judge.judge_disk(0.01, "/runs"), FAIL),
        (judge.judge_disk(None, "/runs"), WARN),
        (judge.judge_shared_memory(0.0625, has_gpus=False), OK),
        (judge.judge_shared_memory(None, has_gpus=False), OK),
        (judge.judge_shared_memory(16.0, has_gpus=True), OK),
        (judge.judge_shared_memory(0.0625, has_gpus=True), WARN),
        (judge.judge_shared_memory(None, has_gpus=True), FAIL),
    ],
)
def test_status_and_that_a_problem_comes_with_advice(check: Check, status: Status) -> None:
    assert check.status is status
    assert bool(check.advice) == (status is not OK)
    assert "\n" not in check.found + check.advice


def test_the_measured_number_is_shown() -> None:
    assert "1.5 GiB" in judge.judge_memory(1.5).found
    assert "10 of 64" in judge.judge_ports(10, problem="Too many open files").found
    assert "scipy missing" in judge.judge_packages({"numpy": "2.4.6", "scipy": None}).found
    assert judge.judge_round_trip("gloo", 0.002).found.startswith("2.00 ms")


def test_only_a_failed_check_changes_the_exit_status() -> None:
    checks = [Check("a", OK, ""), Check("b", WARN, "", "do")]
    assert exit_status(checks) == 0
    assert exit_status([*checks, Check("c", FAIL, "", "do")]) == 3
