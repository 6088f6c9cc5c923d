"""Money against cases worked out by hand, and what holds for all."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nonuniform.errors import BadInput
from nonuniform.planner.checkpoints import young_daly_s
from nonuniform.planner.money import (
    YearOfUse,
    costs,
    energy_price,
    engineering,
    gpu_hour_price,
    payback_days,
    per_year,
    retrofit,
)
from nonuniform.planner.prices import Exchange, Prices, default_prices, read_prices


def prices(**values: float) -> Prices:
    rows = dict(default_prices().rows)
    for key, value in values.items():
        rows[key] = replace(rows[key], value=value)
    return replace(default_prices(), rows=rows)


def test_a_gpu_hour_from_capital_by_hand() -> None:
    # 52,560 over 3 years of 8,760 h is 2.00 an hour; 1.5 kW x 1.2 x 0.10 is 0.18.
    given_prices = prices(
        capital_per_gpu=52560, lifetime_years=3, rack_watts_per_gpu=1500, pue=1.2, energy_kwh=0.1
    )
    assert gpu_hour_price(given_prices) == pytest.approx(2.18)
    assert gpu_hour_price(prices(gpu_hour=1.75)) == 1.75


def test_energy_by_hand() -> None:
    # 500 W for 2,000 h are 1,000 kWh; 1,250 with the building; at 0.08.
    assert energy_price(prices(pue=1.25, energy_kwh=0.08), 500, 2000) == pytest.approx(100.0)


def test_a_year_by_hand() -> None:
    given_prices = prices(
        gpu_hour=2.0, operator_hour=80, operator_hours_restart=1.5, operator_hours_live=0.5,
        pue=1.0, energy_kwh=0.1,
    )  # fmt: skip
    year = YearOfUse(
        lost_gpu_h=1_000_000, spare_gpu_h=250_000, boosted_gpu_h=10_000, boost_watts=100,
        failures=200, restarts=True,
    )  # fmt: skip
    found = costs(given_prices, year)
    assert (found.lost, found.spares) == (2_000_000, 500_000)
    assert found.energy == pytest.approx(100.0)  # 1,000 kWh
    assert found.operators == 24_000  # 200 x 1.5 x 80
    assert found.total == pytest.approx(2_524_100)
    live = costs(given_prices, replace(year, restarts=False))
    assert live.operators == 8_000


def test_once_by_hand() -> None:
    given_prices = prices(
        engineer_week=5000, weeks_live=4, weeks_ntp=6, boost_per_gpu=300, horizon_years=4
    )
    assert engineering(given_prices, ("weeks_live", "weeks_ntp")) == 50_000
    assert retrofit(given_prices, 72) == 21_600
    assert per_year(given_prices, 50_000) == 12_500


def test_payback_by_hand() -> None:
    assert payback_days(50_000, 365_000) == pytest.approx(50.0)
    assert payback_days(50_000, 0) is None
    assert payback_days(50_000, -1) is None
    assert payback_days(0, 10) == 0.0
    assert payback_days(0, -10) is None


def test_young_daly_by_hand() -> None:
    # Young: sqrt(2 x 10 x 7,200) = 379.5; Daly's terms take it to 372.9.
    assert young_daly_s(10, 7200) == pytest.approx(372.9, abs=0.1)
    assert young_daly_s(10, math.inf) == math.inf
    assert young_daly_s(100, 40) == 40


@given(st.floats(0.001, 1e4), st.floats(1, 1e9))
def test_rarer_failures_never_ask_for_more_checkpoints(write_s: float, mtbf_s: float) -> None:
    assert young_daly_s(write_s, mtbf_s) <= young_daly_s(write_s, 2 * mtbf_s) * (1 + 1e-9)


def test_every_default_price_has_its_origin() -> None:
    for price in default_prices().rows.values():
        assert price.date, price.key
        assert price.source, price.key
        assert price.unit, price.key
        assert not price.overridden


def test_own_prices_are_marked_and_converted(tmp_path: Path) -> None:
    own = tmp_path / "prices.toml"
    own.write_text('gpu_hour = 3.0\n[pue]\nvalue = 1.1\nsource = "our hall"\n')
    found = read_prices(own, Exchange("JPY", 150.0, "2026-11-30"))
    assert found["gpu_hour"] == 450.0
    assert found["pue"] == 1.1  # is no money
    assert found.rows["pue"].source == "our hall"
    assert [key for key, row in found.rows.items() if row.overridden] == ["gpu_hour", "pue"]
    assert found["operator_hour"] == 150 * default_prices()["operator_hour"]
    assert (found.currency, found.fx, found.fx_date) == ("JPY", 150.0, "2026-11-30")


def test_own_prices_in_the_chosen_currency_stay(tmp_path: Path) -> None:
    own = tmp_path / "prices.toml"
    own.write_text('currency = "JPY"\ngpu_hour = 400\n')
    assert read_prices(own, Exchange("JPY", 150.0))["gpu_hour"] == 400


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("gpu_huor = 1", "unknown price gpu_huor, did you mean gpu_hour"),
        ("gpu_hour = -1", "gpu_hour = -1: must be a number from 0 to 1e"),
        ('gpu_hour = "x"', "gpu_hour = 'x': must be a number"),
        ("gpu_hour = true", "gpu_hour = True: must be a number"),
        ("gpu_hour = nan", "gpu_hour = nan: must be a number"),
        ("pue = 0.5", "pue = 0.5: must be a number from 1 to 1e"),
        ('[pue]\nvalue = 1.1\nunit = "kW"', "unit = 'kW': must be '1'"),
        ("[pue]\nwatts = 1", r"\[pue\] watts: unknown key"),
        ('currency = "EUR"', "currency = 'EUR': must be USD"),
    ],
)
def test_bad_prices_are_one_line(tmp_path: Path, text: str, words: str) -> None:
    own = tmp_path / "prices.toml"
    own.write_text(text + "\n")
    with pytest.raises(BadInput, match=words) as caught:
        read_prices(own)
    assert "\n" not in str(caught.value)
    assert "prices.toml" in str(caught.value)


@pytest.mark.parametrize(
    ("exchange", "words"),
    [
        (Exchange("JPY"), "--currency JPY: needs --fx"),
        (Exchange("yen", 150), "--currency yen: must be a code"),
        (Exchange("JPY", 0), "--fx 0: must be from 1e-09"),
        (Exchange("USD", 2), "--fx 2: has no meaning"),
        (Exchange("JPY", 150, "today"), "--fx ...@today: must be a date"),
    ],
)
def test_bad_exchange_is_one_line(exchange: Exchange, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        read_prices(None, exchange)
