"""The page of a run under way in a real browser: after a rewind, with another run on the same port,
and after the end. Skipped where there is no Chromium with its driver, unless CI_BROWSER=1."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from nonuniform.report.dashboard import open_dashboard

from .test_run_browser import chrome as a_chrome
from .test_run_browser import complaints, requests, text_of, wait

chrome = a_chrome
PLOTTED = (
    "return [...(document.getElementById('chart-live-' + arguments[0]).data?.[0]?.[arguments[1]]"
    " ?? [])]"
)


def step(number: int, start_s: float = 0.0, degrees: tuple[int, ...] = (4, 4)) -> str:
    row = {"step": number, "loss": 5.0 / number, "tokens": 768, "time_s": start_s + number}
    return json.dumps({**row, "degrees": degrees, "batch_shares": [6, 6]}) + "\n"


def steps(
    last: int, first: int = 1, start_s: float = 0.0, degrees: tuple[int, ...] = (4, 4)
) -> str:
    return "".join(step(n, start_s, degrees) for n in range(first, last + 1))


def make(path: Path, log: str) -> Path:
    path.mkdir()
    (path / "steps.jsonl").write_text(log)
    (path / "events.jsonl").write_text("")
    return path


def plotted(chrome: Any, chart: str = "loss", axis: str = "x") -> list[float]:
    return list(chrome.execute_script(PLOTTED, chart, axis))


@pytest.fixture
def port() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        number = free.getsockname()[1]
    return str(number)


def test_steps_that_are_done_again_appear(chrome: Any, tmp_path: Path) -> None:
    """Back to the very start, where for a while there is no step at all, and then half way."""
    run = make(tmp_path / "run", steps(40))
    with open_dashboard("0", run, planned=50) as board:
        chrome.get(board.url)
        wait("step 40", lambda: plotted(chrome) == list(range(1, 41)))
        (run / "steps.jsonl").write_text("")
        wait(
            "nothing", lambda: plotted(chrome) == [] and not text_of(chrome, "live-step").isascii()
        )
        (run / "steps.jsonl").write_text(steps(5, start_s=100))
        wait("step 5", lambda: plotted(chrome) == [1, 2, 3, 4, 5])
        assert text_of(chrome, "live-step") == "5 / 50"
        assert text_of(chrome, "live-time") == "105.0 s"
        (run / "steps.jsonl").write_text(steps(3, start_s=100) + steps(4, first=4, start_s=200))
        wait("step 4 again", lambda: text_of(chrome, "live-time") == "204.0 s")
        assert plotted(chrome) == [1, 2, 3, 4]


def test_a_page_that_stays_open_shows_the_next_run_alone(
    chrome: Any, tmp_path: Path, port: str
) -> None:
    """The run before was lost without a word of its end."""
    one, other = make(tmp_path / "one", steps(40)), make(tmp_path / "other", "")
    (other / "steps.jsonl").write_text(steps(60, degrees=(8, 8)))
    with open_dashboard(port, one, planned=50) as board:
        chrome.get(board.url)
        wait("step 40", lambda: text_of(chrome, "live-step") == "40 / 50")
        assert chrome.title == "one, live"
    with open_dashboard(port, other, planned=60):
        wait("step 60", lambda: text_of(chrome, "live-step") == "60 / 60")
        assert plotted(chrome) == list(range(1, 61))
        assert set(plotted(chrome, "degrees", "y")) == {8}
        heading = chrome.execute_script("return document.querySelector('h1').innerText")
        assert (chrome.title, heading) == ("other, live", "other, live")
        chrome.execute_script("window.nonuniform.setLanguage('ja')")
        assert "other" in chrome.title
        chrome.execute_script("window.nonuniform.setLanguage('en')")


def test_a_page_that_has_heard_the_end_stays_with_its_run(
    chrome: Any, tmp_path: Path, port: str
) -> None:
    one = make(tmp_path / "one", steps(40))
    other = make(tmp_path / "other", steps(60))
    with open_dashboard(port, one, planned=40) as board:
        chrome.get(board.url)
        wait("step 40", lambda: text_of(chrome, "live-step") == "40 / 40")
        (one / "summary.json").write_text('{"status": "done"}')
        wait("the end", lambda: text_of(chrome, "live-state") == "done")
        requests(chrome), complaints(chrome)
    with open_dashboard(port, other, planned=60):
        time.sleep(3.0)
        assert requests(chrome) == []
    assert text_of(chrome, "live-step") == "40 / 40"
    assert text_of(chrome, "live-state") == "done"
    assert chrome.title == "one, live"
    assert complaints(chrome) == []


UNNAMED = """
const name = (element) => element.getAttribute("aria-label") || element.textContent.trim();
return [...document.querySelectorAll("[tabindex='0'], [role=region], [role=img], summary")]
  .filter((element) => !name(element) || (element.tabIndex === 0 && element.tagName === "DIV"
    && element.getAttribute("role") !== "region"))
  .map((element) => element.outerHTML.slice(0, 80));
"""
WATCH_CHANGES = """
window.changes = 0;
const watch = new MutationObserver((list) => { window.changes += list.length; });
for (const name of ["live-replicas", "live-gpus", "numbers-live-degrees", "alt-live-loss"])
  watch.observe(document.getElementById(name),
    { childList: true, subtree: true, attributes: true });
"""
OUTLINE = (
    "return [...document.querySelectorAll('h1,h2,h3')].map(h => h.tagName + ' ' + h.innerText)"
)
LABELS = "return [...document.querySelectorAll('figure .kind')].map(kind => kind.innerText)"
ALT = "return document.getElementById('chart-live-loss').getAttribute('aria-label')"
ROWS = (
    "return [...document.querySelectorAll('#numbers-live-' + arguments[0] + ' tbody tr')]"
    ".map(row => [...row.children].map(cell => cell.textContent))"
)


def watched_run(path: Path) -> Path:
    run = make(path, steps(4) + steps(6, first=5, degrees=(4, 3)))
    placed = {"placement": {"0": ["0/0"], "1": ["1/0", "1/1"]}, "spares": []}
    told = [
        {"time_s": 1.0, "kind": "generation", "step": 0, "generation": 1, **placed},
        {"time_s": 5.0, "kind": "failed", "gpu": "1/1", "step": 5, "reason": "gone"},
    ]
    (run / "events.jsonl").write_text("".join(json.dumps(row) + "\n" for row in told))
    return run


def test_the_charts_are_there_in_words_and_numbers(chrome: Any, tmp_path: Path) -> None:
    run = watched_run(tmp_path / "run")
    with open_dashboard("0", run, planned=50) as board:
        complaints(chrome)
        chrome.get(board.url)
        wait("step 6", lambda: len(plotted(chrome)) == 6)
        assert chrome.execute_script(UNNAMED) == []
        alt = chrome.execute_script(ALT)
        assert "up to step 6, where it is 0.8333" in alt
        assert "Lowest: 0.8333; highest: 5.0000. GPUs lost: 1; joined: 0." in alt
        assert alt in text_of(chrome, "main")
        chrome.execute_script(
            "document.querySelectorAll('details').forEach(d => { d.open = true })"
        )
        wait("rows", lambda: chrome.execute_script(ROWS, "degrees"))
        rows = chrome.execute_script(ROWS, "degrees")
        assert rows == [["1", "4", "4"], ["5", "4", "3"], ["6", "4", "3"]]
        assert chrome.execute_script(ROWS, "loss")[-1] == ["6", "6.00", "0.8333"]
        outline = chrome.execute_script(OUTLINE)
        assert outline[1:4] == [
            "H2 GPUs now",
            "H2 What happened",
            "H3 Training loss kind not known",
        ]
        chrome.execute_script("window.nonuniform.setLanguage('ja')")
        assert "ステップ 6" in chrome.execute_script(ALT)
        chrome.execute_script("window.nonuniform.setLanguage('en')")
    assert complaints(chrome) == []


def test_what_did_not_change_is_left_alone(chrome: Any, tmp_path: Path) -> None:
    run = watched_run(tmp_path / "run")
    with open_dashboard("0", run, planned=50) as board:
        chrome.get(board.url)
        wait("step 6", lambda: len(plotted(chrome)) == 6)
        chrome.execute_script(
            "document.querySelectorAll('details').forEach(d => { d.open = true })"
        )
        wait("rows", lambda: chrome.execute_script(ROWS, "degrees"))
        chrome.execute_script(WATCH_CHANGES)
        requests(chrome)
        time.sleep(3.0)
        assert len(requests(chrome)) >= 2
        assert chrome.execute_script("return window.changes") == 0


def test_the_page_says_what_its_numbers_are(chrome: Any, tmp_path: Path) -> None:
    """Not known until the files name the device."""
    run = watched_run(tmp_path / "run")
    with open_dashboard("0", run, planned=50) as board:
        chrome.get(board.url)
        wait("labels", lambda: chrome.execute_script(LABELS)[:2] == ["kind not known"] * 2)
        assert "processes that play them" in text_of(chrome, "live-kind")
        (run / "summary.json").write_text('{"status": "done", "device": "cpu"}')
        wait("labels", lambda: chrome.execute_script(LABELS)[:2] == ["emulated"] * 2)
        assert text_of(chrome, "live-kind").startswith("Emulated")


def test_without_scripts_the_page_promises_nothing(chrome: Any, tmp_path: Path) -> None:
    with open_dashboard("0", make(tmp_path / "run", steps(2))) as board:
        chrome.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
        try:
            chrome.get(board.url)
            shown = chrome.find_element("tag name", "body").text
        finally:
            chrome.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    assert "shows nothing without it" in shown
    assert "hold the same numbers" not in shown
