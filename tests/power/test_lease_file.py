"""The record of what is owed: whole or as it was, and never taken for another's."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nonuniform.errors import BadInput
from nonuniform.power.lease_file import LeaseFile
from nonuniform.power.lease_values import Owed

WATTS = st.floats(1.0, 2000.0)
NAMES = st.from_regex(r"[0-3A-Z][0-3A-Z:-]{0,9}", fullmatch=True)
OWED = st.lists(
    st.builds(Owed, NAMES, WATTS, WATTS, st.none() | WATTS),
    max_size=5,
    unique_by=lambda line: line.gpu,
)


@given(owed=OWED)
def test_what_is_written_is_read(
    owed: list[Owed], tmp_path_factory: pytest.TempPathFactory
) -> None:
    record = LeaseFile(tmp_path_factory.mktemp("record") / "boost.json", "nvml")
    assert record.read() == ()
    record.write(owed)
    assert record.read() == tuple(owed)


def test_it_is_forced_to_disk_before_it_takes_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    happened: list[str] = []
    fsync, replace = os.fsync, os.replace

    def noted_fsync(handle: int) -> None:
        happened.append("fsync")
        fsync(handle)

    def noted_replace(old: Path, new: Path) -> None:
        happened.append("rename")
        replace(old, new)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(os, "replace", noted_replace)
    LeaseFile(tmp_path / "boost.json", "nvml").write([Owed("0", 700.0, 900.0)])
    assert happened == ["fsync", "rename", "fsync"]


def test_a_write_that_fails_leaves_the_old_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = LeaseFile(tmp_path / "boost.json", "nvml")
    record.write([Owed("0", 700.0, 900.0)])

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        record.write([])
    assert record.read() == (Owed("0", 700.0, 900.0),)


GOOD = {"version": 1, "actuator": "nvml", "owed": []}


def owing(*lines: dict[str, object]) -> bytes:
    return json.dumps(GOOD | {"owed": list(lines)}).encode()


def test_a_record_that_others_may_write_is_not_obeyed(tmp_path: Path) -> None:
    path = tmp_path / "boost.json"
    record = LeaseFile(path, "nvml")
    record.write([Owed("0", 700.0, 900.0)])
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o666)
    with pytest.raises(BadInput, match="others may write it"):
        record.read()
    path.chmod(0o600)
    tmp_path.chmod(0o777)
    with pytest.raises(BadInput, match="others may write its folder"):
        record.read()
    tmp_path.chmod(0o1777)
    assert record.read()
    tmp_path.chmod(0o700)


def test_a_record_that_changes_is_seen(tmp_path: Path) -> None:
    record = LeaseFile(tmp_path / "boost.json", "nvml")
    assert record.stamp() is None
    record.write([])
    stamp = record.stamp()
    assert stamp == record.stamp()
    record.write([])
    assert stamp != record.stamp()
    record.path.unlink()
    assert record.stamp() is None


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is no record"),
        (b'{"version": 1', "is no record"),
        (b"[]", "is no record"),
        (json.dumps(GOOD | {"owed": {}}).encode(), "is no record"),
        (json.dumps(GOOD | {"owed": [{"gpu": "0"}]}).encode(), "is no record"),
        (
            b'{"version": 1, "actuator": "nvml", "owed": [{"gpu": "0", "restore_w": NaN, '
            b'"set_point_w": 900}]}',
            "is no record",
        ),
        (owing({"gpu": "0", "restore_w": 10**400, "set_point_w": 900}), "is no record"),
        (owing({"gpu": "0", "restore_w": 700, "set_point_w": 10**400}), "is no record"),
        (owing({"gpu": "--all --reset", "restore_w": 700, "set_point_w": 900}), "is no record"),
        (
            owing({"gpu": "0", "restore_w": 700, "set_point_w": 900, "flow_l_per_min": -1}),
            "is no record",
        ),
        (owing({"gpu": 0, "restore_w": 700, "set_point_w": 900}), "is no record"),
        (owing(*[{"gpu": "0", "restore_w": 700, "set_point_w": 900}] * 2), "is no record"),
        (json.dumps(GOOD | {"version": 2}).encode(), "version 2, expected 1"),
        (
            b'{"version": 1, "actuator": "command", "owed": [{"gpu": "0", "restore_w": 700, '
            b'"set_point_w": 900}]}',
            "1 GPUs were raised with the actuator command, which must restore them, not nvml",
        ),
    ],
)
def test_what_cannot_be_obeyed_is_said(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "boost.json"
    path.write_bytes(content)
    with pytest.raises(BadInput, match=said) as caught:
        LeaseFile(path, "nvml").read()
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
