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
