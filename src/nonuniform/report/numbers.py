"""How a number looks, in both languages.

In: a value, its interval, its unit, a currency. Out: words such as `6.73 %`, `17.2 million
GPU-hours`, `1,720万 GPU時間`, and the interval in the same scale. Rounds and scales, and computes
nothing else. The interval says how many digits are worth showing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from nonuniform.report.said import Language
from nonuniform.report.texts import load_texts

MINUS = "\u2212"
SYMBOLS = {
    "en": {"USD": "$", "EUR": "€", "GBP": "£", "JPY": "¥"},
    "ja": {"USD": "ドル", "EUR": "ユーロ", "GBP": "ポンド", "JPY": "円"},
}
# (from, divided by, key of the word)
SCALES: dict[Language, tuple[tuple[float, float, str], ...]] = {
    "en": ((1e12, 1e12, "trillion"), (1e9, 1e9, "billion"), (1e6, 1e6, "million")),
    "ja": ((1e12, 1e12, "trillion"), (1e8, 1e8, "hundred_million"), (1e5, 1e4, "ten_thousand")),
}
# Counted things are shown in full up to here: a cluster has 32,768 GPUs, not 3.3万.
COUNTED = frozenset({"GPU", "domains", ""})
COUNTED_IN_FULL = 1e6
LEAST = 1e-300  # below it there is no logarithm to be sure of


@dataclass(frozen=True)
class Quantity:
    """A number with its unit; `low` and `high` are None where there is no interval."""

    value: float
    unit: str = ""
    low: float | None = None
    high: float | None = None
    currency: str = "USD"


@dataclass(frozen=True)
class Shape:
    """How all numbers of one quantity are written."""

    divide: float
    decimals: int
    scale: str
    unit: str


def value_words(quantity: Quantity, lang: Language, with_unit: bool = True) -> str:
    shape = shape_of(quantity, lang)
    number = _scaled_words(quantity.value, shape, lang)
    if not with_unit and shape.unit != "%":
        return number
    return _with_unit(number, shape.unit, quantity, lang)


def interval_words(quantity: Quantity, lang: Language) -> str:
    """`6.71 to 6.75`, without unit and the scale said once, or nothing."""
    if quantity.low is None or quantity.high is None or quantity.low == quantity.high:
        return ""
    shape = shape_of(quantity, lang)
    low = _scaled_words(quantity.low, replace(shape, scale=""), lang)
    high = _scaled_words(quantity.high, shape, lang)
    return load_texts().words("figure.range", lang).format(low=low, high=high)


def shape_of(quantity: Quantity, lang: Language) -> Shape:
    unit, factor = _shown_unit(quantity)
    ends = [quantity.value, quantity.low, quantity.high]
    largest = max(abs(end) * factor for end in ends if end is not None)
    divide, scale = _scale(largest, unit, lang)
    decimals = _decimals(quantity, factor / divide, unit)
    shown = [end * factor / divide for end in ends if end is not None]
    while decimals and all(_same(number, decimals) for number in shown):
        decimals -= 1
    return Shape(divide / factor, decimals, scale, unit)


def _same(number: float, decimals: int) -> bool:
    """The last decimal is a zero."""
    return f"{number:.{decimals}f}".endswith("0")


def _shown_unit(quantity: Quantity) -> tuple[str, float]:
    """Shares become per cent and long seconds minutes or hours; nothing else is converted."""
    if quantity.unit == "1":
        return "%", 100.0
    if quantity.unit == "s" and abs(quantity.value) >= 2 * 3600:
        return "h", 1 / 3600
    if quantity.unit == "s" and abs(quantity.value) >= 120:
        return "min", 1 / 60
    return quantity.unit, 1.0


def _scale(largest: float, unit: str, lang: Language) -> tuple[float, str]:
    if unit in COUNTED and largest < COUNTED_IN_FULL:
        return 1.0, ""
    for start, divide, word in SCALES[lang]:
        if largest >= start:
            return divide, word
    return 1.0, ""


def _decimals(quantity: Quantity, factor: float, unit: str) -> int:
    """Three digits, or as many as the interval bears (one or two of its own), at most five."""
    value = abs(quantity.value) * factor
    if unit in COUNTED and factor == 1.0 and value == int(value):
        return 0
    magnitude = math.floor(math.log10(value)) if value > 0 else 0
    usual = 2 - magnitude
    if quantity.low is not None and quantity.high is not None and quantity.high > quantity.low:
        half = (quantity.high - quantity.low) / 2 * factor
        by_interval = -math.floor(math.log10(max(half / 3, LEAST)))
        usual = min(by_interval, 4 - magnitude) if value > 0 else by_interval
    return max(0, min(usual, 6))


def _scaled_words(number: float, shape: Shape, lang: Language) -> str:
    digits = f"{abs(number) / shape.divide:,.{shape.decimals}f}"
    if shape.scale:
        digits = load_texts().words(f"scale.{shape.scale}", lang).format(n=digits)
    negative = number < 0 and any(digit in "123456789" for digit in digits)
    return f"{MINUS}{digits}" if negative else digits


def _with_unit(number: str, unit: str, quantity: Quantity, lang: Language) -> str:
    if unit.startswith("money"):
        money = _money(number, quantity.currency, lang)
        return _unit_words(unit, lang).format(n=money)
    if unit == "":
        return number
    one = f"{unit}_one"
    return _unit_words(one if number == "1" and _is_known(one) else unit, lang).format(n=number)


def _money(number: str, currency: str, lang: Language) -> str:
    symbol = SYMBOLS[lang].get(currency)
    if lang == "ja":
        return f"{number}{symbol}" if symbol else f"{number} {currency}"
    sign, digits = (MINUS, number[1:]) if number.startswith(MINUS) else ("", number)
    return f"{sign}{symbol}{digits}" if symbol else f"{sign}{currency} {digits}"


def _unit_words(unit: str, lang: Language) -> str:
    if _is_known(unit):
        return load_texts().words(f"unit.{unit}", lang)
    return "{n} " + unit.replace("{", "").replace("}", "")


def _is_known(unit: str) -> bool:
    return f"unit.{unit}" in load_texts()
