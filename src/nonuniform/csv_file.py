"""Tables as CSV in which words from a log stay words.

In: a frame. Out: bytes. A spreadsheet runs a cell that begins like a formula; such a one gets an
apostrophe, which shows it as it is.
"""

from __future__ import annotations

import polars as pl

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def csv_bytes(frame: pl.DataFrame) -> bytes:
    """Words from a log stay words, also in a spreadsheet."""
    guarded = [
        pl.when(pl.any_horizontal(*(pl.col(name).str.starts_with(sign) for sign in _FORMULA)))
        .then(pl.concat_str(pl.lit("'"), pl.col(name)))
        .otherwise(pl.col(name))
        .alias(name)
        for name, dtype in frame.schema.items()
        if dtype == pl.String
    ]
    return frame.with_columns(guarded).write_csv().encode()
