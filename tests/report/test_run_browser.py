"""The pages of runs in a real browser: no script error, nothing asked of the network, charts drawn.

Skipped where there is no Chromium with its driver, unless CI_BROWSER=1. Screenshots are kept in
`$NONUNIFORM_SCREENSHOTS`, or else in the folder of the test.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nonuniform.report.command import report
from nonuniform.report.dashboard import open_dashboard

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
BOUND_S = 40.0
HURT = '<img src=x onerror="window.hurt=1"></script><script>window.hurt=2</script>'
PLACED = {"placement": {"0": ["0/0", "0/1"], "1": ["1/0", "1/1"]}, "spares": []}
PARTS = {"detect_s": 0.05, "regroup_s": 0.1, "transfer_s": 0.3, "redo_s": 0.8, "total_s": 1.25}
SIZES = {"desktop": (1200, 900), "phone": (390, 844)}


@pytest.fixture(scope="module")
def chrome() -> Iterator[Any]:
    try:
        from selenium import webdriver
        from selenium.webdriver.chrome.service import Service
    except ImportError:
        return missing("selenium is not installed")
    if not (CHROMIUM and DRIVER):
        return missing("there is no Chromium with its chromedriver")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    driver.set_page_load_timeout(BOUND_S)
    driver.set_script_timeout(BOUND_S)
    yield driver
    driver.quit()


def missing(what: str) -> None:
    if os.environ.get("CI_BROWSER") == "1":
        pytest.fail(f"CI_BROWSER=1, but {what}")
    pytest.skip(what)


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    folder = Path(os.environ.get("NONUNIFORM_SCREENSHOTS", tmp_path))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def rows_of(steps: int) -> tuple[str, str]:
    logged = [
        {"step": n, "loss": 5.0 / n, "tokens": 768, "samples": 12, "grad_norm": 1.0,
         "generation": 1, "degrees": [2, 2 if n < 3 else 1], "batch_shares": [6, 6],
         "time_s": 1.0 + n, "power_w": [700.0, 650.0 + n]}
        for n in range(1, steps + 1)
    ]  # fmt: skip
    told = [
        {"time_s": 1.0, "kind": "generation", "step": 0, "generation": 1, **PLACED},
        {"time_s": 3.5, "kind": "failed", "gpu": "1/1", "step": 3, "reason": HURT},
        {"time_s": 4.01, "kind": "recovery", "gpu": "1/1", "step": 3, "generation": 2, **PARTS},
    ]
    both = ["".join(json.dumps(row) + "\n" for row in rows) for rows in (logged, told)]
    return both[0], both[1]


def make_run(path: Path, steps: int = 8) -> Path:
    path.mkdir(parents=True)
    for name, text in zip(("steps.jsonl", "events.jsonl"), rows_of(steps), strict=True):
        (path / name).write_text(text)
    return path


def wait(what: str, look: Callable[[], Any], bound_s: float = BOUND_S) -> Any:
    limit_s = time.monotonic() + bound_s
    while time.monotonic() < limit_s:
        if found := look():
            return found
        time.sleep(0.1)
    raise AssertionError(f"no {what} within {bound_s:g} s")


def charts_drawn(chrome: Any) -> list[str]:
    """Those that are shown and hold a drawing."""
    return list(
        chrome.execute_script(
            "return [...document.querySelectorAll('.plot')]"
            ".filter(p => p.offsetParent)"
            ".filter(p => p.querySelector('.scatterlayer .trace path, .barlayer path'))"
            ".map(p => p.id)"
        )
    )


def complaints(chrome: Any) -> list[str]:
    return [entry["message"] for entry in chrome.get_log("browser") if entry["level"] == "SEVERE"]


def requests(chrome: Any) -> list[str]:
    """Every address that was asked since the last look."""
    messages = [json.loads(entry["message"])["message"] for entry in chrome.get_log("performance")]
    return [
        message["params"]["request"]["url"]
        for message in messages
        if message["method"] == "Network.requestWillBeSent"
    ]


def shoot(chrome: Any, path: Path) -> None:
    """The whole page; none of it may be wider than the window."""
    width, height = chrome.execute_script(
        "return [document.documentElement.scrollWidth, document.documentElement.scrollHeight]"
    )
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    chrome.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    chrome.save_screenshot(str(path))
    chrome.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert path.stat().st_size > 10_000


@pytest.mark.parametrize("lang", ["en", "ja"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("several", [False, True], ids=["run", "comparison"])
def test_a_page_opens_by_itself(
    chrome: Any, tmp_path: Path, pictures: Path, lang: str, size: str, several: bool
) -> None:
    runs = [make_run(tmp_path / "a<b>&c"), make_run(tmp_path / "second", 5)]
    page = report(runs if several else runs[:1], lang)
    chrome.set_window_size(*SIZES[size])
    requests(chrome), complaints(chrome)
    chrome.get(page.as_uri())
    expected = 2 if several else 6
    wait("charts", lambda: len(charts_drawn(chrome)) == expected)
    shoot(chrome, pictures / f"{'comparison' if several else 'run'}-{lang}-{size}.png")
    assert complaints(chrome) == []
    assert requests(chrome) == [page.as_uri()]
    assert chrome.execute_script("return window.hurt") is None
    shown = chrome.execute_script("return document.body.innerText")
    assert "a<b>&c" in shown
    assert several or HURT[:20] in shown


def test_keys_switch_the_language_and_open_the_tables(chrome: Any, tmp_path: Path) -> None:
    from selenium.webdriver.common.by import By

    chrome.get(report([make_run(tmp_path / "run")]).as_uri())
    wait("charts", lambda: charts_drawn(chrome))
    body = chrome.find_element(By.TAG_NAME, "body")
    assert "Where the time went" in body.text
    body.send_keys("l")
    assert "時間の内訳" in body.text
    assert "Where the time went" not in body.text
    assert chrome.title.startswith("学習の実行")
    body.send_keys("t")
    assert chrome.execute_script("return document.querySelectorAll('details[open]').length") == 6
    body.send_keys("l")
    assert "Where the time went" in body.text
    assert complaints(chrome) == []


def test_on_paper(chrome: Any, tmp_path: Path, pictures: Path) -> None:
    import base64

    chrome.get(report([make_run(tmp_path / "run")]).as_uri())
    wait("charts", lambda: charts_drawn(chrome))
    printed = base64.b64decode(chrome.print_page())
    (pictures / "run-print.pdf").write_bytes(printed)
    assert printed.startswith(b"%PDF")
    assert complaints(chrome) == []


def test_the_live_page_follows_its_run(chrome: Any, tmp_path: Path, pictures: Path) -> None:
    """Only its own server is asked; what is added is shown; the end is told."""
    run = tmp_path / "run"
    run.mkdir()
    steps, events = rows_of(9)
    chrome.set_window_size(*SIZES["desktop"])
    requests(chrome), complaints(chrome)
    with open_dashboard("0", run, planned=30) as board:
        chrome.get(board.url)
        (run / "steps.jsonl").write_text("".join(steps.splitlines(True)[:2]))
        (run / "events.jsonl").write_text(events.splitlines(True)[0])
        wait("step 2", lambda: text_of(chrome, "live-step") == "2 / 30")
        with (run / "steps.jsonl").open("a") as more:
            more.write("".join(steps.splitlines(True)[2:]))
        with (run / "events.jsonl").open("a") as more:
            more.write("".join(events.splitlines(True)[1:]))
        wait("step 9", lambda: text_of(chrome, "live-step") == "9 / 30")
        wait("charts", lambda: len(charts_drawn(chrome)) == 3)
        shown = chrome.execute_script("return document.body.innerText")
        assert HURT in shown
        assert "noticed 0.05 s" in shown
        lost = "return document.querySelector('#live-gpus .failed').firstChild.textContent"
        assert chrome.execute_script(lost) == "1/1"
        shoot(chrome, pictures / "live-en-desktop.png")
        chrome.execute_script("window.nonuniform.setLanguage('ja')")
        shoot(chrome, pictures / "live-ja-desktop.png")
        (run / "summary.json").write_text(json.dumps({"status": "failed", "reason": HURT}))
        wait("the end", lambda: HURT in text_of(chrome, "live-state"))
    assert complaints(chrome) == []
    assert chrome.execute_script("return window.hurt") is None
    assert all(url.startswith(board.url) for url in requests(chrome))


def text_of(chrome: Any, name: str) -> str:
    return str(chrome.execute_script(f"return document.getElementById('{name}').innerText"))


TRAIN = """
import sys
from pathlib import Path
from nonuniform.config import load_job, parse_schedule
from nonuniform.report.dashboard import open_dashboard

if __name__ == "__main__":
    from nonuniform.train import run

    job = load_job(Path(sys.argv[1]), {})
    schedule = parse_schedule(["gpu=1/1@step=5"], ["gpu=1/1@step=10"], job, [])
    with open_dashboard("0", Path(sys.argv[2]), job.run.steps) as board:
        print(board.url, flush=True)
        run.train(job, Path(sys.argv[2]), schedule)
"""
JOB = """
model = { layers = 1, hidden = 48, heads = 4, kv_heads = 2, ffn = 128 }
parallel = { replicas = 2, degree = 2, min_degree = 1 }
batch = { sequences = 4, length = 32 }
run = { steps = 400, hang_timeout_s = 60 }
"""


def test_a_real_run_is_watched_to_its_end(chrome: Any, tmp_path: Path) -> None:
    """Its server is gone after it; the page says how the run ended; the report adds up."""
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "JOB.toml").write_text(JOB)
    arguments = [str(tmp_path / name) for name in ("train.py", "JOB.toml", "run")]
    run = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.PIPE, text=True)
    try:
        assert run.stdout is not None
        chrome.get(run.stdout.readline().strip())
        wait("a loss", lambda: "GPU lost" in text_of(chrome, "live-events"))
        wait("a return", lambda: "GPU joined" in text_of(chrome, "live-events"))
        assert run.wait(2 * BOUND_S) == 0
        wait("the end", lambda: text_of(chrome, "live-state").startswith("done"))
    finally:
        run.kill()
        run.wait()
        assert run.stdout is not None
        run.stdout.close()
    report([tmp_path / "run"])
    numbers = json.loads((tmp_path / "run" / "report.json").read_text())
    assert numbers["steps"]["value"] == 400
    total_s = sum(one["seconds"]["value"] for one in numbers["goodput"].values())
    assert total_s == pytest.approx(numbers["time"]["value"])
