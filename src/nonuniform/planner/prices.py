"""What things cost: the catalog's figures, a person's own in their place, in one currency.

In: catalog/prices/ (default.toml, and what differs for a kind of GPU), a file of overrides, a
currency with its rate. Out: `Prices`, each with unit, date and source, and marked where it was
overridden. DESIGN "Outside contract". Knows nothing of what is done with them: `money.py` does.
"""

from __future__ import annotations

import datetime
import difflib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from nonuniform.errors import BadInput
from nonuniform.toml_file import read_toml

DOLLAR = "USD"
_KEYS = ("value", "unit", "date", "source", "provenance")
MOST = 1e12
LEAST_FX = 1e-9
_AT_LEAST = {"pue": 1.0, "lifetime_years": 0.1, "horizon_years": 0.1}


@dataclass(frozen=True)
class Price:
    key: str
    value: float
    unit: str
    date: str
    source: str
    provenance: str
    overridden: bool = False


@dataclass(frozen=True)
class Prices:
    """In `currency`; `fx` of it for a dollar, as of `fx_date`."""

    rows: Mapping[str, Price]
    currency: str = DOLLAR
    fx: float = 1.0
    fx_date: str | None = None

    def __getitem__(self, key: str) -> float:
        return self.rows[key].value

    def as_dict(self) -> dict[str, Any]:
        return {
            "currency": self.currency,
            "fx": self.fx,
            "fx_date": self.fx_date,
            "prices": [asdict(price) for price in self.rows.values()],
        }


@dataclass(frozen=True)
class Exchange:
    """A currency, how many of it a dollar is, and when."""

    currency: str = DOLLAR
    fx: float | None = None
    date: str | None = None


@cache
def default_prices(gpu: str = "") -> Prices:
    """In dollars. `gpu`: a name of catalog/gpus; the catalog need not know its prices."""
    return Prices({**_shipped("default"), **(_shipped(gpu) if gpu else {})})


def _shipped(name: str) -> dict[str, Price]:
    text = resources.files("nonuniform.catalog") / "prices" / f"{name}.toml"
    if not text.is_file():
        return {}
    with resources.as_file(text) as path:
        table = read_toml(path)
    return {key: Price(key=key, **row) for key, row in table.items()}


def read_prices(
    path: Path | None,
    exchange: Exchange | None = None,
    of_cluster: Mapping[str, float | str] | None = None,
    gpu: str = "",
) -> Prices:
    """A file's own figures are in the currency that its key `currency` names, else in dollars.
    `of_cluster`: `[prices]` of a cluster's file; `path` goes before it."""
    currency, fx, date = _checked(exchange or Exchange())
    rows = {key: _times(price, fx) for key, price in default_prices(gpu).rows.items()}
    tables: list[tuple[str, dict[str, Any]]] = [("cluster: [prices]", dict(of_cluster or {}))]
    if path is not None:
        tables.append((str(path), read_toml(path)))
    for where, table in tables:
        theirs = table.pop("currency", DOLLAR)
        if theirs not in (DOLLAR, currency):
            known = DOLLAR if currency == DOLLAR else f"{DOLLAR} or {currency}, of --currency"
            raise BadInput(f"{where}: currency = {theirs!r}: must be {known}")
        for key, given in table.items():
            own = _own(where, key, given, rows)
            rows[key] = own if theirs == currency else _times(own, fx)
    return Prices(rows, currency, fx, date)


def _checked(exchange: Exchange) -> tuple[str, float, str | None]:
    currency, fx = exchange.currency, exchange.fx
    if not (len(currency) == 3 and currency.isascii() and currency.isupper()):
        raise BadInput(f"--currency {currency}: must be a code of three capitals, such as JPY")
    if currency == DOLLAR:
        if fx not in (None, 1.0):
            raise BadInput(f"--fx {fx:g}: has no meaning for {DOLLAR}, give --currency too")
        return currency, 1.0, None
    if fx is None:
        raise BadInput(f"--currency {currency}: needs --fx, how many of it a dollar is")
    if not LEAST_FX <= fx <= 1 / LEAST_FX:
        raise BadInput(f"--fx {fx:g}: must be from {LEAST_FX:g} to {1 / LEAST_FX:g}")
    date = exchange.date or datetime.date.today().isoformat()
    try:
        datetime.date.fromisoformat(date)
    except ValueError:
        raise BadInput(f"--fx ...@{date}: must be a date such as 2026-11-30") from None
    return currency, fx, date


def _times(price: Price, fx: float) -> Price:
    """Only what is money changes with the currency."""
    if not price.unit.startswith("money") or fx == 1.0:
        return price
    return Price(**{**asdict(price), "value": price.value * fx})


def _own(path: str, key: str, given: Any, rows: Mapping[str, Price]) -> Price:
    if key not in rows:
        near = difflib.get_close_matches(key, rows, n=1, cutoff=0.5)
        more = f"did you mean {near[0]}?" if near else f"known are {', '.join(rows)}"
        raise BadInput(f"{path}: unknown price {key}, {more}")
    table = given if isinstance(given, dict) else {"value": given}
    for inner in table:
        if inner not in _KEYS:
            raise BadInput(f"{path}: [{key}] {inner}: unknown key, known are {', '.join(_KEYS)}")
    value = table.get("value")
    least = _AT_LEAST.get(key, 0.0)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (number and least <= float(str(value)) <= MOST):
        shown = repr(value)[:40]
        raise BadInput(f"{path}: {key} = {shown}: must be a number from {least:g} to {MOST:g}")
    unit = table.get("unit", rows[key].unit)
    if unit != rows[key].unit:
        raise BadInput(f"{path}: [{key}] unit = {unit!r}: must be {rows[key].unit!r}")
    text = {name: str(table.get(name, "")) for name in ("date", "source", "provenance")}
    return Price(
        key,
        float(str(value)),
        unit,
        text["date"] or datetime.date.today().isoformat(),
        text["source"] or path,
        text["provenance"] or "stated",
        overridden=True,
    )
