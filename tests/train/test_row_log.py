"""A file of JSON lines on a disk that takes them, takes a part of them, or takes nothing."""

from __future__ import annotations

import errno
import json
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nonuniform.train.row_log import RowLog


def line(step: int) -> str:
    return json.dumps({"step": step, "text": "ü" * step})


def steps(path: Path) -> list[int]:
    return [json.loads(text)["step"] for text in path.read_text(encoding="utf-8").splitlines()]


class Disk:
    """`os.write` of a disk that takes so many bytes at a time; None: it is full."""

    def __init__(self, takes: list[int | None]) -> None:
        self.takes = takes
        self.write = os.write

    def __call__(self, file: int, data: bytes) -> int:
        room = self.takes.pop(0) if self.takes else len(data)
        if room is None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return self.write(file, data[:room])


def test_a_line_is_in_the_file_as_soon_as_it_is_logged(tmp_path: Path) -> None:
    log = RowLog(tmp_path / "log")
    for step in (1, 2):
        log.append(line(step))
        assert (tmp_path / "log").read_text() == "".join(line(s) + "\n" for s in range(1, step + 1))
    assert log.trouble == ""
    log.close()


def test_a_line_that_is_taken_in_pieces_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = RowLog(tmp_path / "log")
    monkeypatch.setattr(os, "write", Disk([3, 1, 4]))
    log.append(line(1))
    assert steps(tmp_path / "log") == [1]


def test_what_a_full_disk_does_not_take_comes_later_and_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = RowLog(tmp_path / "log")
    log.append(line(1))
    monkeypatch.setattr(os, "write", Disk([5, None, None]))  # full in the middle of a line
    log.append(line(2))
    assert log.trouble == "No space left on device"
    log.append(line(3))
    assert log.trouble == "No space left on device"
    assert (tmp_path / "log").read_text() == line(1) + "\n" + line(2)[:5]
    log.append(line(4))
    assert log.trouble == ""
    assert steps(tmp_path / "log") == [1, 2, 3, 4]


def test_it_can_be_tried_again_without_a_new_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = RowLog(tmp_path / "log")
    monkeypatch.setattr(os, "write", Disk([None, None]))
    log.append(line(1))
    log.retry()
    assert log.trouble
    log.retry()
    assert log.trouble == ""
    log.retry()
    assert steps(tmp_path / "log") == [1]


def test_who_closes_is_told_what_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = RowLog(tmp_path / "log")
    monkeypatch.setattr(os, "write", Disk([None, None]))
    log.append(line(1))
    with pytest.raises(OSError, match="No space left"):
        log.close()
    log.close()
    assert steps(tmp_path / "log") == [1]


@given(takes=st.lists(st.none() | st.integers(1, 12), max_size=30), count=st.integers(1, 8))
def test_whatever_the_disk_does_nothing_is_lost_doubled_or_torn(
    takes: list[int | None], count: int
) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        path = Path(folder) / "log"
        log = RowLog(path)
        patch.setattr(os, "write", Disk(list(takes)))
        for step in range(1, count + 1):
            log.append(line(step))
            whole = "".join(line(s) + "\n" for s in range(1, step + 1)).encode()
            assert whole.startswith(path.read_bytes())
            assert (log.trouble == "") == (path.read_bytes() == whole)
        patch.undo()
        log.close()
        assert steps(path) == list(range(1, count + 1))


# --- cut and resume


@pytest.mark.parametrize("last", [0, 1, 3, 5])
def test_a_cut_takes_out_the_first_row_that_is_not_kept_and_all_after_it(
    tmp_path: Path, last: int
) -> None:
    log = RowLog(tmp_path / "log")
    for step in (1, 2, 3, 4):
        log.append(line(step))
    row = log.cut(lambda row: row["step"] <= last)
    kept = list(range(1, min(last, 4) + 1))
    assert row == (json.loads(line(kept[-1])) if kept else None)
    assert steps(tmp_path / "log") == kept
    log.append(line(9))
    assert steps(tmp_path / "log") == [*kept, 9]


def test_a_cut_looks_at_what_was_kept_in_memory_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = RowLog(tmp_path / "log")
    monkeypatch.setattr(os, "write", Disk([None, None]))
    log.append(line(1))
    log.append(line(2))
    assert log.cut(lambda row: row["step"] <= 1) == json.loads(line(1))
    assert steps(tmp_path / "log") == [1]


@pytest.mark.parametrize("rest", ["", "{", '{"step": 3', '{"step": 3}', "\x00\r\x00"])
def test_half_a_line_at_the_end_is_cut_off(tmp_path: Path, rest: str) -> None:
    path = tmp_path / "log"
    path.write_bytes(f"{line(1)}\n{line(2)}\n{rest}".encode())
    log = RowLog(path, resume=True)
    assert log.read() == ([json.loads(line(1)), json.loads(line(2))], 0)
    log.append(line(3))
    assert steps(path) == [1, 2, 3]


BAD = ["null", "{", "\x00\x00 torn", "[" * 100_000, "\xff"]


@pytest.mark.parametrize("bad", BAD, ids=range(len(BAD)))
def test_no_row_behind_a_line_that_cannot_be_read_is_lost(tmp_path: Path, bad: str) -> None:
    path = tmp_path / "log"
    whole = f"{line(1)}\n{line(2)}\n{bad}\n{line(3)}\n{line(4)}\n".encode("latin-1")
    path.write_bytes(whole + b"{")
    log = RowLog(path, resume=True)
    rows, unreadable = log.read()
    assert ([row["step"] for row in rows], unreadable) == ([1, 2, 3, 4], 1)
    assert path.read_bytes() == whole
    assert log.cut(lambda row: row["step"] <= 3) == json.loads(line(3).encode("latin-1"))
    assert path.read_bytes() == whole[: -len(line(4).encode("latin-1")) - 1]
    log.append(json.dumps({"step": 9}))
    assert [row["step"] for row in log.read()[0]] == [1, 2, 3, 9]


@pytest.mark.parametrize("count", [0, 1, 3])
def test_to_read_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    path = tmp_path / "log"
    log = RowLog(path)
    log.append(line(1))
    monkeypatch.setattr(os, "write", Disk([5, None, *[None] * count]))
    for step in range(2, 2 + count):
        log.append(line(step))
    before = path.read_bytes()
    assert [row["step"] for row in log.read()[0]] == list(range(1, 2 + count))
    assert path.read_bytes() == before


def test_a_log_that_is_not_there_can_be_resumed(tmp_path: Path) -> None:
    log = RowLog(tmp_path / "log", resume=True)
    assert log.read() == ([], 0)
    log.append(line(1))
    assert steps(tmp_path / "log") == [1]
    with pytest.raises(FileExistsError):
        RowLog(tmp_path / "log")
