"""`--fail`, `--drain` and `--return`: syntax, range, and that a GPU goes and returns in turn."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nonuniform.config import (
    BatchConfig,
    JobConfig,
    ModelConfig,
    ParallelConfig,
    RunConfig,
    ScheduledEvent,
    parse_schedule,
)
from nonuniform.errors import BadInput

JOB = JobConfig(
    model=ModelConfig(layers=1, hidden=32, heads=4),
    parallel=ParallelConfig(replicas=2, degree=4),
    batch=BatchConfig(sequences=4, length=16),
    run=RunConfig(steps=60),
)


def test_events_come_in_the_order_of_steps_whatever_the_order_of_the_flags() -> None:
    events = parse_schedule(
        ["gpu=1/3@step=40", "gpu=0/2@step=5", "gpu=0/2@step=30"], ["gpu=0/2@step=20"], JOB
    )
    assert events == (
        ScheduledEvent("failed", "0/2", 5),
        ScheduledEvent("returned", "0/2", 20),
        ScheduledEvent("failed", "0/2", 30),
        ScheduledEvent("failed", "1/3", 40),
    )


def test_the_first_and_the_last_step_are_in_range() -> None:
    assert [e.step for e in parse_schedule(["gpu=0/0@step=1", "gpu=1/3@step=60"], [], JOB)] == [
        1,
        60,
    ]


def test_leading_zeros_name_the_same_gpu() -> None:
    with pytest.raises(BadInput, match="already failed at step 2"):
        parse_schedule(["gpu=0/1@step=2", "gpu=00/01@step=3"], [], JOB)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0/1@3",
        "gpu=0/1",
        "gpu=0@step=3",
        "gpu=0/-1@step=3",
        "gpu=0/1@step=3 ",
        "gpu=a/b@step=c",
    ],
)
@pytest.mark.parametrize("flag", ["--fail", "--return", "--drain"])
def test_syntax(flag: str, text: str) -> None:
    given = {name: [text] if name == flag else [] for name in ("--fail", "--return", "--drain")}
    with pytest.raises(BadInput, match=f"^{flag} .*must be gpu=R/I@step=S"):
        parse_schedule(given["--fail"], given["--return"], JOB, given["--drain"])


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("gpu=2/0@step=3", "there is no GPU 2/0, the job has 0/0 to 1/3"),
        ("gpu=0/4@step=3", "there is no GPU 0/4, the job has 0/0 to 1/3"),
        ("gpu=0/1@step=0", "step must be in 1 to 60, got 0"),
        ("gpu=0/1@step=61", "step must be in 1 to 60, got 61"),
    ],
)
def test_range(text: str, line: str) -> None:
    with pytest.raises(BadInput, match=f"^--fail {text}: {line}$"):
        parse_schedule([text], [], JOB)


def test_spares_may_fail_and_return() -> None:
    job = replace(JOB, parallel=replace(JOB.parallel, spares=2))
    events = parse_schedule(["gpu=2/1@step=3"], ["gpu=2/1@step=5"], job)
    assert [(event.kind, event.gpu) for event in events] == [("failed", "2/1"), ("returned", "2/1")]
    for text in ("gpu=2/2@step=3", "gpu=3/0@step=3", "gpu=1/4@step=3"):
        name = text.removeprefix("gpu=").partition("@")[0]
        line = f"there is no GPU {name}, the job has 0/0 to 1/3 and the spares 2/0 to 2/1"
        with pytest.raises(BadInput, match=f"^--fail {text}: {line}$"):
            parse_schedule([text], [], job)


@pytest.mark.parametrize(
    ("fails", "returns", "line"),
    [
        ([3, 5], [], "--fail gpu=0/1@step=5: GPU 0/1 has already failed at step 3"),
        ([], [5], "--return gpu=0/1@step=5: GPU 0/1 has not failed before step 5"),
        ([6], [5], "--return gpu=0/1@step=5: GPU 0/1 has not failed before step 5"),
        ([3], [5, 7], "has not failed before step 7 since it returned at step 5"),
        ([5], [5], "--return gpu=0/1@step=5: must come later than its failure at step 5"),
    ],
)
def test_a_gpu_fails_and_returns_in_turn(fails: list[int], returns: list[int], line: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse_schedule(
            [f"gpu=0/1@step={step}" for step in fails],
            [f"gpu=0/1@step={step}" for step in returns],
            JOB,
        )
    assert line in str(caught.value)


def test_a_gpu_is_drained_and_returns_in_turn() -> None:
    events = parse_schedule(
        ["gpu=0/1@step=9"], ["gpu=0/1@step=5", "gpu=0/1@step=12"], JOB, ["gpu=0/1@step=3"]
    )
    assert events == (
        ScheduledEvent("drained", "0/1", 3),
        ScheduledEvent("returned", "0/1", 5),
        ScheduledEvent("failed", "0/1", 9),
        ScheduledEvent("returned", "0/1", 12),
    )


@pytest.mark.parametrize(
    ("fails", "drains", "line"),
    [
        ([5], [3], "--fail gpu=0/1@step=5: GPU 0/1 has already drained at step 3"),
        ([3], [5], "--drain gpu=0/1@step=5: GPU 0/1 has already failed at step 3"),
        ([], [3, 5], "--drain gpu=0/1@step=5: GPU 0/1 has already drained at step 3"),
        ([3], [3], "--fail gpu=0/1@step=3: GPU 0/1 has already drained at step 3"),
    ],
)
def test_a_gpu_that_is_gone_neither_fails_nor_is_drained(
    fails: list[int], drains: list[int], line: str
) -> None:
    with pytest.raises(BadInput) as caught:
        parse_schedule(
            [f"gpu=0/1@step={step}" for step in fails],
            [],
            JOB,
            [f"gpu=0/1@step={step}" for step in drains],
        )
    assert str(caught.value) == line


@pytest.mark.parametrize("flag", ["--fail", "--drain", "--return"])
def test_there_must_be_such_a_gpu(flag: str) -> None:
    text = "gpu=2/0@step=3"
    given = {name: [text] if name == flag else [] for name in ("--fail", "--return", "--drain")}
    with pytest.raises(BadInput, match=f"^{flag} {text}: there is no GPU 2/0, the job has 0/0 to"):
        parse_schedule(given["--fail"], given["--return"], JOB, given["--drain"])
