"""What the page of a run under way keeps of a long run: its shape, not its newest part alone."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from nonuniform.report.follow import (
    POINTS_FRESH,
    POINTS_KEPT,
    POINTS_RAW,
    Asked,
    Curve,
    Follower,
    thinned,
)
from nonuniform.report.run_data import StepPoint

LONG = 100_000
FAILED = tuple(range(777, LONG, 2_501))


def point(step: int, loss: float | None = None, degrees: tuple[int, ...] = (4, 4)) -> StepPoint:
    value = random.Random(step).random() if loss is None else loss
    return StepPoint(step, step * 0.2, value, 1.0, 768, 12, 1, degrees, (6, 6))


def row(one: StepPoint) -> str:
    said = {"step": one.step, "time_s": one.time_s, "loss": one.loss, "tokens": one.tokens}
    return json.dumps({**said, "degrees": one.degrees, "batch_shares": one.shares}) + "\n"


def long_run() -> list[StepPoint]:
    """One peak, one trough, one stretch at another degree."""
    odd = {31_234: 9.0, 67_891: -5.0}
    return [
        point(n, odd.get(n), (4, 3) if 20_003 <= n < 22_011 else (4, 4)) for n in range(1, LONG + 1)
    ]


class Page:
    """Does what the script of the page does with what it is told."""

    def __init__(self) -> None:
        self.asked = Asked()
        self.steps: list[int] = []
        self.marks: list[int] = []

    def hear(self, news: dict[str, Any]) -> None:
        if news["anew"]:
            self.steps, self.marks = [], []
        if news["kept"] is not None:
            kept = set(news["kept"])
            self.steps = [step for step in self.steps if step in kept]
        self.steps += [told[0] for told in news["points"]]
        self.marks += [mark[0] for mark in news["marks"] if mark[1] == "failed"]
        last = self.steps[-1] if self.steps else 0
        self.asked = Asked(last, news["told"], news["epoch"], news["thinned"])

    def ask(self, follower: Follower) -> None:
        for _ in range(1000):
            news = follower.news(self.asked)
            self.hear(news)
            if not news["more"]:
                return
        raise AssertionError("there is always more")


def tenths(steps: list[int]) -> list[int]:
    count = [0] * 10
    for step in steps:
        count[(step - 1) * 10 // LONG] += 1
    return count


def check(steps: list[int]) -> None:
    assert steps == sorted(set(steps))
    assert len(steps) <= POINTS_KEPT + POINTS_RAW
    assert min(tenths(steps)) >= len(steps) / 20, tenths(steps)
    assert {31_234, 67_891, 20_003, 22_011, LONG} <= set(steps)
    assert set(FAILED) <= set(steps)
    assert steps[-POINTS_FRESH:] == list(range(LONG - POINTS_FRESH + 1, LONG + 1))


def failure(step: int) -> str:
    return json.dumps({"time_s": step * 0.2, "kind": "failed", "gpu": "0/1", "step": step}) + "\n"


def test_an_open_page_keeps_the_shape_of_a_long_run(tmp_path: Path) -> None:
    """Open from the start, opened late, and of a server that starts late."""
    follower, page = Follower(tmp_path, LONG), Page()
    failed = set(FAILED)
    with (tmp_path / "steps.jsonl").open("w") as steps, (tmp_path / "events.jsonl").open("w") as ev:
        for one in long_run():
            if one.step in failed:
                ev.write(failure(one.step))
            steps.write(row(one))
            if one.step % 50 == 0:
                ev.flush()
                steps.flush()
                page.ask(follower)
    late, afresh = Page(), Page()
    late.ask(follower)
    afresh.ask(Follower(tmp_path, LONG))
    assert page.steps == late.steps
    for one_page in (page, late, afresh):
        check(one_page.steps)
        assert one_page.marks == list(FAILED)


@pytest.mark.parametrize("seed", range(20))
def test_thinning_in_parts_is_thinning_at_once(seed: int) -> None:
    rng = random.Random(seed)
    points = [
        point(n, None if rng.random() < 0.9 else 0.5) for n in range(1, rng.randint(200, 3000))
    ]
    pinned = frozenset(rng.sample(range(1, len(points) + 1), 10))
    width = 2 ** rng.randint(0, 6)
    cut = rng.randint(1, len(points))
    parts = thinned(points[:cut], width, pinned) + points[cut:]
    once = thinned(points, 4 * width, pinned)
    assert thinned(thinned(parts, width, pinned), 4 * width, pinned) == once
    assert thinned(once, 4 * width, pinned) == once


def test_of_each_stretch_the_lowest_and_the_highest_stay() -> None:
    points = [point(n) for n in range(1, 5001)]
    kept = {one.step for one in thinned(points, 100, {4242})}
    for start in range(0, 5000, 100):
        stretch = [one for one in points if one.step // 100 == start // 100]
        assert min(stretch, key=lambda one: one.loss or 0.0).step in kept
        assert max(stretch, key=lambda one: one.loss or 0.0).step in kept
    assert 4242 in kept
    assert len(kept) <= 2 * 51 + 2 + POINTS_FRESH


def test_what_is_kept_is_bounded_whatever_happens() -> None:
    """Also if the degrees change with every step."""
    curve = Curve()
    for n in range(1, 30_001):
        curve.add([point(n, degrees=(4, n % 2))])
        assert len(curve.points) <= POINTS_KEPT + POINTS_RAW + 1
    assert curve.points[0].step == 1


def test_steps_without_a_loss_do_no_harm() -> None:
    points = [StepPoint(n, 1.0, None, None, 0, 0, 1, (4,), (1,)) for n in range(1, 500)]
    assert [one.step for one in thinned(points, 8, {7})][:2] == [1, 7]
