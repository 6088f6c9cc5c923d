"""The page of a plan in a real browser: headless Chromium, driven by selenium.

Selenium, since it drives the Chromium and chromedriver that a system already has; playwright would
download browsers of its own. Without them these tests are skipped, unless CI_BROWSER=1. Screenshots
go to $NONUNIFORM_SCREENSHOTS, or to pytest's temporary folder.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nonuniform.report.plan_page import plan_html

Build = Callable[..., dict[str, Any]]
CHARTS = ("throughput", "heatmap", "year", "spares", "frontier", "map", "rack")
PHONE, DESKTOP, PAPER = 390, 1200, 688

MARKS = """
const plot = document.getElementById(arguments[0]);
return {
  svg: plot.querySelectorAll("svg.main-svg").length,
  marks: plot.querySelectorAll(
    ".scatterlayer .trace path, .scatterlayer .points path, .heatmaplayer image").length,
  words: [...plot.querySelectorAll("text")].map((text) => text.textContent).join(" "),
};
"""
# (ratio, words) of every visible text whose colour is too near to that of its ground.
PALE = """
const light = (colour) => {
  const part = colour.map((value) => value / 255).map(
    (value) => value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
  return 0.2126 * part[0] + 0.7152 * part[1] + 0.0722 * part[2];
};
const parse = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
const ground = (element) => {
  for (let at = element; at; at = at.parentElement) {
    const colour = parse(getComputedStyle(at).backgroundColor);
    if (colour.length === 3 || colour[3] === 1) return colour.slice(0, 3);
  }
  return [255, 255, 255];
};
const seen = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
const pale = [];
let count = 0;
while (seen.nextNode()) {
  const element = seen.currentNode.parentElement;
  if (!seen.currentNode.textContent.trim()) continue;
  if (element.closest("script, style, .heatmaplayer")) continue;
  if (!element.getClientRects().length) continue;
  const style = getComputedStyle(element);
  const svg = element instanceof SVGElement;
  const ink = parse(svg ? style.fill : style.color).slice(0, 3);
  const [low, high] = [light(ink), light(ground(element))].sort((a, b) => a - b);
  const ratio = (high + 0.05) / (low + 0.05);
  count += 1;
  if (ratio < 4.5) pale.push([ratio, seen.currentNode.textContent.trim().slice(0, 40)]);
}
return { count, pale };
"""
UNNAMED = """
const bad = [];
const name = (element) => element.getAttribute("aria-label") || element.textContent.trim();
document.querySelectorAll("[role=img], [role=region], button, a, summary").forEach((element) => {
  if (!name(element)) bad.push(element.outerHTML.slice(0, 80));
});
document.querySelectorAll("table").forEach((table) => {
  if (!table.caption) bad.push("a table without caption");
  table.querySelectorAll("th").forEach((th) => { if (!th.scope) bad.push("th without scope"); });
});
document.querySelectorAll("figure.chart").forEach((figure) => {
  if (!figure.querySelector("table")) bad.push("a chart without a table");
});
let last = 0;
document.querySelectorAll("h1, h2, h3").forEach((heading) => {
  const level = Number(heading.tagName[1]);
  if (level > last + 1) bad.push("a heading is left out before " + heading.textContent);
  last = level;
});
return bad;
"""


class Browser:
    """What the tests ask of a driver."""

    def __init__(self, driver: Any, folder: Path) -> None:
        self.driver = driver
        self.folder = folder

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def command(self, name: str, **arguments: Any) -> Any:
        return self.driver.execute_cdp_cmd(name, arguments)

    def open(self, page: str, width: int = DESKTOP, media: str = "screen") -> Browser:
        self.driver.get("about:blank")
        self.driver.get_log("browser")
        self.driver.get_log("performance")
        self.command("Emulation.setEmulatedMedia", media=media)
        self.command(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=900, deviceScaleFactor=1, mobile=width < 600,
        )  # fmt: skip
        path = self.folder / "page.html"
        path.write_text(page, encoding="utf-8")
        self.driver.get(path.as_uri())
        return self

    def errors(self) -> list[str]:
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def asked_for(self) -> list[str]:
        """The address of every request."""
        found = (json.loads(entry["message"])["message"] for entry in self._performance())
        return [
            entry["params"]["request"]["url"]
            for entry in found
            if entry["method"] == "Network.requestWillBeSent"
        ]

    def _performance(self) -> list[dict[str, str]]:
        return list(self.driver.get_log("performance"))

    def press(self, keys: str) -> None:
        from selenium.webdriver import ActionChains

        ActionChains(self.driver).send_keys(keys).perform()

    def shoot(self, name: str) -> Path:
        """The whole page, from top to bottom."""
        target = screenshots(self.folder) / f"{name}.png"
        size = self.run(
            "return [innerWidth, Math.min(document.documentElement.scrollHeight, 16000)]"
        )
        clip = {"x": 0, "y": 0, "width": size[0], "height": size[1], "scale": 1}
        found = self.command("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        target.write_bytes(base64.b64decode(found["data"]))
        return target


def screenshots(otherwise: Path) -> Path:
    folder = Path(os.environ.get("NONUNIFORM_SCREENSHOTS") or otherwise)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    driver = start()
    try:
        yield Browser(driver, tmp_path_factory.mktemp("browser"))
    finally:
        driver.quit()


def start() -> Any:
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    chromedriver = shutil.which("chromedriver")
    try:
        from selenium import webdriver
        from selenium.webdriver.chrome.service import Service
    except ImportError:
        return missing("selenium is not installed")
    if not (chromium and chromedriver):
        return missing("there is no Chromium with its chromedriver")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    options.add_argument("--headless=new")
    options.add_argument("--hide-scrollbars")
    options.add_argument("--disable-dev-shm-usage")
    if os.getuid() == 0:
        options.add_argument("--no-sandbox")  # root may not have one
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(chromedriver))
    driver.set_page_load_timeout(60)
    driver.set_script_timeout(60)
    return driver


def missing(what: str) -> None:
    if os.environ.get("CI_BROWSER") == "1":
        pytest.fail(f"CI_BROWSER=1, but {what}")
    pytest.skip(what)


def test_no_error_and_no_request(browser: Browser, plan_summary: Build) -> None:
    browser.open(plan_html(plan_summary()))
    browser.run("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    assert browser.errors() == []
    asked = browser.asked_for()
    assert any(url.startswith("file:") for url in asked)
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    assert len([url for url in asked if url.startswith("file:")]) == 1


def test_the_page_could_not_ask_anybody(browser: Browser, plan_summary: Build) -> None:
    browser.open(plan_html(plan_summary()))
    blocked = browser.driver.execute_async_script("""
        const done = arguments[0];
        const seen = [];
        document.addEventListener("securitypolicyviolation", (event) => {
          seen.push(event.effectiveDirective);
          if (seen.length === 3) done(seen.sort());
        });
        fetch("http://127.0.0.1:9/").catch(() => {});
        const script = document.createElement("script");
        script.textContent = "window.hurt = 1";
        document.body.append(script);
        document.body.append(Object.assign(new Image(), { src: "http://127.0.0.1:9/x.png" }));
    """)
    assert blocked == ["connect-src", "img-src", "script-src-elem"]
    assert browser.run("return window.hurt === undefined")


@pytest.mark.parametrize("lang", ["en", "ja"])
def test_charts_are_drawn(browser: Browser, plan_summary: Build, lang: Any) -> None:
    browser.open(plan_html(plan_summary(), lang))
    for name in CHARTS:
        drawn = browser.run(MARKS, f"chart-{name}")
        assert drawn["svg"] >= 1, name
        assert drawn["marks"] >= 1, name
    words = browser.run(MARKS, "chart-throughput")["words"]
    assert ("スループット" in words) == (lang == "ja")
    assert "ntp-pw" in words


def test_the_keyboard_switches_the_language_and_opens_tables(
    browser: Browser, plan_summary: Build
) -> None:
    browser.open(plan_html(plan_summary()))
    shown = "return document.querySelector('main').innerText"
    assert browser.run("return document.documentElement.lang") == "en"
    assert "結論" not in browser.run(shown)
    browser.press("l")
    assert browser.run("return document.documentElement.lang") == "ja"
    assert "結論" in browser.run(shown)
    assert "The answer" not in browser.run(shown)
    assert "不均一" in browser.driver.title
    assert "スループット" in browser.run(MARKS, "chart-throughput")["words"]
    label = "return document.getElementById('chart-year').getAttribute('aria-label')"
    assert "1 年間" in browser.run(label)
    assert browser.run("return document.getElementById('told').textContent")
    browser.press("t")
    opened = "return [...document.querySelectorAll('figure details')].every((d) => d.open)"
    assert browser.run(opened)
    browser.press("t")
    assert not browser.run(opened)
    assert browser.errors() == []


def test_everything_can_be_reached_by_tab(browser: Browser, plan_summary: Build) -> None:
    from selenium.webdriver.common.keys import Keys

    browser.open(plan_html(plan_summary()))
    where = "return document.activeElement.id || document.activeElement.className"
    browser.press(Keys.TAB)
    assert browser.run(where) == "skip"
    browser.press(Keys.TAB)
    assert browser.run(where) == "language"
    browser.press(Keys.ENTER)
    assert browser.run("return document.documentElement.lang") == "ja"
    seen = set()
    for _ in range(40):
        browser.press(Keys.TAB)
        seen.add(browser.run("return document.activeElement.tagName"))
    assert {"DIV", "SUMMARY"} <= seen  # tables that scroll, tables behind charts
    outline = browser.run("return getComputedStyle(document.activeElement).outlineStyle")
    assert outline != "none"


@pytest.mark.parametrize("lang", ["en", "ja"])
@pytest.mark.parametrize("name", ["desktop", "phone", "print"])
def test_it_fits_and_looks(browser: Browser, plan_summary: Build, lang: Any, name: str) -> None:
    width = {"desktop": DESKTOP, "phone": PHONE, "print": PAPER}[name]
    media = "print" if name == "print" else "screen"
    browser.open(plan_html(plan_summary(), lang), width, media)
    if name == "print":
        browser.run("window.dispatchEvent(new Event('beforeprint'))")
    size = browser.run("return [document.documentElement.scrollWidth, innerWidth]")
    assert size[0] <= size[1]
    assert browser.run(WIDER, size[1]) == []
    assert browser.shoot(f"plan-{name}-{lang}").stat().st_size > 50_000


# Elements that stick out to the right, except within what scrolls.
WIDER = """
return [...document.querySelectorAll("main *")].filter((element) =>
  !element.closest(".scroll, svg, .plot") && element.getClientRects().length
  && element.getBoundingClientRect().right > arguments[0] + 1).map((e) => e.outerHTML.slice(0, 90));
"""


def test_print(browser: Browser, plan_summary: Build) -> None:
    browser.open(plan_html(plan_summary()))
    found = browser.command("Page.printToPDF", printBackground=True, preferCSSPageSize=True)
    pdf = base64.b64decode(found["data"])
    (screenshots(browser.folder) / "plan.pdf").write_bytes(pdf)
    assert pdf.startswith(b"%PDF")
    pages = pdf.count(b"/Type /Page\n") + pdf.count(b"/Type /Page ") + pdf.count(b"/Type /Page/")
    assert 3 <= pages <= 20
    assert browser.errors() == []


@pytest.mark.parametrize("lang", ["en", "ja"])
@pytest.mark.parametrize("worth", ["yes", "no", "unclear"])
def test_contrast_of_all_text(browser: Browser, plan_summary: Build, lang: Any, worth: str) -> None:
    summary = plan_summary(worth, "within-noise" if worth != "yes" else "saves")
    browser.open(plan_html(summary, lang))
    browser.run("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    found = browser.run(PALE)
    assert found["count"] > 500
    assert found["pale"] == []


@pytest.mark.parametrize("lang", ["en", "ja"])
def test_everything_has_a_name(browser: Browser, plan_summary: Build, lang: Any) -> None:
    browser.open(plan_html(plan_summary(), lang))
    assert browser.run(UNNAMED) == []


def test_html_in_a_name_does_not_run(browser: Browser, plan_summary: Build, hurt_name: str) -> None:
    browser.open(plan_html(plan_summary(hurt=True)))
    assert browser.run("return window.hurt === undefined")
    assert browser.run("return document.querySelectorAll('main img').length") == 0
    assert hurt_name in browser.run("return document.querySelector('h1').innerText")
    assert hurt_name in browser.driver.title
    assert browser.errors() == []


def test_names_in_charts_are_shown(browser: Browser, plan_summary: Build) -> None:
    summary = plan_summary()
    name = "<b>a</b> & %{x} <a href='javascript:1'>"
    lines = summary["charts"]["throughput"]["policies"]
    lines[name] = lines.pop("ntp")
    browser.open(plan_html(summary))
    drawn = browser.run(MARKS, "chart-throughput")
    assert name in drawn["words"]
    assert browser.run("return document.querySelectorAll('.plot a').length") == 0
