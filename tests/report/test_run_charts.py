"""The colours of the charts of runs can be seen on the page."""

from __future__ import annotations

import re
from importlib.resources import files
from itertools import pairwise

import pytest

from nonuniform.report.run_charts import COLOURS, OF_REASON, OF_STATE
from nonuniform.report.run_goodput import REASONS
from nonuniform.report.run_timeline import STATES

LEAST = 3.0  # WCAG 2.1, 1.4.11: of what must be seen to understand a picture
ALL = {colour for colours in (COLOURS, OF_REASON.values(), OF_STATE.values()) for colour in colours}


def luminance(colour: str) -> float:
    """By WCAG 2.1, of `#rrggbb`."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def grounds() -> set[str]:
    """What the page says that charts stand on."""
    css = (files("nonuniform.report") / "assets" / "page.css").read_text(encoding="utf-8")
    return set(re.findall(r"--(?:ground|paper): (#[0-9a-f]{6})", css)) | {"#ffffff"}


def test_contrast_is_that_of_the_standard() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.005)
    assert len(grounds()) > 1


@pytest.mark.parametrize("colour", sorted(ALL))
def test_every_colour_stands_out_from_the_page(colour: str) -> None:
    assert min(contrast(colour, ground) for ground in grounds()) >= LEAST


def test_every_reason_and_state_has_a_colour_of_its_own() -> None:
    assert set(OF_REASON) == set(REASONS)
    assert set(OF_STATE) == set(STATES)
    for colours in (OF_REASON, OF_STATE):
        assert all(one != other for one, other in pairwise(sorted(colours.values())))
