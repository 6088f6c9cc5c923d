"""Numbers on a page: rounded to what their interval bears, scaled by language, never changed."""

# ruff: noqa: RUF001

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nonuniform.report.numbers import Quantity, interval_words, value_words

SCALE = {"million": 1e6, "billion": 1e9, "trillion": 1e12, "万": 1e4, "億": 1e8, "兆": 1e12}


def read_back(words: str) -> float:
    """What a reader takes the words for; written without the code under test."""
    found = re.search(r"([\d,]+(?:\.\d+)?)\s*(million|billion|trillion|万|億|兆)?", words)
    assert found, words
    number = float(found[1].replace(",", "")) * SCALE.get(found[2] or "", 1.0)
    return -number if "−" in words else number


@pytest.mark.parametrize(
    ("quantity", "en", "ja"),
    [
        (Quantity(0.06723, "1", 0.06706, 0.0674), "6.723 %", "6.723%"),
        (Quantity(0.93281, "1"), "93.3 %", "93.3%"),
        (Quantity(32768, "GPU"), "32,768 GPUs", "32,768 GPU"),
        (Quantity(17_211_768, "GPU-h"), "17.2 million GPU-hours", "1,721 万 GPU 時間"),
        (Quantity(-1_234_567, "money/year"), "−$1.23 million a year", "年間 −123 万ドル"),
        (Quantity(5e9, "money", currency="JPY"), "¥5 billion", "50 億円"),
        (Quantity(12.5, "money", currency="CHF"), "CHF 12.5", "12.5 CHF"),
        (Quantity(3600, "s"), "60 min", "60 分"),
        (Quantity(0.43, "s"), "0.43 s", "0.43 秒"),
        (Quantity(8, "domains"), "8 domains", "8 ドメイン"),
        (Quantity(-0.0, "money"), "$0", "0ドル"),
        (Quantity(0, "1", -0.01, 0.01), "0 %", "0%"),
        (Quantity(4.7e-5, "1/GPU-day"), "0.000047 per GPU-day", "0.000047 件／GPU・日"),
    ],
)  # fmt: skip
def test_written_by_hand(quantity: Quantity, en: str, ja: str) -> None:
    assert value_words(quantity, "en") == en
    assert value_words(quantity, "ja") == ja


def test_the_interval_is_in_the_scale_of_the_value() -> None:
    quantity = Quantity(9_990_000, "GPU-h", 9_800_000, 10_200_000)
    assert value_words(quantity, "en") == "9.99 million GPU-hours"
    assert interval_words(quantity, "en") == "9.80 to 10.20 million"
    assert interval_words(quantity, "ja") == "980～1,020 万"


def test_no_interval_where_there_is_none_or_no_width() -> None:
    assert interval_words(Quantity(1.0, "1"), "en") == ""
    assert interval_words(Quantity(1.0, "1", 1.0, 1.0), "en") == ""


finite = st.floats(-1e13, 1e13, allow_nan=False)


@given(finite, st.sampled_from(["GPU", "GPU-h", "money", "money/year", "days"]))
def test_what_is_read_is_what_was_meant(value: float, unit: str) -> None:
    for lang in ("en", "ja"):
        back = read_back(value_words(Quantity(value, unit), lang))
        assert math.isclose(back, value, rel_tol=0.006, abs_tol=1e-6)


@given(finite, st.floats(0, 1e12), st.floats(0, 1e12))
def test_an_interval_holds_its_value_as_written(value: float, below: float, above: float) -> None:
    quantity = Quantity(value, "money", value - below, value + above)
    for lang in ("en", "ja"):
        words = interval_words(quantity, lang)
        if not words:
            continue
        low, high = re.split(" to |～", words)
        scale = re.search("million|billion|trillion|万|億|兆", high)
        low = f"{low} {scale[0]}" if scale else low
        shown = read_back(value_words(quantity, lang))
        slack = 1e-9 * max(1.0, abs(shown))
        assert read_back(low) - slack <= shown <= read_back(high) + slack
