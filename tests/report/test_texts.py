"""Both languages say the same things, with the same gaps."""

from __future__ import annotations

import re

import pytest

from nonuniform.report.said import Both, Joined, Sentence, Verbatim, gaps_of, said
from nonuniform.report.texts import load_texts, read_words

JAPANESE = re.compile("[\u3040-\u30ff\u4e00-\u9fff]")
# Signs and names that are the same in both.
SAME_IN_BOTH = re.compile(r"^(figure\.(none|interval)|plan\.change\.times|unit\..*)$")


def test_both_languages_have_the_same_keys() -> None:
    assert set(read_words("en")) == set(read_words("ja"))


def test_both_languages_have_the_same_gaps() -> None:
    en, ja = read_words("en"), read_words("ja")
    assert [key for key in en if gaps_of(en[key]) != gaps_of(ja[key])] == []


def test_nothing_is_left_untranslated() -> None:
    en, ja = read_words("en"), read_words("ja")
    same = [key for key in en if en[key] == ja[key] and not SAME_IN_BOTH.match(key)]
    assert [key for key in same if re.search("[a-z]{2}", en[key])] == []
    english = [key for key in ja if not JAPANESE.search(ja[key]) and not SAME_IN_BOTH.match(key)]
    # Names of tools and signs alone.
    assert [key for key in english if len(re.sub(r"{.*?}|[^a-z]", "", ja[key])) > 12] == []


def test_no_japanese_in_the_english_words() -> None:
    assert [key for key, words in read_words("en").items() if JAPANESE.search(words)] == []


def test_a_code_that_is_not_known_is_shown_as_it_is() -> None:
    texts = load_texts()
    assert texts.known("reason", "<new>").text("ja") == "<new>"
    assert "&lt;new&gt;" in texts.known("reason", "<new>").html("ja")


@pytest.mark.parametrize("lang", ["en", "ja"])
def test_what_fills_a_gap_is_escaped_once(lang: str) -> None:
    words = Sentence(Both("<{x}> & so", "<{x}>など"), {"x": said("<b>&amp;</b>")})
    html = words.html("ja" if lang == "ja" else "en")
    assert "<b>" not in html
    assert "&lt;b&gt;&amp;amp;&lt;/b&gt;" in html
    assert html.count("&lt;<bdi") == 1


def test_a_gap_in_a_name_is_no_gap() -> None:
    assert Sentence(Both("{x}", "{x}"), {"x": said("{y}")}).text("en") == "{y}"


def test_a_chart_shows_tags_as_words() -> None:
    assert Verbatim("<b>a</b>").chart()["@en"] == "&lt;b&gt;a&lt;/b&gt;"


def test_equal_words_are_not_said_twice() -> None:
    assert "lang=" not in Verbatim("x").__html__()
    assert Joined((Verbatim("a"), Verbatim("b"))).__html__().count("lang=") == 2
