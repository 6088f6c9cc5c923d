"""Tables of failures: CSV, Parquet, JSON lines, a JSON list of objects.

In: a file and the names of the columns to read. Out: a frame of these columns, with the number of
the line (or row) that each row is from; texts as they stand, except for Parquet, which has types.
DESIGN "Outside contract". Knows nothing of what the columns mean.
"""

from __future__ import annotations

import csv
import difflib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import polars as pl

from nonuniform.cluster.sources.bad_rows import ROW, Findings
from nonuniform.cluster.sources.log_format import LogFormat
from nonuniform.cluster.sources.text_file import read_bytes, read_lines
from nonuniform.errors import BadInput

_SHOWN_COLUMNS = 20
_ASKED_FOR_KEYS = 1000


def read_csv(path: Path, form: LogFormat, findings: Findings) -> pl.DataFrame:
    """The first line names the columns. A row with more or fewer fields is a wrong row."""
    lines = read_lines(path, findings)
    if any('"' in line for line in lines.text):
        # A quoted field may hold a line end, so that only a real reader knows where a row begins.
        frame = _quoted(path, lines.text, form, findings)
    else:
        frame = _plain(path, lines.text, form, findings)
    return frame.filter(~pl.col(ROW).is_in(list(lines.bad)))


def read_json_lines(path: Path, form: LogFormat, findings: Findings) -> pl.DataFrame:
    """One object per line."""
    lines = read_lines(path, findings)
    numbered = lines.numbered()
    findings.rows = len(numbered) + len(lines.bad)
    return _of_objects(path, _parsed(numbered, findings), form.columns.names, findings)


def read_json(path: Path, form: LogFormat, findings: Findings) -> pl.DataFrame:
    """A list of objects. The lines of wrong ones are looked for only when there are any."""
    try:
        text = read_bytes(path).decode("utf-8-sig")
        objects = json.loads(text)
    except UnicodeDecodeError as error:
        number = error.object.count(b"\n", 0, error.start) + 1
        raise BadInput(
            f"{path}: bytes that are not UTF-8 in line {number}; no row of a JSON list can be read"
        ) from error
    except json.JSONDecodeError as error:
        raise BadInput(f"{path}: line {error.lineno}: not JSON: {error.msg}") from error
    except (ValueError, RecursionError) as error:  # numbers of thousands of digits, deep nesting
        raise BadInput(f"{path}: not JSON that can be read: {error}") from error
    if not isinstance(objects, list):
        kind = type(objects).__name__
        raise BadInput(f"{path}: holds one JSON {kind}, expected a list of objects, one per row")
    findings.rows = len(objects)
    findings.place = _json_place(text)
    return _of_objects(path, enumerate(objects), form.columns.names, findings)


def read_parquet(path: Path, form: LogFormat, findings: Findings) -> pl.DataFrame:
    """Types are kept; a column `a.b` is field `b` of the struct `a`."""
    read_bytes(path)
    try:
        frame = pl.read_parquet(path)
    except pl.exceptions.PolarsError as error:
        raise BadInput(f"{path}: not a Parquet file: {str(error).splitlines()[0]}") from error
    findings.rows = frame.height
    findings.place = "row {}".format
    columns = [_parquet_column(path, frame, name) for name in form.columns.names]
    return pl.DataFrame([pl.Series(ROW, range(1, frame.height + 1), pl.Int64), *columns])


def _plain(path: Path, lines: Sequence[str], form: LogFormat, findings: Findings) -> pl.DataFrame:
    frame = pl.DataFrame([pl.Series("line", lines, pl.String)]).with_row_index(ROW, offset=1)
    frame = frame.with_columns(pl.col(ROW).cast(pl.Int64))
    frame = frame.filter(pl.col("line").str.contains(r"\S"))
    header, places = _header(path, frame["line"][0].split(form.delimiter), form)
    fields = pl.col("line").str.split(form.delimiter)
    split = frame[1:].select(ROW, fields.alias("fields"))
    findings.rows = split.height
    ragged = pl.col("fields").list.len() != len(header)
    full = findings.without(split, ragged, _ragged(len(header)))
    columns = (pl.col("fields").list.get(at).alias(name) for name, at in places.items())
    return full.select(ROW, *columns)


def _quoted(path: Path, lines: Sequence[str], form: LogFormat, findings: Findings) -> pl.DataFrame:
    before, numbers = 0, list[int]()
    header, places, columns = list[str](), dict[str, int](), list[list[str | None]]()
    reader = csv.reader((line + "\n" for line in lines), delimiter=form.delimiter, strict=True)
    try:
        for row in reader:
            number, before = before + 1, reader.line_num
            if not any(field and not field.isspace() for field in row):
                continue
            if not header:
                header, places = _header(path, row, form)
                columns = [[] for _ in places]
                continue
            findings.rows += 1
            if len(row) != len(header):
                findings.add(_ragged(len(header)), 1, number)
                continue
            numbers.append(number)
            for column, at in zip(columns, places.values(), strict=True):
                column.append(row[at])
    except csv.Error as error:
        raise BadInput(f"{path}: the row in line {before + 1} is no CSV: {error}") from error
    if not header:
        raise BadInput(f"{path}: the file is empty")
    return _texts(numbers, dict(zip(places, columns, strict=True)))


def _header(path: Path, fields: Sequence[str], form: LogFormat) -> tuple[list[str], dict[str, int]]:
    """The names of the columns, and where those that are read stand."""
    header = [name.strip() for name in fields]
    if len(set(header)) < len(header):
        twice = next(name for i, name in enumerate(header) if name in header[:i])
        raise BadInput(f"{path}: two columns are named {twice!r}")
    return header, {name: _index_of(path, name, header) for name in form.columns.names}


def _ragged(fields: int) -> str:
    return f"another number of fields than the {fields} of the header"


def _parsed(
    numbered: Sequence[tuple[int, str]], findings: Findings
) -> Iterator[tuple[int, object]]:
    for number, line in numbered:
        try:
            yield number, json.loads(line)
        except (ValueError, RecursionError):
            findings.add("what is no JSON", 1, number, f" ({line[:40]!r})")


def _of_objects(
    path: Path, objects: Iterable[tuple[int, object]], names: Sequence[str], findings: Findings
) -> pl.DataFrame:
    """One by one, since a million objects are large."""
    keys = {name: name.split(".") for name in names}
    columns: dict[str, list[str | None]] = {name: [] for name in names}
    numbers, first = list[int](), list[object]()
    for number, value in objects:
        if not isinstance(value, dict):
            findings.add("what is no JSON object", 1, number)
            continue
        numbers.append(number)
        if len(first) < _ASKED_FOR_KEYS:
            first.append(value)
        for name, column in columns.items():
            column.append(_text(_inside(value, keys[name])))
    for name, column in columns.items():
        if first and not any(text is not None for text in column):
            _index_of(path, name, _keys(first))
    return _texts(numbers, columns)


def _inside(value: object, keys: Sequence[str]) -> object:
    for key in keys:
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return value


def _text(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    # Not bool, which json writes as it stands in the file.
    return repr(value) if type(value) in (int, float) else json.dumps(value)


def _keys(objects: Iterable[object], within: str = "") -> list[str]:
    """All dotted keys, in order of first appearance."""
    found: dict[str, None] = {}
    for value in objects:
        if isinstance(value, dict):
            for key, inner in value.items():
                name = f"{within}{key}"
                found.update(dict.fromkeys(_keys([inner], f"{name}.") or [name]))
    return list(found)


def _json_place(text: str) -> Callable[[int], str]:
    def place(index: int) -> str:
        decoder, at = json.JSONDecoder(), text.index("[") + 1
        for _ in range(index):
            _, at = decoder.raw_decode(text, _skipped(text, at))
        return f"line {text.count(chr(10), 0, _skipped(text, at)) + 1}"

    return place


def _skipped(text: str, at: int) -> int:
    while text[at] in " \t\r\n,":
        at += 1
    return at


def _parquet_column(path: Path, frame: pl.DataFrame, name: str) -> pl.Series:
    column, *keys = name.split(".") if name not in frame.columns else [name]
    series = frame.to_series(_index_of(path, column, frame.columns))
    for key in keys:
        fields = series.struct.fields if series.dtype == pl.Struct else []
        _index_of(path, key, fields)
        series = series.struct.field(key)
    return series.alias(name)


def _index_of(path: Path, name: str, names: Sequence[str]) -> int:
    if name in names:
        return list(names).index(name)
    shown = ", ".join(names[:_SHOWN_COLUMNS]) or "none"
    more = f" and {len(names) - _SHOWN_COLUMNS} more" if len(names) > _SHOWN_COLUMNS else ""
    close = difflib.get_close_matches(name, names, n=1)
    hint = f'; did you mean "{close[0]}"?' if close else ""
    said = f'no column "{name}"; there are: {shown}{more}{hint}'
    raise BadInput(f"{path}: " + said.replace("\n", "\\n"))  # a quoted name may hold one


def _texts(numbers: Sequence[int], columns: dict[str, list[str | None]]) -> pl.DataFrame:
    series = [
        pl.Series(name, [_unicode(value) for value in values], pl.String)
        for name, values in columns.items()
    ]
    return pl.DataFrame([pl.Series(ROW, numbers, pl.Int64), *series])


def _unicode(text: str | None) -> str | None:
    """JSON may hold halves of a character, which no table can."""
    if text is None or text.isascii():
        return text
    return text.encode("utf-8", "replace").decode()
