"""Logs of which nobody said how to read them, and what is drawn from them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nonuniform.cluster.fleet import Fleet
from nonuniform.cluster.sources.catalog import load_catalog
from nonuniform.cluster.sources.generate import generate
from nonuniform.errors import BadInput
from nonuniform.planner.example_log import FLEET as CLUSTER
from nonuniform.planner.example_log import MARK, example_log
from nonuniform.planner.failures import causes_of_trace, now_figure, repair_samples
from nonuniform.planner.logs import find_log

FLEET = Fleet(1024, 32, 8)
EXAMPLE = Path(__file__).parents[2] / "examples" / "faults.csv"
TRACE = Path(__file__).parents[3] / "shared" / "data" / "failures" / "fault_intervals_paired.csv"


def log(folder: Path, text: str, name: str = "faults.csv") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_the_example_is_read_back_and_says_what_it_is() -> None:
    assert EXAMPLE.stat().st_size < 300_000
    assert EXAMPLE.read_text() == example_log(CLUSTER)
    found = find_log(EXAMPLE, CLUSTER)
    assert found.example
    assert len(found.trace) == len(EXAMPLE.read_text().splitlines()) - 1
    assert found.trace.hours == pytest.approx(90 * 24, abs=1)


def test_the_example_has_the_rates_that_it_was_drawn_from() -> None:
    fleet = CLUSTER
    found = find_log(EXAMPLE, fleet)
    published = sum(c.failures_per_day(fleet) for c in load_catalog("llama3").causes)
    drawn = sum(c.failures_per_day(fleet) for c in causes_of_trace(found.trace, fleet))
    assert drawn == pytest.approx(published, rel=0.1)  # 700 failures: 3.8 % a standard deviation
    single = next(c for c in causes_of_trace(found.trace, fleet) if c.blast_gpus == 1)
    mean_h = np.average(
        [c.repair.mean_h for c in load_catalog("llama3").causes if c.mean_block(fleet) == 1],
        weights=[c.rate_per_day for c in load_catalog("llama3").causes if c.mean_block(fleet) == 1],
    )
    assert single.repair.mean_h == pytest.approx(mean_h, rel=0.05)


def test_columns_and_units_are_told_by_their_names(tmp_path: Path) -> None:
    text = "hostname;start_h;end_h;reason\nn7;1;5;ECC\nn3;2;26;NIC\n"
    found = find_log(log(tmp_path, text), FLEET)
    assert found.trace.first_gpu.tolist() == [56, 24]
    assert found.trace.gpus.tolist() == [8, 8]
    assert (found.trace.end_h - found.trace.start_h).tolist() == [4, 24]
    assert not found.example
    guessed = {fact["name"] for fact in found.facts if fact["assumed"]}
    assert {"columns", "clock", "nodes", "extent"} <= guessed


def test_names_without_numbers_are_scattered(tmp_path: Path) -> None:
    found = find_log(log(tmp_path, "node,start,end\nalpha,2026-01-01,2026-01-02\n"), FLEET)
    assert found.form.nodes.order == "random"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "empty|no columns"),
        ("when,what\n1,2\n", "no columns that say what failed"),
        ("node,start\nn1,2026-01-01\n", "no column that says when a failure ended"),
        ("node,start,end\nn1,yesterday,today\n", "bad time"),
        ("node,start,end\nn1,2026-01-02,2026-01-01\n", "faults.csv"),
        ("node,gpu,start,end\nn1,9,2026-01-01,2026-01-02\n", "unknown GPU"),
        ("node,start_day,end_h\nn1,5,6\n", "different units"),
        ("node,start_day,end\nn1,5,6\n", "different units"),
        ("node,start,end\nn1,2026-01-01,2026-01-01\n", "covers .* h, which tells no rate"),
    ],
)
def test_a_log_that_makes_no_sense_is_one_line(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(BadInput, match=words) as caught:
        find_log(log(tmp_path, text), FLEET)
    assert "\n" not in str(caught.value)
    assert "faults.csv" in str(caught.value)


def test_a_kernel_log_is_known_by_what_is_in_it(tmp_path: Path) -> None:
    lines = "".join(
        f"2026-03-0{day}T10:00:00Z node{day} kernel: NVRM: Xid (PCI:0000:3b:00): 79, x\n"
        for day in (1, 4)
    )
    found = find_log(log(tmp_path, lines, "kern.log"), FLEET)
    assert found.form.format == "xid"
    assert len(found.trace) == 2


@given(
    st.lists(st.tuples(st.floats(0.01, 500), st.booleans()), min_size=1, max_size=60),
)
def test_repairs_that_were_not_seen_to_end_make_none_shorter(
    rows: list[tuple[float, bool]],
) -> None:
    lasts = np.array([hours for hours, _ in rows])
    seen = np.array([ended for _, ended in rows])
    found = np.array(repair_samples(lasts, seen))
    assert lasts.min() <= found.min()
    assert found.max() <= lasts.max()
    assert found.mean() >= lasts.mean() * 0.98 - 0.01


def test_censored_repairs_are_made_whole() -> None:
    """Repairs of 48 h mean, watched for at most 60 h: the plain mean is far too short."""
    random = np.random.default_rng(1)
    whole, watched = random.exponential(48, 4000), random.uniform(0, 200, 4000)
    lasts, seen = np.minimum(whole, watched), whole <= watched
    found = np.array(repair_samples(lasts, seen)).mean()
    assert lasts.mean() < 42
    assert found == pytest.approx(48, rel=0.05)


def test_now_is_where_the_log_ends() -> None:
    trace = generate(FLEET, load_catalog("llama3").causes, 24 * 30, 3, steady_start=True)
    alive_to_end = (trace.end_h >= trace.hours) & (trace.first_gpu < FLEET.in_domains)
    down = set[int]()
    for first, gpus in zip(trace.first_gpu[alive_to_end], trace.gpus[alive_to_end], strict=True):
        down |= set(range(int(first), int(first + gpus)))
    assert now_figure(trace, FLEET).value == pytest.approx(len(down) / FLEET.in_domains)


def test_the_mark_is_in_the_first_row_only() -> None:
    text = example_log(FLEET, days=10)
    assert text.count(MARK) == 1
    assert MARK in text.splitlines()[1]


@pytest.mark.skipif(not TRACE.exists(), reason="the published trace is not here")
def test_the_production_trace_is_read_without_a_word() -> None:
    fleet = Fleet(3200, 32, 8)
    found = find_log(TRACE, fleet)
    assert len(found.trace) > 570
    assert found.trace.hours / 24 == pytest.approx(345, abs=2)
    drawn = sum(c.failures_per_day(fleet) for c in causes_of_trace(found.trace, fleet))
    assert drawn == pytest.approx(584 / 345, rel=0.03)
