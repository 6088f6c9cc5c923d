"""What other parts wrote in English is said in Japanese, with the same numbers, or left alone."""

from __future__ import annotations

import re
import tomllib
from importlib.resources import files
from string import Formatter

import pytest

from nonuniform.planner.understood import Transition, transition_facts
from nonuniform.report.phrases import Phrase, in_japanese, phrases
from nonuniform.report.said import gaps_of

JAPANESE = re.compile("[\u3040-\u30ff\u4e00-\u9fff]")


def pairs() -> list[list[str]]:
    text = (files("nonuniform.report") / "text" / "phrases.toml").read_text(encoding="utf-8")
    found: list[list[str]] = tomllib.loads(text)["phrases"]
    return found


def test_every_phrase_has_the_same_gaps_and_comes_once() -> None:
    assert [pair for pair in pairs() if gaps_of(pair[0]) != gaps_of(pair[1])] == []
    shapes = [re.sub(r"{\w+}", "{}", english) for english, _ in pairs()]
    assert sorted(shapes) == sorted(set(shapes))


def test_every_phrase_is_found_and_keeps_what_is_in_its_gaps() -> None:
    for english, japanese in pairs():
        gaps = [gap for _, gap, _, _ in Formatter().parse(english) if gap]
        filled = {gap: str(71 + at) for at, gap in enumerate(gaps)}
        said = in_japanese(english.format(**filled))
        assert said == japanese.format(**filled), english


@pytest.mark.parametrize("words", ["my-job", "", "<b>x</b>", "train.sh; rm -rf", "{a}"])
def test_other_words_stay_as_they_are(words: str) -> None:
    assert in_japanese(words) == words
    assert Phrase(words).text("ja") == words


def test_parts_that_were_joined() -> None:
    assert in_japanese("one person, all included; round") == "1 人あたり、諸経費込み、概数"


def test_what_a_phrase_takes_is_escaped() -> None:
    assert "<i>" not in Phrase("rack <i> as delivered, of the catalog").html("ja")


def test_the_sentences_of_the_planner_are_known() -> None:
    said = [fact["text"] for fact in transition_facts(Transition(), False, False, False)]
    for path in (files("nonuniform.catalog") / "prices").iterdir():
        text = path.read_text(encoding="utf-8")
        said += [row["source"] for row in tomllib.loads(text).values()]
    assert [words for words in said if not JAPANESE.search(in_japanese(words))] == []


def test_phrases_are_tried_from_the_most_particular() -> None:
    lengths = [len(re.sub(r"\(\?P<\w+>\.\+\?\)", "", each.pattern)) for each, _ in phrases()]
    assert lengths[0] > lengths[-1]
