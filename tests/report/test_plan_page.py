"""The page of a plan: every number is in summary.json; what a file says is shown, not run."""

from __future__ import annotations

import copy
import html as html_module
import re
from collections.abc import Callable
from typing import Any

import pytest

from nonuniform.errors import BadInput
from nonuniform.report.charts import plan_charts
from nonuniform.report.figures import Figure, Place, at
from nonuniform.report.mail import plan_markdown
from nonuniform.report.plan_page import plan_html, top_of
from nonuniform.report.texts import load_texts

from .page_reader import disagreements, parsed, words_in

Build = Callable[..., dict[str, Any]]
VERDICTS = [
    ("yes", "saves", "ntp-pw"),
    ("no", "tensor-parallel-1", "restart"),
    ("no", "few-failures", "restart"),
    ("no", "short-job", "restart"),
    ("no", "preemptible", "restart"),
    ("no", "costs-more", "restart"),
    ("no", "costs-more", "dp-drop"),
    ("no", "within-noise", "restart"),
    ("no", "no-domain-loss", "dp-drop"),
    ("unclear", "within-noise", "dp-drop"),
]


@pytest.mark.parametrize(("worth", "reason", "chosen"), VERDICTS)
def test_every_figure_agrees_with_the_summary(
    plan_summary: Build, worth: str, reason: str, chosen: str
) -> None:
    summary = plan_summary(worth, reason, chosen)
    wrong, right = disagreements(plan_html(summary), summary)
    assert wrong == []
    assert right > 500


def test_the_unit_of_a_figure_is_that_of_the_summary(plan_summary: Build) -> None:
    summary = plan_summary()
    for attributes, _, _ in parsed(plan_html(summary)).figures:
        value = at(summary, attributes["data-figure"])
        if isinstance(value, dict) and value["value"] is not None:
            counted = attributes["data-figure"].endswith("failures_expected")
            assert attributes["data-unit"] == ("" if counted else value["unit"])


def test_no_number_comes_from_anywhere_else(plan_summary: Build) -> None:
    """What is left without figures and words from files has no digits, but for fixed words."""
    shown = parsed(plan_html(plan_summary()))
    fixed = (
        r"95 ?%|50 ?%|100 ?%|1 つ|1 台|1 件|1 マス|1 年間|1 つ|3 文|SHA-256|95th|95 パーセンタイル"
    )
    left = [
        text.strip()
        for text, _ in shown.rest
        if re.search(r"\d", re.sub(fixed, "", text)) and not text.strip().startswith("1 米ドル")
    ]
    assert left == []


def test_what_is_shown_from_files_is_in_the_summary(plan_summary: Build) -> None:
    summary = plan_summary()
    known = words_in(summary)
    for words, _ in parsed(plan_html(summary)).from_files:
        assert words in known or words == summary["money"]["currency"] or words.isdecimal(), words


@pytest.mark.parametrize(("worth", "reason", "chosen"), VERDICTS)
@pytest.mark.parametrize("lang", ["en", "ja"])
def test_html_in_a_name_is_shown(
    plan_summary: Build, hurt_name: str, worth: str, reason: str, chosen: str, lang: Any
) -> None:
    summary = plan_summary(worth, reason, chosen, hurt=True)
    page = plan_html(summary, lang)
    assert hurt_name not in page
    assert html_module.escape(hurt_name, quote=False) in page or "&lt;img" in page
    assert "img" not in parsed(page).tags
    assert "<img" not in plan_markdown(summary, lang)


def test_the_page_asks_nobody_and_is_small(plan_summary: Build) -> None:
    page = plan_html(plan_summary())
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', page)
    assert policy
    assert "default-src 'none'" in html_module.unescape(policy[1])
    assert "unsafe-inline" not in html_module.unescape(policy[1]).split("style-src")[0]
    markup = re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)
    assert re.findall(r'(?:src|href)="(?!#|data:)[^"]*"', markup) == []
    assert len(page.encode()) < 8e6
    shown = parsed(page)
    assert len(shown.ids) == len(set(shown.ids))


def test_both_languages_are_in_one_file(plan_summary: Build) -> None:
    en, ja = plan_html(plan_summary(), "en"), plan_html(plan_summary(), "ja")
    assert '<html lang="ja" data-lang="ja">' in ja
    for page in (en, ja):
        assert "Is nonuniform tensor parallelism worth it for" in page
        assert "不均一テンソル並列を導入する価値はあるか" in page


@pytest.mark.parametrize(("worth", "reason", "chosen"), VERDICTS)
def test_three_sentences_of_answer_and_three_to_say(
    plan_summary: Build, worth: str, reason: str, chosen: str
) -> None:
    page = plan_html(plan_summary(worth, reason, chosen))
    answer = re.search(r'<section class="answer.*?</section>', page, re.DOTALL)
    assert answer
    assert answer[0].count("<p>") == 3
    assert page.count('<p class="caveat">') == 3
    talk = re.search(r'<ol class="talk">.*?</ol>', page, re.DOTALL)
    assert talk
    for item in talk[0].split("<li>")[1:]:
        assert worth != "yes" or item.count('class="interval"') >= 2, item
    mail = plan_markdown(plan_summary(worth, reason, chosen), "en")
    start = {"yes": "Yes: ", "no": "No: ", "unclear": "It cannot be told yet: "}[worth]
    assert f"\n\n{start}" in mail


def test_a_chart_without_data_is_left_out_and_said_so(plan_summary: Build) -> None:
    summary = plan_summary()
    summary["charts"]["rack"] = None
    page = plan_html(summary)
    assert 'id="chart-rack"' not in page
    assert "no rack is known here" in page


def test_charts_are_valid_for_plotly(plan_summary: Build) -> None:
    graph_objects = pytest.importorskip("plotly.graph_objects")
    for chart in plan_charts(top_of(plan_summary()), load_texts()):
        graph_objects.Figure(in_one_language(chart.spec))
        assert chart.table.rows


def in_one_language(value: Any) -> Any:
    if isinstance(value, list):
        return [in_one_language(item) for item in value]
    if isinstance(value, dict):
        return value["@en"] if "@en" in value else {k: in_one_language(v) for k, v in value.items()}
    return value


def test_money_in_yen(plan_summary: Build) -> None:
    summary = plan_summary()
    summary["money"] |= {"currency": "JPY", "fx": 150.0, "fx_date": "2026-11-28"}
    page = plan_html(summary, "ja")
    assert "億円" in page
    assert "ドル [" not in page
    assert "2026-11-28" in page


@pytest.mark.parametrize("key", ["verdict", "jobs", "recommendation", "charts", "money", "path"])
def test_a_missing_key_is_named(plan_summary: Build, key: str) -> None:
    summary = plan_summary()
    del summary[key]
    with pytest.raises(BadInput, match=f"no key {key}"):
        plan_html(summary)


def test_a_number_that_is_none_is_named(plan_summary: Build) -> None:
    summary = copy.deepcopy(plan_summary())
    summary["recommendation"]["saved"]["value"] = "many"
    with pytest.raises(BadInput, match=r"recommendation\.saved\.value is 'many', not a number"):
        plan_html(summary)


def test_another_kind_of_summary_is_refused() -> None:
    with pytest.raises(BadInput, match="not 'plan'"):
        plan_html({"kind": "train"})


def test_a_dot_in_a_name_stays_in_one_part_of_a_path() -> None:
    data = {"a.b": {"c\\d": [1.0, 2.0]}}
    place = Place(data)["a.b"]["c\\d"][1]
    assert at(data, place.path) == 2.0
    assert isinstance(place.figure("1"), Figure)


def test_the_mail_has_the_figures_of_the_page(plan_summary: Build) -> None:
    summary = plan_summary()
    page = parsed(plan_html(summary))
    mail = plan_markdown(summary, "en")
    for attributes, text, lang in page.figures:
        if attributes["data-figure"].startswith("recommendation.net") and lang != "ja":
            assert text.removesuffix(" simulated").split(" [")[0] in mail
