"""Times as people write them -> hours.

In: a column of texts, numbers or dates, and the clock they were written by. Out: hours, as floats:
since 1970 (UTC) for dates, since the log's own zero for numbers; null where there is no time, or
none that can be read. Knows nothing of windows and failures.

A local time that a clock change makes ambiguous is read as the earlier one; one that it skips is no
time at all.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from nonuniform.cluster.sources.bad_rows import counted
from nonuniform.cluster.sources.log_format import HOURS, Clock
from nonuniform.errors import BadInput

_ISO = (
    r"^(?<date>\d{4}-\d\d-\d\d)"
    r"(?:[T ](?<hm>\d\d:\d\d)(?::(?<s>\d\d)(?:[.,](?<part>\d+))?)?)?"
    r" ?(?<zone>[Zz]|UTC|[+-]\d\d(?::?\d\d)?)?$"
)


@dataclass(frozen=True)
class Read:
    """`zoneless` of the times named no zone, and `twice` of these happened twice that day."""

    hours: pl.Series
    zoneless: int = 0
    twice: int = 0

    def assumed(self, clock: Clock) -> list[str]:
        """What a person should know."""
        said = []
        if self.zoneless:
            said.append(f"times that name no time zone are in {clock.zone}")
        if self.twice:
            times = counted(self.twice, "time")
            said.append(
                f"{times} of the hour that a clock change of {clock.zone} repeats: the earlier"
            )
        return said


def read_times(values: pl.Series, clock: Clock) -> Read:
    """Null stays null, and so becomes what is no time."""
    if isinstance(values.dtype, pl.Datetime):
        return _of_datetimes(values, clock)
    if values.dtype == pl.Date:
        return _of_datetimes(values.cast(pl.Datetime("us")), clock)
    if clock.unit == "iso":
        if values.dtype.is_numeric():
            raise BadInput(
                f'log: column "{values.name}" holds numbers, and clock.unit = "iso": '
                f"say their unit ({', '.join(HOURS)})"
            )
        return _of_texts(_stripped(values), clock)
    return Read(_numbers(values) * HOURS[clock.unit])


def not_a_time(clock: Clock) -> str:
    """The name of the fault."""
    if clock.unit == "iso":
        return "a bad time (not ISO 8601)"
    return f"a bad time (not a number, clock.unit = {clock.unit!r})"


def read_numbers(values: pl.Series) -> pl.Series:
    """Finite numbers; null for everything else."""
    return _numbers(values)


def one_time(value: float | str, key: str, clock: Clock) -> float:
    """A time that stands in a scenario, in hours."""
    hours = read_times(pl.Series(key, [str(value)]), clock).hours[0]
    if hours is None:
        raise BadInput(f"log: {key} = {value!r}: {not_a_time(clock)}")
    return float(hours)


def _stripped(values: pl.Series) -> pl.Series:
    return values.cast(pl.String).str.strip_chars()


def _numbers(values: pl.Series) -> pl.Series:
    if values.dtype == pl.Boolean:
        return pl.Series(values.name, [None] * len(values), dtype=pl.Float64)
    if not values.dtype.is_numeric():
        values = _stripped(values)
    numbers = values.cast(pl.Float64, strict=False)
    return numbers.set(~numbers.is_finite(), None)


def _of_datetimes(values: pl.Series, clock: Clock) -> Read:
    dtype = values.dtype
    assert isinstance(dtype, pl.Datetime)
    if dtype.time_zone is not None:
        return Read(_epoch_s(values) / 3600)
    local_s, twice = _local(values, clock.zone)
    return Read(local_s / 3600, len(values) - values.null_count(), twice)


def _of_texts(texts: pl.Series, clock: Clock) -> Read:
    parts = texts.str.extract_groups(_ISO).struct.unnest()
    written = parts.select(
        pl.col("date") + " " + pl.col("hm").fill_null("00:00") + ":" + pl.col("s").fill_null("00")
    ).to_series()
    naive = written.str.to_datetime("%Y-%m-%d %H:%M:%S", strict=False, time_unit="us")
    part_s = ("0." + parts["part"].fill_null("0")).cast(pl.Float64)
    offset_s = _offset_s(parts["zone"])
    without = parts["zone"].is_null()
    utc_s = _epoch_s(naive.dt.replace_time_zone("UTC")) - offset_s
    zoneless = int((without & naive.is_not_null()).sum())
    if not zoneless:
        return Read((utc_s + part_s) / 3600)
    local_s, twice = _local(naive.set(~without, None), clock.zone)
    return Read((local_s.zip_with(without, utc_s) + part_s) / 3600, zoneless, twice)


def _offset_s(zones: pl.Series) -> pl.Series:
    digits = zones.str.replace(":", "")
    signed = digits.str.contains(r"^[+-]").fill_null(value=False)
    hours = digits.str.slice(1, 2).cast(pl.Float64, strict=False)
    minutes = digits.str.slice(3, 2).cast(pl.Float64, strict=False).fill_null(0.0)
    sign = digits.str.starts_with("-").fill_null(value=False).cast(pl.Float64) * -2 + 1
    seconds = sign * (hours * 3600 + minutes * 60)
    return seconds.zip_with(signed, pl.Series([0.0]).new_from_index(0, len(zones)))


def _local(naive: pl.Series, zone: str) -> tuple[pl.Series, int]:
    """Seconds since 1970 of local times, and how many of them happened twice."""
    try:
        first, last = (
            _epoch_s(naive.dt.replace_time_zone(zone, ambiguous=which, non_existent="null"))
            for which in ("earliest", "latest")
        )
    except pl.exceptions.PolarsError as error:
        raise BadInput(f'log: clock.zone = "{zone}": no such time zone') from error
    return first, int((first != last).sum())


def _epoch_s(moments: pl.Series) -> pl.Series:
    return moments.dt.epoch("us").cast(pl.Float64) / 1e6
