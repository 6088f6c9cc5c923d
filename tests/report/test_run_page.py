"""The pages of runs: their numbers are in the files beside them, and names are shown, not run."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nonuniform.errors import BadInput
from nonuniform.planner.policies import Transition
from nonuniform.planner.understood import transition_facts
from nonuniform.report.command import report
from nonuniform.report.figures import at
from nonuniform.report.run_charts import POINTS, changes, thinned
from nonuniform.report.run_data import StepPoint
from nonuniform.report.simulation_page import simulation_content

Row = dict[str, Any]
HURT = '<img src=x onerror="window.hurt=1"></script><script>window.hurt=2</script>'
PLACED = {"placement": {"0": ["0/0", "0/1"], "1": ["1/0", "1/1"]}, "spares": []}
PARTS = {"detect_s": 0.05, "regroup_s": 0.1, "transfer_s": 0.3, "redo_s": 0.8, "total_s": 1.25}
JAPANESE = re.compile("[\u3040-\u30ff\u4e00-\u9fff]")
VOID = {"meta", "link", "br", "img", "input", "hr"}


class Page(HTMLParser):
    """What a browser would see: its figures by path, the tags, and whether all are closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.figures: list[tuple[str, str]] = []
        self.tags: list[str] = []
        self.open: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)
        path = dict(attrs).get("data-figure")
        if path:
            self.figures.append((path, ""))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> without a beginning"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.figures and not self.figures[-1][1] and data.strip():
            self.figures[-1] = (self.figures[-1][0], data.strip())


def make_run(path: Path, steps: int = 6, name: str = "killed", loss: float = 5.0) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    rows = [
        {"step": n, "loss": loss / n, "tokens": 768, "samples": 12, "grad_norm": 1.0,
         "generation": 1, "degrees": [2, 2 if n < 3 else 1], "batch_shares": [6, 6],
         "time_s": 1.0 + n}
        for n in range(1, steps + 1)
    ]  # fmt: skip
    events: list[Row] = [
        {"time_s": 1.0, "kind": "generation", "step": 0, "generation": 1, **PLACED},
        {"time_s": 3.5, "kind": "failed", "gpu": "1/1", "step": 3, "reason": name},
        {"time_s": 4.01, "kind": "recovery", "gpu": "1/1", "step": 3, "generation": 2, **PARTS},
    ]
    (path / "steps.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (path / "events.jsonl").write_text("".join(json.dumps(row) + "\n" for row in events))
    summary = {"status": "failed", "reason": name, "time_s": 2.0 + steps, "device": "cpu"}
    (path / "summary.json").write_text(json.dumps(summary))
    return path


@pytest.mark.parametrize("lang", ["en", "ja"])
def test_every_figure_of_the_page_is_in_the_file_beside_it(tmp_path: Path, lang: str) -> None:
    page = report([make_run(tmp_path / "run")], lang)
    assert page == tmp_path / "run" / "report.html"
    html, numbers = page.read_text(), json.loads((tmp_path / "run" / "report.json").read_text())
    parsed = Page(html)
    assert len(parsed.figures) > 30
    assert parsed.open == []
    for path, shown in parsed.figures:
        found = at(numbers, path)
        value = found["value"] if isinstance(found, dict) else found
        if value is not None:
            digits = re.sub(r"[^\d.]", "", shown)
            expected = value * (100 if isinstance(found, dict) and found["unit"] == "1" else 1)
            assert math.isclose(float(digits), expected, rel_tol=0.01, abs_tol=1e-6), path
    assert f'<html lang="{lang}"' in html
    assert page.stat().st_size < 8e6


def test_the_reasons_on_the_page_add_up(tmp_path: Path) -> None:
    report([make_run(tmp_path)])
    numbers = json.loads((tmp_path / "report.json").read_text())
    total_s = math.fsum(one["seconds"]["value"] for one in numbers["goodput"].values())
    assert total_s == pytest.approx(numbers["time"]["value"])
    assert math.fsum(one["share"]["value"] for one in numbers["goodput"].values()) == pytest.approx(
        1
    )
    frame = pl.read_csv(tmp_path / "tables" / "goodput.csv")
    assert frame["seconds"].sum() == pytest.approx(numbers["time"]["value"])


def test_the_tables_hold_the_same_as_csv_and_parquet(tmp_path: Path) -> None:
    report([make_run(tmp_path)])
    for name in ("steps", "events", "goodput", "gpus", "recoveries"):
        csv = pl.read_csv(tmp_path / "tables" / f"{name}.csv")
        parquet = pl.read_parquet(tmp_path / "tables" / f"{name}.parquet")
        assert csv.columns == parquet.columns
        assert len(csv) == len(parquet) > 0
    steps = pl.read_parquet(tmp_path / "tables" / "steps.parquet")
    assert steps["degree_1"].to_list() == [2, 2, 1, 1, 1, 1]


def test_words_from_a_run_are_shown_and_not_run(tmp_path: Path) -> None:
    run = make_run(tmp_path / "a<b>&amp;", name=HURT)
    pages = [report([run]), report([run, make_run(tmp_path / "other")])]
    for page in pages:
        html = page.read_text()
        parsed = Page(html)
        assert "<img" not in html
        assert "window.hurt=2</script>" not in html
        assert parsed.tags.count("img") == 0
        assert "a&lt;b&gt;&amp;amp;" in html
    assert "&lt;img src=x onerror=" in pages[0].read_text()
    mail = (run / "report.md").read_text()
    assert "<img" not in mail.replace("\\<img", "")


def test_a_cell_that_a_spreadsheet_would_run_is_words(tmp_path: Path) -> None:
    report([make_run(tmp_path, name='=HYPERLINK("http://x")')])
    assert (
        pl.read_csv(tmp_path / "tables" / "events.csv")["reason"][1] == '\'=HYPERLINK("http://x")'
    )
    assert pl.read_parquet(tmp_path / "tables" / "events.parquet")["reason"][1][0] == "="


def test_several_runs_are_compared_with_the_first(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / "one" / "run"), make_run(tmp_path / "two" / "run", 4, loss=5.5)]
    page = report(runs)
    assert page == runs[0] / "comparison.html"
    numbers = json.loads((runs[0] / "comparison.json").read_text())
    first, second = numbers["runs"]
    assert first["name"] != second["name"]
    assert first["loss_difference"]["value"] is None
    assert second["loss_difference"]["value"] == pytest.approx(0.5)
    frame = pl.read_parquet(runs[0] / "tables" / "comparison.parquet")
    assert frame["steps"].to_list() == [6, 4]
    assert len(Page(page.read_text()).figures) > 20


def on_device(path: Path, device: str | None) -> Path:
    """A run on it; None: without a summary."""
    run = make_run(path)
    summary = json.loads((run / "summary.json").read_text()) | {"device": device}
    (run / "summary.json").write_text(json.dumps(summary))
    if device is None:
        (run / "summary.json").unlink()
    return run


@pytest.mark.parametrize(
    ("device", "label"),
    [("cuda", "measured"), ("cpu", "emulated"), (None, "kind not known")],
)
def test_a_run_is_labelled_by_the_device_that_its_summary_names(
    tmp_path: Path, device: str | None, label: str
) -> None:
    html = report([on_device(tmp_path, device)]).read_text()
    labels = re.findall(r'<span class="kind[^>]*>(?:<span lang="en">)?([^<]+)', html)
    assert set(labels) & {"measured", "emulated", "kind not known"} == {label}
    assert ("Emulated:" in html) == (device == "cpu")
    assert ("Not known: whether GPUs" in html) == (device is None)


def test_a_comparison_says_which_run_a_notice_is_about(tmp_path: Path) -> None:
    devices = {"first": "cuda", "second": "cpu", "third": None, "fourth": "cpu"}
    runs = [on_device(tmp_path / name, device) for name, device in devices.items()]
    report(runs)
    mail = (runs[0] / "comparison.md").read_text()
    notices = [line[2:] for line in mail.splitlines() if line.startswith("> ")]
    assert [notice.split(":")[:2] for notice in notices] == [
        ["second, fourth", " Emulated"],
        ["third", " This run has not ended, or its launcher was lost"],
        ["third", " Not known"],
    ]
    (chart,) = set(
        re.findall(r'<span class="kind"><span lang="en">([^<]+)', report(runs).read_text())
    )
    assert chart == "kind not known"


@pytest.mark.parametrize("events", [True, False])
def test_a_run_that_has_hardly_begun_has_a_page(tmp_path: Path, events: bool) -> None:
    (tmp_path / "steps.jsonl").write_text('{"step": 1, "los')
    if events:
        (tmp_path / "events.jsonl").write_text("")
    html = report([tmp_path]).read_text()
    assert "This run has not ended" in html
    assert "No step was committed" in html


def simulated(understood: list[Row]) -> Row:
    hours = dict.fromkeys(("failed", "idled", "transition", "redone", "spare"), 10.0)
    policy = {
        "throughput_mean": 0.9, "throughput_worst": 0.8, "throughput_owned": 0.9, "loss_mean": 0.1,
        "loss_ci95": [0.09, 0.11], "amplification": None, "gpu_hours": hours,
        "spares_domains": {"p50": 1, "p95": 2, "p100": None},
    }  # fmt: skip
    return {
        "command": "simulate", "version": "0", "status": "done", "seeds": 3, "hours": 24.0,
        "failed_share_mean": 0.001, "understood": understood,
        "policies": {HURT: policy, "b": {**policy, "loss_mean": 0.2, "loss_ci95": None}},
    }  # fmt: skip


def test_a_simulation_has_a_page(tmp_path: Path) -> None:
    summary = simulated([{"about": HURT, "text": "t", "assumed": True}])
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    html = report([tmp_path]).read_text()
    assert "<img" not in html
    for path, _ in Page(html).figures:
        at(summary, path)


def test_every_result_of_a_simulation_is_labelled_as_one(tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_text(json.dumps(simulated([])))
    html = report([tmp_path]).read_text()
    figures = html.split('<span class="figure ')[1:]
    unlabelled = {
        re.findall(r'data-figure="(.*?)"', figure)[0]
        for figure in figures
        if "kind-simulated" not in figure and 'class="value">\u2013<' not in figure
    }
    assert len(figures) > 50
    assert unlabelled == {"seeds", "hours"}  # what was asked for, no results


def test_what_a_simulation_understood_is_said_in_japanese() -> None:
    facts = transition_facts(Transition(), False, False, False)
    content = simulation_content(simulated([*facts, {"about": HURT, "text": "my-job"}]), Path())
    (table,) = content.tables
    *ours, theirs = [[cell.text("ja") for cell in row[:2]] for row in table.rows]
    assert len(ours) == len(facts) > 3
    assert [words for row in ours for words in row if not JAPANESE.search(words)] == []
    assert theirs == [HURT, "my-job"]
    assert [row[1].text("en") for row in table.rows[:-1]] == [fact["text"] for fact in facts]


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda path: path / "absent", "no such folder"),
        (lambda path: path, r"holds no summary\.json and no steps\.jsonl"),
        (lambda path: write(path, "{"), "not JSON"),
        (lambda path: write(path, "[1]"), "expected a table, found list"),
        (lambda path: write(path, "{}"), "neither that of a plan, nor of a simulation"),
        (lambda path: write(path, "{}") / "summary.json", "is not a folder"),
    ],
)
def test_what_is_no_result_is_bad_input(
    tmp_path: Path, make: Callable[[Path], Path], says: str
) -> None:
    with pytest.raises(BadInput, match=says) as told:
        report([make(tmp_path)])
    assert "\n" not in str(told.value)


def write(path: Path, text: str) -> Path:
    (path / "summary.json").write_text(text)
    return path


def test_other_bad_input_of_the_command(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    with pytest.raises(BadInput, match="--lang de: expected en or ja"):
        report([run], "de")
    simulation = tmp_path / "sim"
    simulation.mkdir()
    write(simulation, '{"command": "simulate"}')
    with pytest.raises(BadInput, match="sim: is a simulation; only training runs"):
        report([run, simulation])
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="file"):
        report([run], out=tmp_path / "file")


def test_a_page_is_there_as_a_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = report([make_run(tmp_path)])
    before = page.read_bytes()

    def full(path: Path, content: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(BadInput, match="No space left on device"):
        report([tmp_path])
    assert page.read_bytes() == before


losses = st.lists(st.floats(0, 10) | st.none(), min_size=1, max_size=300)


@given(losses, st.integers(8, 50))
def test_thinning_keeps_peaks_and_the_end(found: list[float | None], count: int) -> None:
    points = [point(number, loss) for number, loss in enumerate(found)]
    kept = thinned(points, count)
    assert len(kept) <= count + 1
    assert kept[-1] is points[-1]
    known = [one.loss or 0.0 for one in points]
    assert {min(known), max(known)} <= {one.loss or 0.0 for one in kept}
    assert [one.step for one in kept] == sorted({one.step for one in kept})


@given(st.lists(st.integers(1, 3), min_size=1, max_size=50))
def test_a_stair_is_whole_with_its_changes_alone(degrees: list[int]) -> None:
    points = [point(number, 1.0, (degree,)) for number, degree in enumerate(degrees)]
    kept = {one.step: one.degrees[0] for one in changes(points, "degrees")}
    level, again = 0, []
    for number in range(len(degrees)):
        level = kept.get(number, level)
        again.append(level)
    assert again == degrees


def point(number: int, loss: float | None, degrees: tuple[int, ...] = (4,)) -> StepPoint:
    return StepPoint(number, float(number), loss, 1.0, 1, 1, 1, degrees, (1,))


def test_a_long_run_stays_small(tmp_path: Path) -> None:
    page = report([make_run(tmp_path, steps=30_000)])
    assert page.stat().st_size < 6e6
    assert f"{POINTS}" in page.read_text()
